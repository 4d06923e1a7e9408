"""What a stream's encoding cannot carry, written as JSON writes it: what is printed goes on being
the text, or the JSON, that it was, on any terminal. Knows streams only.
"""

from __future__ import annotations

import codecs
import io
from typing import Final, TextIO

ESCAPE: Final = "journal.escape"
"""The name of this way for `str.encode`."""


def _escaped(error: UnicodeError) -> tuple[str, int]:
    import json

    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(ESCAPE, _escaped)


def prepare(stream: TextIO) -> None:
    """Let nothing that is printed there raise."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=ESCAPE)
