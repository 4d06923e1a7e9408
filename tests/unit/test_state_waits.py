"""What a task waits for, and its sub-tasks, in its state: begun, closed, cancelled, begun anew."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from journal.events import Envelope
from journal.values import decode_value
from tests.folding import Task, failed, reopening


def about(event: Envelope, ref: str) -> Envelope:
    return replace(event, ref=ref)


def asked(task: Task, key: str = "k", **body: Any) -> Envelope:
    event = task.own("InputRequested", key=key, question="May I?", **body)
    assert task.put(event) == ""
    return event


def answer(task: Task, request: Envelope, value: Any) -> Envelope:
    return about(task.anyone("InputReceived", value=value, answered_by="ops"), request.id)


def test_of_two_answers_the_first_counts() -> None:
    task = Task()
    request = asked(task, schema={"type": "boolean"}, expires_at="2026-02-01T00:00:00Z")
    (wait,) = task.state.pending
    assert (task.state.status, task.state.running) == ("waiting", True)
    assert (wait.id, wait.until, decode_value(wait.question)) == (
        request.id,
        "2026-02-01T00:00:00Z",
        "May I?",
    )
    task.put(answer(task, request, True))
    wait = task.state.waits["k"]
    assert (wait.status, decode_value(wait.value), wait.answered_by) == ("received", True, "ops")
    assert (task.state.status, task.state.pending) == ("running", [])
    late = about(task.own("TimerFired"), request.id)
    assert "nothing is waited for" in task.put(late)
    assert task.state.waits["k"].status == "received"


def test_a_time_out_that_comes_first_closes_a_request() -> None:
    task = Task()
    request = asked(task)
    assert task.put(about(task.own("TimerFired"), request.id)) == ""
    assert (task.state.status, task.state.waits["k"].status) == ("running", "fired")


def test_a_key_is_waited_for_once() -> None:
    task = Task()
    asked(task)
    assert "waited for already" in task.did("TimerSet", key="k", fires_at="2026-02-01T00:00:00Z")
    assert task.state.waits["k"].question is not None


def test_cancelling_what_waits_ends_it_with_the_reason() -> None:
    task = Task()
    asked(task)
    cancel = about(task.anyone("CancelRequested", reason="too dear"), task.run_id)
    assert task.put(cancel) == ""
    state = task.state
    assert (state.status, state.error, state.ended_at) == ("cancelled", "too dear", cancel.at)


def test_what_is_cancelled_ends_as_it_begins_to_wait() -> None:
    task = Task()
    task.put(about(task.anyone("CancelRequested", reason="too dear"), task.run_id))
    assert (task.state.status, task.state.cancel_reason) == ("running", "too dear")
    timer = task.own("TimerSet", key="k", fires_at="2026-02-01T00:00:00Z")
    assert task.put(timer) == ""
    assert (task.state.status, task.state.error) == ("cancelled", "too dear")
    assert task.state.ended_at == timer.at


def started(task: Task, name: str = "q1") -> Envelope:
    body = {"child_task_id": f"t:{name}", "function": "work", "arguments_digest": "d"}
    event = task.own("SubtaskStarted", name=name, **body)
    assert task.put(event) == ""
    return event


def ended(task: Task, start: Envelope, status: str, **body: Any) -> Envelope:
    return about(task.own("SubtaskCompleted", name="q1", status=status, **body), start.id)


def test_a_sub_task_starts_once_and_ends_once() -> None:
    task = Task()
    start = started(task)
    assert task.state.subtasks["q1"].status == "started"
    again = task.own(
        "SubtaskStarted", name="q1", child_task_id="x", function="f", arguments_digest="e"
    )
    assert "started already" in task.put(again)
    assert "was started by that event" in task.put(ended(task, again, "completed"))
    assert "ends as" in task.put(ended(task, start, "odd"))
    assert task.put(ended(task, start, "completed", result=7)) == ""
    subtask = task.state.subtasks["q1"]
    assert (subtask.status, decode_value(subtask.result)) == ("completed", 7)
    assert "completed already" in task.put(ended(task, start, "failed"))


@pytest.mark.parametrize(
    ("status", "after"),
    [("completed", "completed"), ("failed", "started"), ("cancelled", "cancelled")],
)
def test_a_retry_starts_failed_sub_tasks_anew_and_forgets_what_was_waited_for(
    status: str, after: str
) -> None:
    task = Task()
    task.put(ended(task, started(task), status, error="no", error_type="E"))
    asked(task)
    task.did("TaskFailed", **{k: v for k, v in failed().items() if k != "step_index"})
    task.put(reopening(task))
    assert task.state.subtasks["q1"].status == after
    assert (task.state.waits, task.state.status) == ({}, "running")
    asked(task)
