"""What an accepted event changes in a state, and what does not fit and changes nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from journal.fold import fold
from journal.state import TaskState
from journal.values import BlobRef, blob_payload, decode_value, encode_value
from tests.folding import Task, failed, reopening
from tests.make_events import Writer

# --- the task -----------------------------------------------------------------------------------


def test_a_start_describes_the_task() -> None:
    task = Task(
        agent_name="a",
        worker="w",
        conversation_id="c",
        imported_from="atif",
        started_at="2025-01-01T00:00:00Z",
    )
    state = task.state
    assert (state.exists, state.running, state.status) == (True, True, "running")
    assert (state.description, state.agent_name, state.worker) == ("count the words", "a", "w")
    assert (state.conversation_id, state.imported_from) == ("c", "atif")
    assert state.started_at == state.updated_at == "2025-01-01T00:00:00Z"
    assert not TaskState("t").exists


def test_a_claim_by_an_agent_makes_an_imported_task_its_own() -> None:
    task = Task(agent_name="a", imported_from="atif")
    task.put(task.claim(worker="w2"))
    assert (task.state.agent_name, task.state.worker) == ("a", "w2")
    assert task.state.imported_from is None


@pytest.mark.parametrize(
    ("type", "body", "status"),
    [
        ("TaskCompleted", {"final_answer": {"$$a": 1}}, "completed"),
        ("TaskFailed", {"error_type": "E", "error": "no"}, "failed"),
        ("TaskCancelled", {"reason": "asked"}, "cancelled"),
    ],
)
def test_an_ending_ends_it(type: str, body: dict[str, Any], status: str) -> None:
    task = Task()
    assert task.did(type, completed_at="2026-02-02T00:00:00Z", **body) == ""
    state = task.state
    assert (state.status, state.running) == (status, False)
    assert state.ended_at == state.updated_at == "2026-02-02T00:00:00Z"
    if status == "completed":
        assert decode_value(state.final_answer) == {"$a": 1}
    else:
        assert state.error == body.get("error", "asked")


def test_an_ending_in_an_open_step_completes_it() -> None:
    task = Task()
    task.decided(tools=0)
    assert task.did("TaskCompleted", step_index=0, final_answer="42") == ""
    assert task.step().status == "completed"
    assert task.state.current_step == 1


@pytest.mark.parametrize("index", [0, 1, -1])
def test_an_ending_in_a_step_that_is_not_open_ends_the_task_and_no_more(index: int) -> None:
    task = Task()
    task.decided(tools=0)
    task.did("StepCompleted", step_index=0)
    before = copy.deepcopy(task.state)
    assert "is not open" in task.did("TaskCompleted", step_index=index, final_answer="42")
    assert task.state.status == "completed"
    assert replace(task.state, head=before.head, offset=before.offset) == before


def test_a_reopened_task_forgets_how_it_ended() -> None:
    task = Task()
    task.did("TaskFailed", error_type="E", error="no")
    task.put(reopening(task))
    state = task.state
    assert (state.status, state.error, state.error_type, state.ended_at) == (
        "running",
        None,
        None,
        None,
    )
    assert state.worker == "w3"


# --- steps --------------------------------------------------------------------------------------


def test_the_current_step_is_the_lowest_one_not_completed() -> None:
    task = Task()
    for index in (1, 0, 3):
        task.decided(index)
    task.did("StepCompleted", step_index=1)
    assert task.state.current_step == 0
    task.did("StepCompleted", step_index=0)
    assert task.state.current_step == 2
    task.did("StepCompleted", step_index=3)
    task.did("StepCompleted", step_index=2)
    assert task.state.current_step == 4
    assert [step.index for step in task.state.completed_steps] == [0, 1, 2, 3]


def test_only_a_failure_raises_the_attempt_and_the_decision_is_kept() -> None:
    task = Task()
    task.decided()
    task.put(task.claim())
    assert task.step().attempt == 1
    task.did("StepFailed", **failed())
    assert (task.step().status, task.step().error, task.step().attempt) == ("failed", "no", 1)
    task.called()
    step = task.step()
    assert (step.status, step.attempt, step.error, step.error_type) == ("open", 2, None, None)
    assert (task.call().attempt, step.raw_decision is not None) == (2, True)
    assert "has a decision already" in task.decided()


def test_a_step_may_fail_before_it_has_a_decision() -> None:
    task = Task()
    assert task.did("StepFailed", **failed()) == ""
    assert task.did("StepFailed", **failed()) == ""
    assert task.step().attempt == 2
    assert task.decided() == ""
    assert (task.step().attempt, task.step().status) == (3, "open")


def test_a_recorded_step_carries_its_decision_and_outcomes() -> None:
    task = Task()
    calls = [{"tool_name": "a", "arguments": {"$$x": 1}}, {"tool_name": "b"}, {"tool_name": "c"}]
    task.did(
        "StepCompleted",
        step_index=0,
        decision={"text": "t", "tool_calls": calls, "usage": {"input_tokens": 3}},
        calls=[{"result": None}, {"error": "no", "error_type": "E"}],
        completed_at="2026-02-02T00:00:00Z",
    )
    one, two, three = task.step().all_calls()
    assert (one.status, one.result, decode_value(one.arguments)) == (
        "completed",
        Raw(b"null"),
        {"$x": 1},
    )
    assert (two.status, two.error, two.result) == ("failed", "no", None)
    assert (three.status, three.finished) == ("pending", False)
    assert one.completed_at == task.step().completed_at == "2026-02-02T00:00:00Z"
    decision = task.step().decision()
    assert decision is not None
    assert decision.tool_calls[0].arguments == {"$x": 1}
    assert task.state.total_tokens == 3


def test_a_completion_brings_a_decision_only_where_there_is_none() -> None:
    task = Task()
    task.did("StepStarted", step_index=0, decision={"usage": {"input_tokens": 3}})
    task.did("StepCompleted", step_index=0, decision={"text": "b", "usage": {"input_tokens": 9}})
    decision = task.step().decision()
    assert decision is not None
    assert decision.text is None
    assert task.state.total_tokens == 3


@pytest.mark.parametrize(
    ("usages", "total"),
    [
        ([{"total_tokens": 7}, {"input_tokens": 2, "output_tokens": 1}], 10),
        ([{"input_tokens": 2, "output_tokens": 1}, {"total_tokens": 7}], 10),
        ([{"input_tokens": 2, "output_tokens": 1, "total_tokens": 99}], 3),
        ([{"cache_read_input_tokens": 5}], 0),
        ([{}], 0),
    ],
)
def test_the_total_is_input_plus_output_or_what_old_steps_reported(
    usages: list[dict[str, int]], total: int
) -> None:
    task = Task()
    for index, usage in enumerate(usages):
        task.did("StepCompleted", step_index=index, decision={"usage": usage})
    assert task.state.total_tokens == total
    assert sum(step.usage.total for step in task.state.completed_steps if step.usage) == total


# --- what does not fit ----------------------------------------------------------------------------

_POSITION = {"step_index": 0, "position": 0}
_START = {**_POSITION, "tool_name": "x", "arguments_digest": "d"}


@pytest.mark.parametrize(
    ("type", "body", "why"),
    [
        ("StepStarted", {"step_index": 0}, "has a decision already"),
        ("StepStarted", {"step_index": 1}, "has a decision already"),
        ("StepStarted", {"step_index": -1}, "counts from 0"),
        ("StepCompleted", {"step_index": 1}, "completed already"),
        ("StepCompleted", {"step_index": -1}, "counts from 0"),
        ("StepFailed", failed(step_index=1), "completed already"),
        ("StepFailed", failed(step_index=-1), "counts from 0"),
        ("ToolCallStarted", {**_START, "step_index": 1}, "step 1 is not open"),
        ("ToolCallStarted", {**_START, "step_index": 9}, "step 9 is not open"),
        ("ToolCallStarted", {**_START, "position": 1}, "call 1 of step 0 is finished"),
        ("ToolCallStarted", {**_START, "position": -1}, "counts from 0"),
        ("ToolCallCompleted", {**_POSITION, "position": 1, "result": 1}, "is finished"),
        ("ToolCallCompleted", {**_POSITION, "position": 7, "result": 1}, "has no call 7"),
        ("ToolCallCompleted", {**_POSITION, "step_index": 9, "result": 1}, "is not open"),
        ("ToolCallFailed", failed(position=1), "is finished"),
        ("ToolCallFailed", failed(position=7), "has no call 7"),
        ("CallResolved", {**_POSITION}, "not uncertain"),
        ("CallResolved", {**_POSITION, "position": 1}, "is finished"),
        ("ValueRecorded", {"key": "k", "function": "g"}, "value k is recorded already"),
        ("TaskCompleted", {"step_index": 1}, "step 1 is not open"),
        # shapes
        ("StepStarted", {}, "missing required field `step_index`"),
        ("StepStarted", {"step_index": "2"}, "Expected `int`, got `str`"),
        ("StepStarted", {"step_index": 2, "decision": None}, "Expected `object`, got `null`"),
        ("StepStarted", {"step_index": 2, "decision": {"tool_calls": [{}]}}, "`tool_name`"),
        ("StepStarted", {"step_index": 2, "decision": {"finish_reasons": 5}}, "finish_reasons"),
        ("StepStarted", {"step_index": 2, "decision": {"usage": {"input_tokens": "9"}}}, "usage"),
        ("StepCompleted", {"step_index": 2, "decision": [1]}, "Expected `object`"),
        ("StepCompleted", {"step_index": 2, "calls": [{"error": 5}]}, "Expected `str | null`"),
        ("ToolCallCompleted", {**_POSITION}, "missing required field `result`"),
        ("TaskFailed", {}, "missing required field `error_type`"),
    ],
)
def test_what_does_not_fit_changes_nothing_but_the_head(
    type: str, body: dict[str, Any], why: str
) -> None:
    task = Task()
    task.decided(tools=2)
    task.did("ToolCallCompleted", step_index=0, position=1, result=1)
    task.did("StepCompleted", step_index=1)
    task.did("ValueRecorded", key="k", function="f", value=1)
    before = copy.deepcopy(task.state)
    assert why in task.did(type, **body)
    assert task.state.head.seq == before.head.seq + 1
    assert replace(task.state, head=before.head, offset=before.offset) == before


# --- the rest -------------------------------------------------------------------------------------


def test_the_first_value_counts_and_the_last_result() -> None:
    task = Task()
    task.did("ValueRecorded", key="k", function="f", value=1)
    task.did("ValueRecorded", key="k", function="f", value=2)
    task.did("ResultRecorded", name="n", value=1)
    task.did("ResultRecorded", name="n", value=[2])
    assert decode_value(task.state.values["k"].value) == 1
    assert decode_value(task.state.results["n"]) == [2]


def test_messages_are_unread_until_a_decision_has_seen_them() -> None:
    task = Task()
    one, two, three = (task.message(text) for text in "abc")
    task.put(one, two)
    assert [m.id for m in task.state.unread] == [one.id, two.id]
    task.decided(last_message=two.id)
    task.put(three)
    task.decided(1, last_message=one.id)
    assert [m.id for m in task.state.unread] == [three.id]
    task.decided(2, last_message="nobody's")
    assert [m.id for m in task.state.unread] == [three.id]
    task.did("StepCompleted", step_index=3, decision={}, last_message=three.id)
    assert task.state.unread == []


def test_payloads_kept_elsewhere_are_loaded_when_asked() -> None:
    ref = BlobRef("ab" * 32, 9)
    text = encode_value("long")
    decision = {
        "text": blob_payload(ref),
        "content": blob_payload(ref),
        "tool_calls": [{"tool_name": "x", "arguments": blob_payload(ref)}],
    }
    task = Task()
    task.did("StepStarted", step_index=0, decision=decision)
    read = task.step().decision(lambda r: bytes(text) if r == ref else b"1")
    assert read is not None
    assert (read.text, read.content, read.tool_calls[0].arguments) == ("long", "long", "long")
    unread = task.step().decision()
    assert unread is not None
    assert unread.text == ref  # type: ignore[comparison-overlap]
    assert task.call().arguments == blob_payload(ref)


def test_the_position_is_that_of_the_last_event_that_changed_it() -> None:
    w = Writer("t")
    start, one = w.start(), w.own("StepStarted", step_index=0)
    state = fold([(5, start), (7, one), (9, one)], "t", partition=3)
    assert (state.partition, state.offset) == (3, 7)
    conflict = replace(one, id="other")
    assert fold([(11, conflict)], "t", state=state).offset == 11
    assert fold([(13, conflict)], "t", state=state).offset == 11
