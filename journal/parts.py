"""Contents in a message history: an image or a document as a part of each API's own shape.

Knows the two APIs' content parts; knows neither steps nor events. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from journal.content import Content

Dict = dict[str, Any]
Render = Callable[[Content], Dict]


def _shown(value: Any) -> str:
    if isinstance(value, Content):
        return str(value)
    raise TypeError(f"a {type(value).__name__}")


_texts = msgspec.json.Encoder(enc_hook=_shown)


def text(value: Any) -> str:
    """A value as a model reads it: text as it is, a content by media type and size, anything
    else as JSON."""
    if isinstance(value, str | Content):
        return str(value)
    return _texts.encode(value).decode()


def has_contents(value: Any) -> bool:
    """Whether this is a content, or a list of parts with one among them."""
    if isinstance(value, list):
        return any(isinstance(part, Content) for part in value)
    return isinstance(value, Content)


def parts(value: Any, render: Render) -> Any:
    """A message's content as an API takes it; one without contents as it is."""
    if not has_contents(value):
        return value
    items = value if isinstance(value, list) else [value]
    return [_part(item, render) for item in items]


def _part(item: Any, render: Render) -> Dict:
    if isinstance(item, Content):
        return render(item)
    if isinstance(item, dict):
        return item
    return {"type": "text", "text": text(item)}


def openai(content: Content) -> Dict:
    """An image or a PDF as a data URL, text as text; of anything else what it is."""
    url = f"data:{content.media_type};base64,"
    if content.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url + content.base64}}
    if content.media_type == "application/pdf":
        file = {"filename": "document.pdf", "file_data": url + content.base64}
        return {"type": "file", "file": file}
    return _as_text(content)


def anthropic(content: Content) -> Dict:
    """An image or a PDF as a base64 source, text as text; of anything else what it is."""
    image = content.media_type.startswith("image/")
    if image or content.media_type == "application/pdf":
        source = {"type": "base64", "media_type": content.media_type, "data": content.base64}
        return {"type": "image" if image else "document", "source": source}
    return _as_text(content)


def _as_text(content: Content) -> Dict:
    told = str(content)
    if content.media_type.startswith("text/"):
        told = content.data.decode(errors="replace")
    return {"type": "text", "text": told}
