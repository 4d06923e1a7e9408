"""`confirm="once"`: a state that runs ahead at each acknowledgement, held to the log later.

Keeps a head of its own that moves only in log order, and of own events that are ahead of it no
more than the ids. Knows envelopes and acceptance; appends nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from journal.acceptance import ACCEPTED, Head, advance, judge
from journal.codec import decode_event
from journal.errors import EventTooNew
from journal.events import ANYONE, EVENT_TYPES, Envelope
from journal.log import NONE, Record
from journal.pending import Pending


class Verifier:
    """Follows one task's records behind its owner."""

    def __init__(self, head: Head) -> None:
        """`head` is that of a state folded in log order; it is copied."""
        self._head = msgspec.convert(msgspec.to_builtins(head), Head)
        self._ahead: deque[tuple[str, int]] = deque()
        self._shown = 0
        self._early: dict[str, deque[tuple[int, str]]] = {}

    @property
    def mark(self) -> int:
        """How many acknowledged events the log will have shown when it has shown all of now."""
        return self._shown + len(self._ahead)

    def reached(self, mark: int) -> bool:
        """Whether the log has shown what was acknowledged when `mark` was read."""
        return self._shown >= mark

    def acknowledged(self, mine: Pending) -> None:
        """An own event is durable."""
        id = mine.event.id
        early = self._early.get(id)
        if early is None:
            self._ahead.append((id, _content(mine.event, mine.value)))
            return
        early.popleft()
        if not early:
            del self._early[id]

    def accepted_at(self, id: str) -> int | None:
        """Where the log has accepted an own event that nobody has acknowledged; None if not."""
        offset, verdict = self._early[id][0] if id in self._early else (NONE, "")
        return offset if offset != NONE and verdict == ACCEPTED else None

    def seen(self, record: Record, pending: Iterable[Pending]) -> tuple[Envelope, bool, str]:
        """The next record: (event, whether it is one of ours, verdict). `pending` are the own
        events without an acknowledgement. Raises `BadRecord` or `EventTooNew`."""
        event = decode_event(record.value, record.key)
        if event.type not in EVENT_TYPES:
            raise EventTooNew(event.type, event.v, f"at offset {record.offset}")
        early = False
        own = bool(self._ahead) and self._ahead[0] == (event.id, _content(event, record.value))
        if own:
            self._ahead.popleft()
            self._shown += 1
        elif any(mine.event.id == event.id for mine in pending):
            # The tail can be quicker than the acknowledgement.
            own = early = True
        verdict = judge(self._head, event)
        advance(self._head, event, verdict)
        if early:
            self._early.setdefault(event.id, deque()).append((record.offset, verdict))
        return event, own, verdict


def _content(event: Envelope, value: bytes | None) -> int:
    """What tells two events of one id apart, where others can write one too; else 0."""
    return hash(value) if EVENT_TYPES[event.type][0] == ANYONE else 0
