"""How events about sub-tasks, requests, timers and cancelling change a task's state.

The part of `evolve` that is about what a task waits for; the same rules hold. Whether the task
waits, and whether a request to cancel ends it, has been decided by acceptance, from envelopes.
"""

from __future__ import annotations

from journal import events as ev
from journal.acceptance import CANCELLED
from journal.events import Envelope, given
from journal.state import (
    COMPLETED,
    FAILED,
    FIRED,
    PENDING,
    RECEIVED,
    STARTED,
    Subtask,
    TaskState,
    Wait,
)


def subtask_started(s: TaskState, e: Envelope, b: ev.SubtaskStarted) -> str | None:
    if b.name in s.subtasks:
        return f"sub-task {b.name} is started already"
    s.subtasks[b.name] = Subtask(e.id, b.name, b.child_task_id, b.function, b.arguments_digest)
    s.updated_at = e.at
    return None


def subtask_completed(s: TaskState, e: Envelope, b: ev.SubtaskCompleted) -> str | None:
    subtask = s.subtasks.get(b.name)
    if subtask is None or subtask.id != e.ref:
        return f"no sub-task {b.name} was started by that event"
    if subtask.status != STARTED:
        return f"sub-task {b.name} is {subtask.status} already"
    if b.status not in _SUBTASK_ENDS:
        return f"a sub-task ends as {', '.join(_SUBTASK_ENDS)}, not {b.status}"
    subtask.status, subtask.result = b.status, given(b.result)
    subtask.error_type, subtask.error = b.error_type, b.error
    s.updated_at = e.at
    return None


_SUBTASK_ENDS = (COMPLETED, FAILED, CANCELLED)


def input_requested(s: TaskState, e: Envelope, b: ev.InputRequested) -> str | None:
    return _wait(s, e, Wait(e.id, b.key, b.question, given(b.schema), b.expires_at))


def timer_set(s: TaskState, e: Envelope, b: ev.TimerSet) -> str | None:
    return _wait(s, e, Wait(e.id, b.key, until=b.fires_at))


def _wait(s: TaskState, e: Envelope, wait: Wait) -> str | None:
    if wait.key in s.waits:
        return f"{wait.key} is waited for already"
    s.waits[wait.key] = wait
    s.updated_at = e.at
    _maybe_cancelled(s, e)
    return None


def _maybe_cancelled(s: TaskState, e: Envelope) -> None:
    """What waits, and is to be cancelled, ends by either event; acceptance has said so."""
    if s.head.status == CANCELLED:
        s.error, s.ended_at = s.cancel_reason, e.at


def _pending(s: TaskState, e: Envelope) -> Wait | None:
    return next((w for w in s.waits.values() if w.id == e.ref and w.status == PENDING), None)


def timer_fired(s: TaskState, e: Envelope, b: ev.TimerFired) -> str | None:
    wait = _pending(s, e)
    if wait is None:
        return "nothing is waited for under that event"
    wait.status = FIRED
    s.updated_at = e.at
    return None


def input_received(s: TaskState, e: Envelope, b: ev.InputReceived) -> str | None:
    wait = _pending(s, e)
    if wait is None:
        return "no input is waited for under that event"
    wait.status, wait.value, wait.answered_by = RECEIVED, b.value, b.answered_by
    s.updated_at = e.at
    return None


def cancel_requested(s: TaskState, e: Envelope, b: ev.CancelRequested) -> str | None:
    s.cancel_reason = b.reason
    s.updated_at = e.at
    _maybe_cancelled(s, e)
    return None
