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
ASK = own("q", 0, "a", 1, "InputRequested")
TIMER = own("t", 0, "a", 1, "TimerSet")
CANCEL = event("CancelRequested", "c", ref="S")


def answer(id: str, ref: str) -> Envelope:
    return event("InputReceived", id, ref=ref)


def fired(ref: str, seq: int) -> Envelope:
    return event("TimerFired", f"f{seq}", 0, "a", seq, ref=ref)


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
        # an answer is to a request that is pending, and the first one counts
        ([], answer("i", "q"), "headless"),
        ([S], answer("i", "q"), "stale"),
        ([S, ASK], answer("i", "q"), ""),
        ([S, ASK], answer("i", "S"), "stale"),
        ([S, TIMER], answer("i", "t"), "stale"),
        ([S, ASK, answer("i", "q")], answer("j", "q"), "stale"),
        ([S, ASK, answer("i", "q")], answer("i", "q"), "stale"),
        ([S, ASK, fired("q", 2)], answer("i", "q"), "stale"),
        ([S, ASK, answer("i", "q")], fired("q", 2), ""),
        ([S, ASK, C1], answer("i", "q"), ""),
        ([S, ASK, own("F", 0, "a", 2, "TaskFailed")], answer("i", "q"), "after_end"),
        ([S, ASK, own("F", 0, "a", 2, "TaskFailed"), R1], answer("i", "q"), "stale"),
        # one request to cancel a run; what waits ends by it
        ([], CANCEL, "headless"),
        ([S], CANCEL, ""),
        ([S], event("CancelRequested", "c", ref="C1"), "stale"),
        ([S, CANCEL], CANCEL, "duplicate"),
        ([S, CANCEL], event("CancelRequested", "c2", ref="S"), "duplicate"),
        ([S, CANCEL], own("1", 0, "a", 1), ""),
        ([S, CANCEL, FAIL, R1], event("CancelRequested", "c2", ref="R1"), ""),
        ([S, DONE], CANCEL, "after_end"),
        ([S, ASK, CANCEL], own("2", 0, "a", 2), "after_end"),
        ([S, ASK, CANCEL], C1, "after_end"),
        ([S, CANCEL, TIMER], own("2", 0, "a", 2), "after_end"),
        ([S, CANCEL, TIMER], TIMER, "duplicate"),
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


@pytest.mark.parametrize(
    ("log", "status"),
    [
        ([ASK], "waiting"),
        ([TIMER], "waiting"),
        ([ASK, C1], "waiting"),
        ([ASK, answer("i", "q")], "running"),
        ([ASK, fired("q", 2)], "running"),
        ([TIMER, fired("t", 2)], "running"),
        ([TIMER, fired("?", 2)], "waiting"),
        ([ASK, own("t", 0, "a", 2, "TimerSet"), answer("i", "q")], "waiting"),
        ([ASK, own("t", 0, "a", 2, "TimerSet"), answer("i", "q"), fired("t", 3)], "running"),
        ([ASK, own("D", 0, "a", 2, "TaskCompleted")], "completed"),
        ([ASK, own("F", 0, "a", 2, "TaskFailed"), R1], "running"),
        ([CANCEL], "running"),
        ([CANCEL, own("1", 0, "a", 1)], "running"),
        ([ASK, CANCEL], "cancelled"),
        ([CANCEL, ASK], "cancelled"),
        ([CANCEL, TIMER], "cancelled"),
        ([CANCEL, FAIL, R1, event("TimerSet", "t", 1, "c", 2)], "waiting"),
    ],
)
def test_what_a_task_waits_for_is_its_status(log: list[Envelope], status: str) -> None:
    head = Head()
    for event in (S, *log):
        label = judge(head, event)
        assert label == "", event
        advance(head, event, label)
    assert head.status == status
    if status == "cancelled":
        assert head.ending_id == log[-1].id


def test_a_retry_forgets_what_was_waited_for() -> None:
    head = Head()
    log = [S, ASK, own("F", 0, "a", 2, "TaskFailed"), R1, event("TimerSet", "t", 1, "c", 3)]
    for one in [*log, event("TimerFired", "f", 1, "c", 4, ref="t")]:
        advance(head, one, judge(head, one))
    assert (head.status, head.requests, head.timers) == ("running", set(), set())
