"""What an open task waits for: a person's answer, a time. Both survive restarts.

Each is an event when it begins and an event when it ends; between the two the task is waiting,
in whichever process. Knows the owner's pipeline and scopes; knows nothing of who answers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from journal import events as ev
from journal import ids
from journal.errors import AskTimedOut, UsageError
from journal.payloads import payload
from journal.state import FIRED, PENDING, Wait
from journal.values import decode_value, digest_value

if TYPE_CHECKING:
    from journal.task import Task

_LOOK_S = 60.0
"""The clock is looked at so often: it may be set, and a machine may sleep."""

Until = datetime | timedelta | float


async def ask(
    task: Task, question: Any, schema: Any, timeout: Until | None, key: str | None
) -> Any:
    """See `Task.ask`."""
    body = ev.InputRequested(
        "",
        await payload(question, task.blobs),
        ev.ABSENT if schema is None else await payload(schema, task.blobs),
        None if timeout is None else _text(_moment(timeout)),
    )
    wait = await _waited(task, "InputRequested", body, f"ask:{digest_value(question)}", key)
    if wait.status == FIRED:
        raise AskTimedOut(f"task {task.id}: nobody answered by {wait.until}", wait.key)
    return decode_value(wait.value, task.blobs.get)


async def sleep(task: Task, until: Until, key: str | None) -> None:
    """See `Task.sleep`."""
    body = ev.TimerSet("", _text(_moment(until)))
    await _waited(task, "TimerSet", body, "sleep", key)


async def _waited(
    task: Task, type: str, body: ev.InputRequested | ev.TimerSet, name: str, key: str | None
) -> Wait:
    await task.ready()
    if key is not None:
        return await _closed(task, type, body, f"={key}")
    here = task.durable.scope
    place = here.place(name)
    with here.alone(name.partition(":")[0]):
        wait = await _closed(task, type, body, place)
        here.passed(name)
        return wait


async def _closed(task: Task, type: str, body: ev.InputRequested | ev.TimerSet, place: str) -> Wait:
    """The wait of this key once it is over, begun where it is not."""
    state, owner = task.state, task.owner
    if place not in state.waits:
        body.key = place
        await owner.append(type, body)
    with owner.watching():
        while (wait := state.waits[place]).status == PENDING:
            await task.ready()
            if state.waits[place].status != PENDING:
                # What was unknown has been settled, and meanwhile it was answered.
                continue
            if not task.running:
                raise task.ended()
            left = None if wait.until is None else _seconds_until(wait.until)
            if left is not None and left <= 0:
                # Where an answer has come first, the log says so, and this changes nothing.
                await owner.append("TimerFired", ev.TimerFired(), ref=wait.id, read_back=True)
                continue
            await owner.change(_LOOK_S if left is None else min(left, _LOOK_S))
    return wait


def _moment(until: Until) -> datetime:
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise UsageError(f"{until} names no time zone; give one, such as datetime.UTC")
        return until
    return ids.now() + (until if isinstance(until, timedelta) else timedelta(seconds=until))


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds_until(text: str) -> float:
    return (datetime.fromisoformat(text) - ids.now()).total_seconds()
