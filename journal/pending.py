"""One event on its way into the log: its record, and the future of whoever waits for it.

Knows the log's protocol and how an event is encoded; knows nothing of acceptance.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Protocol

from msgspec import Struct

from journal.codec import encode_event
from journal.events import Envelope
from journal.fold import Verdict
from journal.log import Append, Cursor


class Sender(Protocol):
    """Whose event it is, and who is told what became of it."""

    key: bytes
    birth_ms: int
    cursor: Cursor

    def written(self, pending: Pending, offset: int) -> None:
        """It is durable."""

    def failed(self, pending: Pending, error: Exception) -> None:
        """It was not, or may not have been, written."""


class Pending(Append):
    """An event on its way into the log. `body` spares decoding it again, where it has the shape
    of the current version."""

    __slots__ = ("body", "event", "future", "owner", "sent_ms")

    def __init__(self, owner: Sender, event: Envelope, body: Struct | None, ms: int) -> None:
        self.owner = owner
        self.event = event
        self.body = body
        self.future: asyncio.Future[Verdict] = asyncio.Future()
        self.sent_ms = ms
        self.key = owner.key
        self.value = encode_event(event)
        # A task is looked for from the time that its id carries, whatever clock made that.
        self.timestamp_ms = ms if ms > owner.birth_ms else owner.birth_ms
        self.expect = owner.cursor
        self.headers = _headers(event.type, event.v)
        if event.traceparent is not None:
            self.headers += (("traceparent", event.traceparent.encode()),)

    def written(self, offset: int) -> None:
        self.owner.written(self, offset)

    def failed(self, error: Exception) -> None:
        self.owner.failed(self, error)


@cache
def _headers(type: str, v: int) -> tuple[tuple[str, bytes], ...]:
    return ("type", type.encode()), ("v", str(v).encode())
