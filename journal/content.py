"""Bytes with a media type: an image, a document, a recording, as a value among others.

Knows base64 and media types; knows no store, no event and no model's API. Pure.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from journal.errors import UsageError

KEY: Final = "$content"
"""The one key of the object that stands for a content; a user's own is written `$$content`."""


class Content:
    """Bytes and their media type, such as `image/png`: an argument, a result, a part of a
    message, a final answer, at any depth. Raises `UsageError` where they are something else."""

    __slots__ = ("data", "media_type")

    def __init__(self, data: bytes, media_type: str) -> None:
        if not isinstance(data, bytes):
            raise UsageError(f"Content takes bytes, not {type(data).__name__}")
        kind, slash, rest = media_type.partition("/")
        if not (kind and slash and rest):
            raise UsageError(f"{media_type!r} is no media type; name one such as image/png")
        self.data = data
        self.media_type = media_type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Content):
            return NotImplemented
        return self.media_type == other.media_type and self.data == other.data

    def __hash__(self) -> int:
        return hash((self.data, self.media_type))

    def __repr__(self) -> str:
        return f"Content({len(self.data)} bytes, {self.media_type!r})"

    def __str__(self) -> str:
        return f"[{self.media_type}, {len(self.data)} bytes]"

    @property
    def base64(self) -> str:
        """The bytes in base64, as a model's API takes them."""
        return base64.b64encode(self.data).decode()


def inline(content: Content) -> dict[str, Any]:
    """The JSON form of a small one."""
    return {KEY: {"media_type": content.media_type, "data": content.base64}}


def from_inline(form: Any) -> Content | None:
    """The content that stands under `KEY`; None where this is the form of none."""
    if not isinstance(form, dict) or form.keys() != {"media_type", "data"}:
        return None
    try:
        return Content(base64.b64decode(form["data"], validate=True), form["media_type"])
    except (TypeError, ValueError, AttributeError, UsageError):
        return None
