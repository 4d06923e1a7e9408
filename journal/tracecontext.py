"""W3C Trace Context, level 1: which text is a `traceparent`.

Knows its format only; knows neither OpenTelemetry nor events. Pure.
"""

from __future__ import annotations

import re

from journal.errors import UsageError

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


def is_traceparent(text: object) -> bool:
    """Whether it is one of version 00: lower-case hex, neither id all zeros."""
    return isinstance(text, str) and _TRACEPARENT.fullmatch(text) is not None


def check_traceparent(text: str | None) -> str | None:
    """The text itself, if it is one, or None. Raises `UsageError`."""
    if text is None or is_traceparent(text):
        return text
    # Without the text: it may be anything that a header had.
    raise UsageError(
        "traceparent is not W3C's: give 00-<32 hex digits>-<16>-<2>, in lower case, with no id of "
        "zeros, or None"
    )
