"""What anybody may tell a task that another process owns, or nobody: a message, an answer, a stop.

Each is one event, read back, so that whoever sends it knows what became of it. Knows tasks by
id and their state; claims nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from journal import events as ev
from journal.acceptance import DUPLICATE, STALE
from journal.errors import TaskEnded, TaskNotFound, UsageError
from journal.payloads import clean, payload
from journal.state import TaskState, Wait
from journal.values import decode_value

if TYPE_CHECKING:
    from journal.client import Journal


async def send(
    j: Journal, task_id: str, content: Any, role: str, id: str | None, traceparent: str | None
) -> str:
    """See `Journal.send`."""
    body = ev.MessageReceived(role, await payload(content, j.blobs))
    async with j.outside(task_id, traceparent) as owner:
        _there(j, owner.state)
        before = set(owner.state.messages_received)
        verdict = await owner.put("MessageReceived", body, id=id)
        if verdict.label == STALE:
            raise TaskEnded(f"task {task_id} ended, and was begun anew, at this moment; send again")
        return id or next(i for i in owner.state.messages_received if i not in before)


async def answer(
    j: Journal,
    task_id: str,
    value: Any,
    key: str | None,
    answered_by: str | None,
    traceparent: str | None,
) -> TaskState:
    """See `Journal.answer`."""
    async with j.outside(task_id, traceparent) as owner:
        state = _there(j, owner.state)
        wait = _asked(state, key)
        raw = await payload(value, j.blobs)
        # The value as it will be read, which is also all of it that an error may show.
        _check(wait, decode_value(raw, j.blobs.get), j)
        body = ev.InputReceived(raw, answered_by)
        verdict = await owner.put("InputReceived", body, ref=wait.id)
        if verdict.label == STALE:
            raise UsageError(f"task {task_id}: {_name(wait)} was answered, or timed out, before")
        return state


async def cancel(
    j: Journal, task_id: str, reason: str | None, traceparent: str | None
) -> TaskState:
    """See `Journal.cancel`."""
    async with j.outside(task_id, traceparent) as owner:
        state = _there(j, owner.state)
        why = None if reason is None else clean(reason, j.blobs)
        verdict = await owner.put("CancelRequested", ev.CancelRequested(why))
        if verdict.label not in ("", DUPLICATE):
            raise TaskEnded(f"task {task_id} ended, and was begun anew, at this moment")
        return state


def _there(j: Journal, state: TaskState) -> TaskState:
    if not state.exists:
        raise TaskNotFound(f"no task {state.task_id} in {j.url}; journal tasks lists them")
    if not state.running:
        raise TaskEnded(f"task {state.task_id} has ended ({state.status})")
    return state


def _asked(state: TaskState, key: str | None) -> Wait:
    asked = [wait for wait in state.pending if wait.question is not None]
    if key is not None:
        asked = [wait for wait in asked if key in (wait.key, _name(wait), wait.id)]
    if len(asked) == 1:
        return asked[0]
    names = ", ".join(_name(w) for w in state.pending if w.question is not None)
    if not names:
        raise UsageError(f"task {state.task_id} asks for nothing; it is {state.status}")
    raise UsageError(f"task {state.task_id} asks for: {names}; name one of them with its key")


def _name(wait: Wait) -> str:
    return wait.key.removeprefix("=")


def _check(wait: Wait, value: Any, j: Journal) -> None:
    """Hold an answer against the JSON Schema that was asked with. Raises `UsageError`."""
    if wait.schema is None:
        return
    import jsonschema

    try:
        jsonschema.validate(value, decode_value(wait.schema, j.blobs.get))
    except jsonschema.ValidationError as error:
        raise UsageError(f"{_name(wait)}: {error.json_path}: {error.message}") from None
    except jsonschema.SchemaError as error:
        raise UsageError(f"{_name(wait)}: its schema is none: {error.message}") from None
