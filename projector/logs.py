"""What `projector run` says: one line an event on stderr, as text or as JSON.

Levels are those of `logging`. A message never holds a payload or a secret (`journal.errors`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

FORMATS = ("text", "json")


def set_up(format: str, *, aiokafka: bool) -> Callable[[str], None]:
    """Log to stderr from here on; returns what says an error. `aiokafka` lets its warnings through,
    which repeat at every attempt what the journal says once."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if format == "json" else _Text())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("projector").setLevel(logging.INFO)
    if not aiokafka:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    return logging.getLogger("projector").error


class _Text(logging.Formatter):
    """`projector: MESSAGE`, and a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        trace = "" if record.exc_info is None else "\n" + self.formatException(record.exc_info)
        return f"projector: {_line(record)}{trace}"


class _Json(logging.Formatter):
    """An object of `time` (RFC 3339, UTC), `level`, `logger`, `message` and, with a traceback,
    `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        said = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _utf8(_line(record)),
        }
        if record.exc_info is not None:
            said["exception"] = _utf8(self.formatException(record.exc_info))
        return msgspec.json.encode(said).decode()


def _line(record: logging.LogRecord) -> str:
    return " ".join(record.getMessage().split())


def _utf8(text: str) -> str:
    # A path need not be UTF-8. As text, stderr does the same.
    return text.encode(errors="backslashreplace").decode()
