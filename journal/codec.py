"""Bytes to envelopes and back, and what is refused on the way.

Knows the shape of the envelope; knows neither acceptance (fold), nor old versions of bodies
(upcasters), nor payloads (values). Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from journal.errors import BadRecord, UsageError
from journal.events import ANYONE, CLAIM, EVENT_TYPES, JOURNAL, OWNER, Envelope
from journal.values import encode, too_deep

_envelopes = msgspec.json.Decoder(Envelope)


encode_event: Final[Callable[[Envelope], bytes]] = encode
"""An event to its record's value."""

LEVELS: Final = 400
"""What is nested deeper is no event: whether it could be decoded would depend on the reader's
Python and on how deep its stack is. Ours are of 210 levels at most, for values are of 200."""

_TOO_DEEP: Final = f"no event: nested more than {LEVELS} levels deep"
_ANY_KEY: Final = b"\xff"
_BRACE: Final = ord("{")


def decode_event(value: bytes | None, key: bytes | None = _ANY_KEY) -> Envelope:
    """A record's value to its envelope; the body stays as it was written.

    Raises `BadRecord` for what is no event: no JSON object, more than `LEVELS` levels, members
    of wrong types, members that the class of a known type needs missing, or another key (or
    none, where `key` is given) than the event's `task_id`.
    An unknown type is no error here: whether that must stop the reader is the fold's to say.
    """
    if value is None:
        raise BadRecord("the record has no value")
    try:
        if not value.isascii():
            value.decode()  # payloads are not decoded here, and what is kept must be text
        event = _envelopes.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRecord(f"no event: {error}") from None
    except RecursionError:
        if too_deep(value, LEVELS):
            raise BadRecord(_TOO_DEEP) from None
        raise  # this reader's stack is no reason to pass over what others read
    if memoryview(event.body)[0] != _BRACE:
        raise BadRecord("no event: `body` is not an object")
    if event.v < 1:
        raise BadRecord("no event: `v` counts from 1")
    known = EVENT_TYPES.get(event.type)
    # An owner's are written by the journal alone. To look at each would cost a reader 3 % or more.
    if (known is None or known[0] != OWNER) and too_deep(value, LEVELS):
        raise BadRecord(_TOO_DEEP)
    if known is not None:
        lacking = _lacking(event, known[0])
        if lacking:
            raise BadRecord(f"no {event.type}: `{lacking}` is missing")
    if key is not _ANY_KEY and event.task_id is not None and event.task_id.encode() != key:
        # One without a key too: whoever reads by key would not see it.
        raise BadRecord("the record's key is not its task_id")
    return event


def _lacking(event: Envelope, kind: int) -> str | None:
    if kind == JOURNAL:
        return None
    if event.task_id is None:
        return "task_id"
    if kind == OWNER:
        if event.seq is None:
            return "seq"
        return "owner" if event.owner is None else "epoch" if event.epoch is None else None
    if kind == CLAIM:
        return "owner" if event.owner is None else "epoch" if event.epoch is None else None
    if kind == ANYONE and event.ref is None:
        return "ref"
    return None


def check_task_id(task_id: str) -> str:
    """The id itself, if it may be one. Raises `UsageError`."""
    try:
        size = len(task_id.encode())
    except UnicodeEncodeError:
        raise UsageError("a task id cannot hold a lone surrogate; use plain text") from None
    if not 1 <= size <= 255:
        raise UsageError(f"a task id has 1 to 255 bytes of UTF-8; this one has {size}")
    if not task_id.isprintable() and any(ord(c) < 32 or 127 <= ord(c) < 160 for c in task_id):
        raise UsageError("a task id cannot hold control characters; use plain text")
    return task_id
