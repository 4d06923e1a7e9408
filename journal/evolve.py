"""How one accepted event changes the state of its task.

`evolve` is total: an event that does not fit changes nothing and says why. It sees current
bodies only (upcasters) and accepted events only (acceptance). Pure; no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from journal import events as ev
from journal import evolve_waits as waits
from journal.events import DecisionHead, Envelope, Usage, given
from journal.state import (
    COMPLETED,
    FAILED,
    OPEN,
    PENDING,
    STARTED,
    UNCERTAIN,
    Call,
    Message,
    Step,
    TaskState,
)

_decision_head = msgspec.json.Decoder(DecisionHead)


def evolve(state: TaskState, event: Envelope, body: Struct) -> str | None:
    """Change the state by one accepted event's body. Returns None, or why it does not fit (it
    has then changed nothing; the first one counts)."""
    return _EVOLVE[type(body)](state, event, body)


def _task_started(s: TaskState, e: Envelope, b: ev.TaskStarted) -> str | None:
    s.description = b.description
    s.agent_name = b.agent_name
    s.worker = b.worker
    s.parent_task_id = b.parent_task_id
    s.conversation_id = b.conversation_id
    s.imported_from = b.imported_from
    s.traceparent = e.traceparent
    s.started_at = s.updated_at = b.started_at or e.at
    return None


def _task_claimed(s: TaskState, e: Envelope, b: ev.TaskClaimed) -> str | None:
    s.worker = b.worker
    s.agent_name = b.agent_name or s.agent_name
    s.imported_from = b.imported_from
    s.traceparent = e.traceparent or s.traceparent
    _lose_calls(s, set(b.running))
    s.updated_at = e.at
    return None


def _lose_calls(s: TaskState, still: set[tuple[int, int]]) -> None:
    """The worker before is gone, and with it the calls that it ran, but for those of `still`."""
    for step in s.steps.values():
        if step.status == COMPLETED:
            continue
        for call in (step.calls or {}).values():
            lost = call.status == STARTED and (step.index, call.position) not in still
            if lost and call.effect == "once":
                call.status = UNCERTAIN


def _task_reopened(s: TaskState, e: Envelope, b: ev.TaskReopened) -> str | None:
    s.worker = b.worker
    s.error = s.error_type = s.ended_at = s.cancel_reason = None
    s.run_epoch = e.epoch or 0
    s.traceparent = e.traceparent or s.traceparent
    s.waits = {key: wait for key, wait in s.waits.items() if wait.status != PENDING}
    for subtask in s.subtasks.values():
        if subtask.status == FAILED:
            subtask.status, subtask.error, subtask.error_type = STARTED, None, None
    _lose_calls(s, set())
    s.updated_at = e.at
    return None


def _step_started(s: TaskState, e: Envelope, b: ev.StepStarted) -> str | None:
    step = s.steps.get(b.step_index)
    if step is not None and (step.status == COMPLETED or step.raw_decision is not None):
        return f"step {b.step_index} has a decision already"
    if b.step_index < 0:
        return "a step index counts from 0"
    calls: dict[int, Call] = {}
    usage = None
    decision = given(b.decision)
    if decision is not None:
        head = _decision_head.decode(decision)
        usage = head.usage
        for position, asked in enumerate(head.tool_calls):
            calls[position] = Call(position, asked.name, asked.id)
    if step is None:
        step = s.steps[b.step_index] = Step(b.step_index)
    _resumed(step)
    step.raw_decision = decision
    step.calls = calls
    step.last_message = b.last_message
    step.started_at = s.updated_at = b.started_at or e.at
    _count(s, step, usage)
    return None


def _count(s: TaskState, step: Step, usage: Usage | None) -> None:
    if usage is not None:
        if usage.input_tokens or usage.output_tokens:
            usage.total_tokens = 0  # the total is input plus output, whatever was reported
        step.usage = usage
        s.usage.add(usage)


def _resumed(step: Step) -> None:
    """Something happens in a step whose last attempt failed: this is the next attempt."""
    if step.status == FAILED:
        step.status = OPEN
        step.attempt += 1
        step.error = step.error_type = None


def _open_call(s: TaskState, index: int, position: int) -> tuple[Step, Call] | str:
    step = s.steps.get(index)
    if step is None or step.status == COMPLETED:
        return f"step {index} is not open"
    call = (step.calls or {}).get(position)
    if call is None:
        return f"step {index} has no call {position}"
    if call.finished:
        return f"call {position} of step {index} is finished"
    return step, call


def _call_started(s: TaskState, e: Envelope, b: ev.ToolCallStarted) -> str | None:
    step = s.steps.get(b.step_index)
    if step is None or step.status == COMPLETED:
        return f"step {b.step_index} is not open"
    if step.calls is None:
        step.calls = {}
    call = step.calls.get(b.position)
    if call is not None and call.finished:
        return f"call {b.position} of step {b.step_index} is finished"
    if b.position < 0:
        return "a call's position counts from 0"
    _resumed(step)
    if call is None:
        call = step.calls[b.position] = Call(b.position, b.tool_name)
    call.tool_name = b.tool_name
    call.tool_call_id = b.tool_call_id or call.tool_call_id
    call.status = STARTED
    call.starts += 1
    call.attempt = step.attempt
    call.effect = b.effect
    call.arguments_digest = b.arguments_digest
    call.arguments = given(b.arguments) or call.arguments
    call.started_at = s.updated_at = b.started_at or e.at
    return None


def _call_completed(s: TaskState, e: Envelope, b: ev.ToolCallCompleted) -> str | None:
    found = _open_call(s, b.step_index, b.position)
    if isinstance(found, str):
        return found
    step, call = found
    _resumed(step)
    call.status = COMPLETED
    call.result = b.result
    call.error = call.error_type = None
    call.completed_at = s.updated_at = b.completed_at or e.at
    return None


def _call_failed(s: TaskState, e: Envelope, b: ev.ToolCallFailed) -> str | None:
    found = _open_call(s, b.step_index, b.position)
    if isinstance(found, str):
        return found
    step, call = found
    _resumed(step)
    call.failures += 1
    call.status = FAILED if b.final else PENDING
    call.error_type, call.error = b.error_type, b.error
    call.completed_at = s.updated_at = b.completed_at or e.at
    return None


def _call_resolved(s: TaskState, e: Envelope, b: ev.CallResolved) -> str | None:
    found = _open_call(s, b.step_index, b.position)
    if isinstance(found, str):
        return found
    _, call = found
    # Whether one that was begun is uncertain, its tool says, which may be declared otherwise than
    # when it began; an imported call had none.
    if call.status not in (UNCERTAIN, STARTED):
        return f"call {b.position} of step {b.step_index} is not uncertain"
    if b.run_again:
        call.status = PENDING
    elif b.error is not None:
        call.status, call.error, call.error_type = FAILED, b.error, b.error_type
    else:
        call.status, call.result = COMPLETED, given(b.result) or Raw(b"null")
        call.error = call.error_type = None
    s.updated_at = e.at
    if call.finished:
        call.completed_at = e.at
    return None


def _complete(s: TaskState, step: Step, at: str | None) -> None:
    _resumed(step)
    step.status = COMPLETED
    step.completed_at = at
    if step.index != s.current_step:
        return
    s.current_step += 1
    while (here := s.steps.get(s.current_step)) is not None and here.status == COMPLETED:
        s.current_step += 1


def _step_completed(s: TaskState, e: Envelope, b: ev.StepCompleted) -> str | None:
    step = s.steps.get(b.step_index)
    if step is not None and step.status == COMPLETED:
        return f"step {b.step_index} is completed already"
    if b.step_index < 0:
        return "a step index counts from 0"
    decision = given(b.decision)
    usage = None if decision is None else _decision_head.decode(decision).usage
    at = b.completed_at or e.at
    if step is None:
        step = s.steps[b.step_index] = Step(b.step_index)
    if step.raw_decision is None and decision is not None:
        step.raw_decision = decision
        step.last_message = b.last_message
        _count(s, step, usage)
    if b.calls is not None:
        step.outcomes = b.calls
    step.started_at = step.started_at or b.started_at or at
    s.updated_at = at
    _complete(s, step, at)
    return None


def _step_failed(s: TaskState, e: Envelope, b: ev.StepFailed) -> str | None:
    step = s.steps.get(b.step_index)
    if step is not None and step.status == COMPLETED:
        return f"step {b.step_index} is completed already"
    if b.step_index < 0:
        return "a step index counts from 0"
    s.updated_at = b.completed_at or e.at
    if step is None:
        step = s.steps[b.step_index] = Step(b.step_index, started_at=s.updated_at)
    _resumed(step)
    step.status = FAILED
    step.error_type, step.error = b.error_type, b.error
    for call in (step.calls or {}).values():
        # The next attempt keeps what is completed and tries again what is not, but for an
        # effect that must not happen twice.
        if call.status == FAILED and call.effect != "once":
            call.status = PENDING
    return None


def _value_recorded(s: TaskState, e: Envelope, b: ev.ValueRecorded) -> str | None:
    if b.key in s.values:
        return f"value {b.key} is recorded already"
    s.values[b.key] = b
    s.updated_at = e.at
    return None


def _result_recorded(s: TaskState, e: Envelope, b: ev.ResultRecorded) -> str | None:
    s.results[b.name] = b.value
    s.updated_at = e.at
    return None


def _task_completed(s: TaskState, e: Envelope, b: ev.TaskCompleted) -> str | None:
    at = b.completed_at or e.at
    if b.step_index is not None:
        step = s.steps.get(b.step_index)
        if step is None or step.status == COMPLETED:
            return f"step {b.step_index} is not open"
        _complete(s, step, at)
    s.final_answer = given(b.final_answer)
    s.ended_at = s.updated_at = at
    return None


def _task_failed(s: TaskState, e: Envelope, b: ev.TaskFailed) -> str | None:
    s.error_type, s.error = b.error_type, b.error
    s.ended_at = s.updated_at = b.completed_at or e.at
    return None


def _task_cancelled(s: TaskState, e: Envelope, b: ev.TaskCancelled) -> str | None:
    s.error = b.reason
    s.ended_at = s.updated_at = b.completed_at or e.at
    return None


def _message_received(s: TaskState, e: Envelope, b: ev.MessageReceived) -> str | None:
    s.messages_received[e.id] = Message(
        e.id, b.role, b.content, b.name, b.tool_call_id, b.received_at or e.at
    )
    s.updated_at = b.received_at or e.at
    return None


_EVOLVE: Final[dict[type[Struct], Callable[[TaskState, Envelope, Any], str | None]]] = {
    ev.TaskStarted: _task_started,
    ev.TaskClaimed: _task_claimed,
    ev.TaskReopened: _task_reopened,
    ev.StepStarted: _step_started,
    ev.ToolCallStarted: _call_started,
    ev.ToolCallCompleted: _call_completed,
    ev.ToolCallFailed: _call_failed,
    ev.CallResolved: _call_resolved,
    ev.StepCompleted: _step_completed,
    ev.StepFailed: _step_failed,
    ev.ValueRecorded: _value_recorded,
    ev.ResultRecorded: _result_recorded,
    ev.SubtaskStarted: waits.subtask_started,
    ev.SubtaskCompleted: waits.subtask_completed,
    ev.InputRequested: waits.input_requested,
    ev.TimerSet: waits.timer_set,
    ev.TimerFired: waits.timer_fired,
    ev.InputReceived: waits.input_received,
    ev.CancelRequested: waits.cancel_requested,
    ev.TaskCompleted: _task_completed,
    ev.TaskFailed: _task_failed,
    ev.TaskCancelled: _task_cancelled,
    ev.MessageReceived: _message_received,
}
