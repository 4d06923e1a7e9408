"""A call's life in a state: begun, failed, finished, uncertain after a crash, resolved."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from journal.values import decode_value
from tests.folding import Task, failed, reopening


def test_a_call_runs_fails_runs_again_and_completes() -> None:
    task = Task()
    task.decided()
    assert task.call().status == "pending"
    task.called(tool_call_id="c9", arguments=[1])
    assert (task.call().status, task.call().tool_call_id) == ("started", "c9")
    task.did("ToolCallFailed", position=0, **failed())
    assert (task.call().status, task.call().failures, task.call().error) == ("pending", 1, "no")
    task.called()
    assert decode_value(task.call().arguments) == [1]
    assert task.did("ToolCallCompleted", step_index=0, position=0, result=None) == ""
    call = task.call()
    assert (call.status, call.result, call.error, call.failures) == (
        "completed",
        Raw(b"null"),
        None,
        1,
    )


def test_only_a_final_failure_finishes_a_call() -> None:
    task = Task()
    task.decided()
    task.called()
    task.did("ToolCallFailed", position=0, final=True, **failed())
    assert (task.call().status, task.call().finished) == ("failed", True)
    assert "is finished" in task.called()


@pytest.mark.parametrize(
    ("effect", "running", "status"),
    [("once", [], "uncertain"), ("idempotent", [], "started"), ("once", [[0, 0]], "started")],
)
def test_a_claim_leaves_a_once_call_uncertain_unless_it_still_runs(
    effect: str, running: list[list[int]], status: str
) -> None:
    task = Task()
    task.decided()
    task.called(effect=effect)
    task.put(task.claim(running=running))
    assert task.call().status == status


def test_reopening_leaves_a_once_call_uncertain() -> None:
    task = Task()
    task.decided()
    task.called()
    task.did("TaskFailed", error_type="E", error="no")
    task.put(reopening(task))
    assert task.call().status == "uncertain"


def test_an_uncertain_call_stays_so_across_attempts_and_claims() -> None:
    task = Task()
    task.decided()
    task.called()
    task.put(task.claim())
    task.did("StepFailed", **failed())
    task.put(task.claim(running=[[0, 0]]))
    assert task.call().status == "uncertain"


@pytest.mark.parametrize(
    ("answer", "status", "result", "error"),
    [
        ({"result": {"ok": 1}}, "completed", b'{"ok":1}', None),
        ({}, "completed", b"null", None),
        ({"error": "it did not", "error_type": "E2"}, "failed", None, "it did not"),
        ({"run_again": True}, "pending", None, "no"),
    ],
)
@pytest.mark.parametrize("lost", [True, False], ids=["worker lost", "took too long"])
def test_an_uncertain_call_is_resolved(
    answer: dict[str, Any], status: str, result: bytes | None, error: str | None, lost: bool
) -> None:
    task = Task()
    task.decided()
    task.called()
    task.did("ToolCallFailed", position=0, **failed())
    assert "not uncertain" in task.did("CallResolved", step_index=0, position=0, **answer)
    task.called()
    if lost:
        task.put(task.claim())
    assert task.did("CallResolved", step_index=0, position=0, **answer) == ""
    call = task.call()
    assert (call.status, call.error) == (status, error)
    assert call.result == (None if result is None else Raw(result))
    assert (call.completed_at == task.state.updated_at) == call.finished


def test_what_has_begun_can_be_resolved_whatever_it_was_declared_to_be() -> None:
    """Its tool may be declared `once` by now, and an imported call began without a declaration."""
    task = Task()
    task.decided()
    assert "not uncertain" in task.did("CallResolved", step_index=0, position=0, result=1)
    task.called(effect="idempotent")
    task.put(task.claim())
    assert task.did("CallResolved", step_index=0, position=0, result=1) == ""
    assert task.call().status == "completed"
    assert "finished" in task.did("CallResolved", step_index=0, position=0, result=2)


def test_calls_without_a_decision_are_kept_too() -> None:
    task = Task()
    task.did("StepStarted", step_index=0)
    assert task.called(position=2) == ""
    (call,) = task.step().all_calls()
    assert (call.position, call.tool_name) == (2, "tool")
