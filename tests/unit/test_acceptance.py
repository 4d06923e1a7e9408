"""Which events count, case by case: "the first hit names it" of the design's part 3."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from journal.acceptance import Head, advance, judge
from journal.events import Envelope


def event(type: str, id: str, *numbers: Any, **members: Any) -> Envelope:
    """(epoch, owner, seq) of an owner's event, (epoch, owner) of a claim."""
    names = ("epoch", "owner", "seq")[: len(numbers)]
    return Envelope(type, 1, id, "t", **dict(zip(names, numbers, strict=True)), **members)


def own(id: str, epoch: int, owner: str, seq: int, type: str = "ValueRecorded") -> Envelope:
    return event(type, id, epoch, owner, seq)


def message(id: str, run: str) -> Envelope:
    return event("MessageReceived", id, ref=run)


S = event("TaskStarted", "S", 0, "a")
C1 = event("TaskClaimed", "C1", 1, "b")
R1 = event("TaskReopened", "R1", 1, "c")
DONE = own("D", 0, "a", 1, "TaskCompleted")
FAIL = own("F", 0, "a", 1, "TaskFailed")
STOP = own("X", 0, "a", 1, "TaskCancelled")
CONFLICT = [S, own("1", 0, "a", 1), own("1'", 0, "a", 1)]
GAP = [S, own("9", 0, "a", 9)]
SUB = event("TaskStarted", "S", 0, "a", parent_epoch=2, ref="P")


def claim(epoch: int, parent_epoch: int | None, ref: str | None, id: str = "C") -> Envelope:
    return event("TaskClaimed", id, epoch, "z", parent_epoch=parent_epoch, ref=ref)


@pytest.mark.parametrize(
    ("log", "last", "label"),
    [
        # no state
        ([], S, ""),
        ([], event("TaskStarted", "S", 1, "a"), "headless"),
        ([], event("TaskClaimed", "C", 0, "a"), "headless"),
        ([], R1, "headless"),
        ([], own("1", 0, "a", 1), "headless"),
        ([], message("m", "S"), "headless"),
        ([C1, own("1", 1, "b", 1)], message("m", "S"), "headless"),
        # owner's, each rule before the next one
        ([S], own("1", 0, "a", 1), ""),
        ([S], own("1", 0, "z", 1), "fenced"),
        ([S], own("1", 1, "a", 1), "fenced"),
        ([S, C1], own("1", 0, "a", 1), "fenced"),
        ([S, C1], own("1", 1, "b", 1), ""),
        ([S, own("1", 0, "a", 1), C1], own("2", 1, "b", 2), ""),
        ([S, own("1", 0, "a", 1), C1], own("1", 0, "a", 1), "fenced"),
        ([S, own("1", 0, "a", 1), own("2", 0, "a", 2)], own("1", 0, "a", 1), "stale"),
        ([S, own("1", 0, "a", 1)], own("1", 0, "a", 1), "duplicate"),
        ([S, own("1", 0, "a", 1)], own("1'", 0, "a", 1), "conflict"),
        ([S], own("0", 0, "a", 0), "conflict"),
        ([S], own("-1", 0, "a", -1), "stale"),
        ([S], own("2", 0, "a", 2), "gap"),
        ([S, DONE], DONE, "duplicate"),
        ([S, DONE], own("1'", 0, "a", 1), "after_end"),
        ([S, DONE], own("2", 0, "a", 2), "after_end"),
        ([S, DONE], own("9", 0, "a", 9), "after_end"),
        ([S, DONE], own("0", 0, "a", 0), "stale"),
        ([S, DONE], own("2", 0, "z", 2), "fenced"),
        (CONFLICT, own("2", 0, "a", 2), "closed"),
        (CONFLICT, own("1", 0, "a", 1), "duplicate"),
        (CONFLICT, own("1'", 0, "a", 1), "closed"),
        (CONFLICT, own("0", 0, "a", 0), "stale"),
        ([*CONFLICT, C1], own("2", 1, "b", 2), ""),
        (GAP, own("1", 0, "a", 1), "closed"),
        (GAP, own("9", 0, "a", 9), "closed"),
        ([*GAP, C1], own("1", 1, "b", 1), ""),
        # claims
        ([S], S, "duplicate"),
        ([S], event("TaskStarted", "S2", 0, "z"), "fenced"),
        ([S], event("TaskStarted", "S2", 1, "z"), "fenced"),
        ([S], C1, ""),
        ([S, C1], C1, "duplicate"),
        ([S, C1], S, "fenced"),
        ([S], event("TaskClaimed", "C2", 2, "z"), "fenced"),
        ([S, C1], event("TaskClaimed", "C1'", 1, "z"), "fenced"),
        ([S], R1, "fenced"),
        (CONFLICT, S, "duplicate"),
        ([S, DONE], S, "duplicate"),
        ([S, DONE], C1, "after_end"),
        ([S, DONE], R1, "after_end"),
        ([S, STOP], R1, "after_end"),
        ([S, FAIL], R1, ""),
        ([S, FAIL], C1, "after_end"),
        ([S, FAIL], event("TaskReopened", "R2", 2, "c"), "after_end"),
        ([S, FAIL, R1], R1, "duplicate"),
        ([S, FAIL, R1], FAIL, "fenced"),
        ([S, FAIL, R1], own("2", 1, "c", 2), ""),
        # anyone's
        ([S], message("m", "S"), ""),
        ([S, C1], message("m", "S"), ""),
        (CONFLICT, message("m", "S"), ""),
        ([S], message("m", "C1"), "stale"),
        ([S, message("m", "S")], message("m", "S"), "duplicate"),
        ([S, DONE], message("m", "S"), "after_end"),
        ([S, DONE], message("m", "?"), "after_end"),
        ([S, FAIL, R1], message("m", "S"), "stale"),
        ([S, FAIL, R1], message("m", "R1"), ""),
        ([S, message("m", "S"), FAIL, R1], message("m", "R1"), "duplicate"),
        # of a sub-task
        ([], SUB, ""),
        ([SUB], claim(1, None, None), "fenced"),
        ([SUB], claim(1, 1, "P"), "fenced"),
        ([SUB], claim(1, 2, "Q"), "fenced"),
        ([SUB], claim(1, 2, None), "fenced"),
        ([SUB], claim(1, 2, "P"), ""),
        ([SUB], claim(1, 3, "P"), ""),
        ([SUB, claim(1, 3, "P")], claim(2, 2, "P", "C2"), "fenced"),
        ([SUB, claim(1, 3, "P")], claim(2, 3, "P", "C2"), ""),
        ([SUB, claim(1, 1, "P")], claim(1, 2, "P", "C2"), ""),
        ([S], claim(1, 2, "P"), "fenced"),
        ([SUB, FAIL], event("TaskReopened", "R", 1, "z"), "after_end"),
        ([SUB, FAIL], event("TaskReopened", "R", 1, "z", parent_epoch=2, ref="P"), ""),
        # half a sub-task's start names no parent
        ([], event("TaskStarted", "S", 0, "a", parent_epoch=2), "headless"),
        ([], event("TaskStarted", "S", 0, "a", ref="P"), "headless"),
        # about a partition, under a task's key
        ([], Envelope("JournalCreated", 1, "G"), "headless"),
        ([S], Envelope("JournalCreated", 1, "G"), "headless"),
    ],
)
def test_the_first_hit_names_it(log: list[Envelope], last: Envelope, label: str) -> None:
    head = Head()
    for event in log:
        advance(head, event, judge(head, event))
    assert judge(head, last) == label


def test_the_chain_covers_what_was_accepted_and_what_closed_an_epoch() -> None:
    head, chain = Head(), b""
    log = [
        (S, True),
        (own("1", 0, "a", 1), True),
        (own("1", 0, "a", 1), False),
        (own("late", 0, "z", 2), False),
        (message("m", "S"), True),
        (own("gap", 0, "a", 9), True),
        (own("2", 0, "a", 2), False),
        (own("gap", 0, "a", 9), False),
        (C1, True),
        (own("2", 1, "b", 2), True),
    ]
    for event, counts in log:
        advance(head, event, judge(head, event))
        if counts:
            chain = sha256(chain + event.id.encode()).digest()
        assert head.chain == chain


def test_a_retry_begins_a_new_run_with_the_seq_running_on() -> None:
    head = Head()
    for event in (S, FAIL, R1):
        advance(head, event, judge(head, event))
    assert (head.status, head.epoch, head.owner, head.seq) == ("running", 1, "c", 1)
    assert (head.run_id, head.ending_id, head.claim_id) == ("R1", None, "R1")
