"""Which events count: the acceptance table of DESIGN.md part 3, over envelopes alone.

Rules first, tables after. Every reader of a log comes to the same verdicts because nothing
here looks at a body, a clock, or anything but the log's order. Pure.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from msgspec import Struct

from journal.events import CLAIM, CLOSING, ENDING, EVENT_TYPES, JOURNAL, OWNER, WAITING, Envelope

ACCEPTED: Final = ""
HEADLESS: Final = "headless"
AFTER_END: Final = "after_end"
FENCED: Final = "fenced"
STALE: Final = "stale"
DUPLICATE: Final = "duplicate"
CLOSED: Final = "closed"
CONFLICT: Final = "conflict"
GAP: Final = "gap"
OUT_OF_PLACE: Final = "out_of_place"
"""Accepted, but it does not fit the state: it changes nothing beyond `seq`."""

NO_STATE: Final = ""
RUNNING: Final = "running"
WAITS: Final = "waiting"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
ENDED: Final = frozenset(ENDING.values())


class Head(Struct, gc=False):
    """Of a task all that acceptance needs. `status` is "" while there is no state.

    claim_id    the id of the claim that the current owner won with
    run_id      the id of the event that created, or last reopened, the state
    ending_id   the id of the event that ended it
    last_id     the id of the last accepted owner's event, the one that has `seq`
    chain       SHA-256 over the one before and the id of each accepted event, and of each
                conflict or gap that closed an epoch
    messages    ids of the messages received
    requests    ids of the `InputRequested` that nothing has closed, `timers` of the `TimerSet`
    """

    status: str = NO_STATE
    epoch: int = 0
    owner: str | None = None
    seq: int = 0
    last_id: str | None = None
    claim_id: str | None = None
    run_id: str | None = None
    ending_id: str | None = None
    epoch_closed: bool = False
    parent_epoch: int | None = None
    parent_ref: str | None = None
    cancel_requested: bool = False
    chain: bytes = b""
    messages: set[str] = set()
    requests: set[str] = set()
    timers: set[str] = set()


def judge(head: Head, event: Envelope) -> str:
    """`ACCEPTED`, or the label of the first rule that is against the event.

    The event's type must be known (`journal.codec.decode_event` has checked its members).
    """
    kind = EVENT_TYPES[event.type][0]
    if kind == OWNER:
        return _judge_owner(head, event)
    if kind == CLAIM:
        return _judge_claim(head, event)
    if kind == JOURNAL or head.status == NO_STATE:
        return HEADLESS  # what is about a partition has no task, whatever its key says
    if head.status in ENDED:
        return AFTER_END
    if event.type == "InputReceived":
        return ACCEPTED if event.ref in head.requests else STALE
    if event.ref != head.run_id:
        return STALE
    if event.type == "CancelRequested":
        return DUPLICATE if head.cancel_requested else ACCEPTED
    return DUPLICATE if event.id in head.messages else ACCEPTED


def _judge_owner(head: Head, event: Envelope) -> str:
    if head.status == NO_STATE:
        return HEADLESS
    if event.epoch != head.epoch or event.owner != head.owner:
        return FENCED
    assert event.seq is not None
    ahead = event.seq - head.seq
    if ahead <= 0:
        if ahead < 0:
            return STALE
        if event.id == head.last_id:
            return DUPLICATE
    if head.status in ENDED:
        return AFTER_END
    if head.epoch_closed:
        return CLOSED
    if ahead == 1:
        return ACCEPTED
    return CONFLICT if ahead == 0 else GAP


def _judge_claim(head: Head, event: Envelope) -> str:
    if head.status == NO_STATE:
        starts = event.type == "TaskStarted" and event.epoch == 0
        # A sub-task's start names the parent's start of it; without it there is no parent.
        whole = (event.parent_epoch is None) == (event.ref is None)
        return ACCEPTED if starts and whole else HEADLESS
    if event.id == head.claim_id:
        return DUPLICATE
    if event.epoch == head.epoch + 1 and _from_parent(head, event):
        if event.type == "TaskClaimed" and head.status not in ENDED:
            return ACCEPTED
        if event.type == "TaskReopened" and head.status == FAILED:
            return ACCEPTED
    return AFTER_END if head.status in ENDED else FENCED


def _from_parent(head: Head, event: Envelope) -> bool:
    """A claim of a sub-task is made for its parent, by no parent that has been fenced."""
    if head.parent_epoch is None:
        return event.parent_epoch is None
    return (
        event.ref == head.parent_ref
        and event.parent_epoch is not None
        and event.parent_epoch >= head.parent_epoch
    )


def advance(head: Head, event: Envelope, verdict: str) -> None:
    """Move the head past an event that was judged. Rejected events change nothing, but a
    conflict or a gap closes the epoch: its writer no longer knows what it has written."""
    if verdict == ACCEPTED:
        kind = EVENT_TYPES[event.type][0]
        if kind == OWNER:
            head.seq = event.seq or 0
            head.last_id = event.id
            if event.type in _TURNS:
                _turned(head, event)
        elif kind == CLAIM:
            _claimed(head, event)
        elif event.type == "MessageReceived":
            head.messages.add(event.id)
        elif event.type == "CancelRequested":
            head.cancel_requested = True
            if head.status == WAITS:
                _ended(head, CANCELLED, event)
        else:
            _closed(head, event)
    elif verdict in (CONFLICT, GAP):
        head.epoch_closed = True
    else:
        return
    head.chain = sha256(head.chain + event.id.encode()).digest()


_TURNS: Final = ENDING.keys() | WAITING | CLOSING
"""The owner's events that may change a status."""


def _turned(head: Head, event: Envelope) -> None:
    if event.type in ENDING:
        _ended(head, ENDING[event.type], event)
    elif event.type in WAITING:
        _waits(head, event)
    else:
        _closed(head, event)


def _ended(head: Head, status: str, event: Envelope) -> None:
    head.status = status
    head.ending_id = event.id


def _waits(head: Head, event: Envelope) -> None:
    (head.requests if event.type == "InputRequested" else head.timers).add(event.id)
    if head.cancel_requested:
        _ended(head, CANCELLED, event)
    else:
        head.status = WAITS


def _closed(head: Head, event: Envelope) -> None:
    head.requests.discard(event.ref or "")
    head.timers.discard(event.ref or "")
    if not head.requests and not head.timers:
        head.status = RUNNING


def _claimed(head: Head, event: Envelope) -> None:
    head.epoch = event.epoch or 0
    head.owner = event.owner
    head.claim_id = event.id
    head.epoch_closed = False
    head.parent_epoch = event.parent_epoch
    if event.type == "TaskClaimed":
        return
    head.status = RUNNING
    head.run_id = event.id
    head.ending_id = None
    head.cancel_requested = False
    head.requests.clear()
    head.timers.clear()
    if event.type == "TaskStarted":
        head.parent_ref = event.ref
