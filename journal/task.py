"""An open task: steps, durable functions, messages, results, and its end.

Knows the owner's pipeline and the state; knows nothing of how the task was found (connect). Whether
it may go on is told by `owned`.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from journal import events as ev
from journal.blobs import BlobStore
from journal.claims import Resumed
from journal.declared import fit, json_schema, schema_type
from journal.durable import Durable, TaskOptions
from journal.errors import ReplayDiverged, TaskEnded, UsageError
from journal.events import Decision
from journal.ids import new_id
from journal.messages import messages
from journal.owned import Owned
from journal.owner import Owner
from journal.payloads import clean, decision_payload, outcome_payloads, payload, type_name
from journal.state import COMPLETED, Message, TaskState
from journal.state import Step as StepState
from journal.step import Step
from journal.subtasks import Children, Opener
from journal.values import decode_value, encode, loads
from journal.waits import Until, ask, sleep

if TYPE_CHECKING:
    from journal.spans import TaskSpans


class Task(Owned):
    """A task that this process owns, or (`running` is False) one that has ended."""

    def __init__(
        self,
        state: TaskState,
        owner: Owner | None,
        blobs: BlobStore,
        resumed: Resumed | None,
        opener: Opener,
        spans: TaskSpans | None = None,
    ) -> None:
        super().__init__(state, owner)
        self.blobs = blobs
        self.resumed = resumed
        self.spans = spans
        self._live: set[int] = set()
        self._ending: set[int] = set()
        self._handed: set[str] = set()
        self.durable = Durable(self)
        self._children = Children(self, opener)

    @property
    def final_answer(self) -> Any:
        return decode_value(self.state.final_answer, self.blobs.get)

    @property
    def last_message(self) -> str | None:
        """The id of the last message received."""
        received = self.state.messages_received
        return next(reversed(received)) if received else None

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context of the calling code, for a request's header; None without one."""
        if self._owner is None:
            return self.state.traceparent
        return self._owner.traceparent if self.spans is None else self.spans.current()

    def completed(self, index: int) -> StepState | None:
        """The recorded step of this index if it is completed, else None."""
        step = self.state.steps.get(index)
        return step if step is not None and step.status == COMPLETED else None

    def messages(self, style: str = "openai") -> list[dict[str, Any]]:
        """The history for a model: `openai`, `anthropic` or `plain`."""
        return messages(self.state, style, self.blobs.get)

    # --- steps ----------------------------------------------------------------------------------

    def step(self) -> Step:
        """The next step: the lowest that is neither completed nor running here."""
        index = self.state.current_step
        while index in self._live or index in self._ending or self.completed(index):
            index += 1
        self._live.add(index)
        return Step(self, index)

    def ends(self, index: int) -> None:
        """A step's context ends. Until that is accepted, its index is no other step's."""
        self._live.discard(index)
        self._ending.add(index)

    def leave(self, index: int) -> None:
        """A step's context has ended."""
        self._live.discard(index)
        self._ending.discard(index)

    async def record_step(
        self,
        step_index: int,
        decision: Decision | str,
        results: Sequence[Any] = (),
        *,
        started_at: str | None = None,
        completed_at: str | None = None,
    ) -> StepState:
        """Record a step that is already done: its decision, and for each of its tool calls a
        result, or an exception.

        Recording a completed index again returns what is recorded if the content (times apart)
        is equal; else it raises `ReplayDiverged`.
        """
        made = Decision(text=decision) if isinstance(decision, str) else decision
        if type(step_index) is not int or step_index < 0:
            raise UsageError("a step index is a whole number, from 0 on")
        for at in (started_at, completed_at):
            if at is not None and not isinstance(at, str):
                raise UsageError("a time is a text, such as 2026-12-01T09:15:00Z")
        if len(results) > len(made.tool_calls):
            raise UsageError(f"step {step_index}: more results than tool calls in the decision")
        body = ev.StepCompleted(
            step_index,
            decision=await decision_payload(made, self.blobs),
            calls=await outcome_payloads(results, self.blobs),
            last_message=self.last_message,
            started_at=started_at,
            completed_at=completed_at,
        )
        done = self.completed(step_index)
        if done is not None:
            self.check()
        else:
            verdict = await self.owner.append("StepCompleted", body)
            done = self.state.steps[step_index]
            if not verdict.label:
                return done
        recorded = (_plain(done.raw_decision), [_content(c) for c in done.outcomes or []])
        now = (_plain(body.decision), [_content(c) for c in body.calls or []])
        if recorded != now:
            raise ReplayDiverged(
                f"task {self.id}: step {step_index} is recorded as {_short(recorded)}, "
                f"now it would be {_short(now)}"
            )
        return done

    # --- durable calls ----------------------------------------------------------------------------

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function, sync or async, once; replay its recorded value after that, as the
        type that the function says it returns (docs/values.md).

        A call is known by scope, function, digest of the arguments and occurrence. A step is a
        scope, and so are a function that runs here, each call of `gather`, and `scope(name)`.
        A tool is given its key and its retries. An exception is recorded nowhere. Raises
        `UsageError` where another call runs in the same scope, `ReplayDiverged`, `ValueRefused`.
        """
        return await self.durable.run(None, function, args, kwargs)

    def options(self, *, key: str) -> TaskOptions:
        """How the next durable call is made: `key` names it within the task, whatever its scope."""
        return TaskOptions(self.durable, key)

    def scope(self, name: str) -> contextlib.AbstractContextManager[None]:
        """A scope of its own for durable calls that run beside others."""
        return self.durable.inside(name)

    async def gather(
        self, *calls: Awaitable[Any], limit: int | None = None, policy: str = "fail_fast"
    ) -> list[Any]:
        """Run calls at the same time, at most `limit` of them, each in a scope of its own.

        `fail_fast` stops the others at the first exception and raises it; `collect` returns
        exceptions in their places. Raises `UsageError`.
        """
        return await self.durable.gather(calls, limit, policy)

    async def now(self) -> datetime:
        """The time, UTC, at which this was first asked for here."""
        return await self.durable.now()

    async def random(self) -> float:
        """A number from 0 to 1, the one that was first drawn here."""
        return await self.durable.random()

    async def uuid(self) -> uuid.UUID:
        """A random UUID, the one that was first made here."""
        return await self.durable.uuid()

    # --- sub-tasks and waiting --------------------------------------------------------------------

    async def cancel_children(self, reason: str | None) -> None:
        await self._children.cancel(reason)

    async def subtask(
        self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Run a task of this task, `parent's id:name`; returns its final answer, as the type that
        `function` says it returns (docs/values.md).

        It is called with the child, an open task, and the arguments. What it returns completes
        the child, unless it has done so itself. A recorded result is returned, a child that has
        not ended is resumed. Raises `SubtaskFailed`; `ReplayDiverged` where the name is recorded
        of something else; `ValueRefused`, and then the child has not ended.
        """
        return await self._children.run(name, function, args, kwargs)

    async def ask(
        self,
        question: Any,
        *,
        schema: Any = None,
        timeout: Until | None = None,
        key: str | None = None,
    ) -> Any:
        """Wait for somebody's answer (`journal answer`, `Journal.answer`), across restarts.

        schema   a JSON Schema, or a type, that answers are held against; one comes back as the type
        timeout  seconds, a `timedelta`, or a `datetime` with its zone; counted from the first
                 time that this is asked
        key      names the request within the task; by default its question and occurrence do

        Raises `AskTimedOut`, and `ValueRefused` for what the schema lets through and the type
        does not. Of an answer and the time-out the first in the log counts.
        """
        answer = await ask(self, question, json_schema(schema), timeout, key)
        return fit(answer, schema_type(schema))

    async def sleep(self, until: Until, *, key: str | None = None) -> None:
        """Wait for a time, across restarts: seconds, a `timedelta`, or a `datetime` with its zone.
        Seconds count from the first time that this is asked for."""
        await sleep(self, until, key)

    # --- messages ---------------------------------------------------------------------------------

    async def receive(self, content: Any, role: str = "user", *, id: str | None = None) -> str:
        """Record a message from outside before anything acts on it; returns its id. The same
        `id` again changes nothing."""
        id = _id(id) if id else new_id()
        if id not in self.state.messages_received:
            body = ev.MessageReceived(role, await payload(content, self.blobs))
            await self.owner.put("MessageReceived", body, id=id)
        return id

    async def next_message(self) -> Message:
        """The oldest message that no decision has seen and that was not handed out here
        before; waits for one."""
        with self.owner.watching():
            while True:
                await self.ready()
                if not self.running:
                    break
                for message in self.state.unread:
                    if message.id not in self._handed:
                        self._handed.add(message.id)
                        return message
                await self.owner.change()
        raise self.ended()

    # --- results and ends -------------------------------------------------------------------------

    async def set_result(self, name: str, value: Any) -> None:
        """Set one entry of the task's accumulated results."""
        raw = await payload(value, self.blobs)
        if self.state.results.get(name) is None or _plain(self.state.results[name]) != _plain(raw):
            await self.owner.append("ResultRecorded", ev.ResultRecorded(name, raw))

    async def complete(self, final_answer: Any = None) -> None:
        """End the task well; in an open step this completes the step too.

        Completing it once more with an equal answer changes nothing, so that a call whose outcome
        was unknown can be made again.
        """
        answer = await payload(final_answer, self.blobs)
        open_steps = [i for i in self._live if i in self.state.steps]
        body = ev.TaskCompleted(answer, open_steps[0] if len(open_steps) == 1 else None)
        try:
            await self.owner.append("TaskCompleted", body)
        except TaskEnded:
            if self.status != COMPLETED or _plain(self.state.final_answer) != _plain(answer):
                raise

    async def fail(self, error: BaseException | str, *, error_type: str | None = None) -> None:
        """End the task badly; `journal retry` reopens it."""
        kind = error_type or ("Error" if isinstance(error, str) else type_name(error))
        await self.owner.append("TaskFailed", ev.TaskFailed(kind, clean(error, self.blobs)))


def _id(id: str) -> str:
    if not isinstance(id, str) or not id.isprintable():
        raise UsageError(f"a message's id is a text that can be printed, not {id!r}")
    return id


def _plain(raw: Any) -> Any:
    return None if raw is None else loads(raw)


def _content(outcome: ev.CallOutcome) -> Any:
    result = ev.given(outcome.result)
    return (_plain(result), outcome.error, outcome.error_type)


def _short(value: Any) -> str:
    text = encode(value).decode()
    return text if len(text) <= 200 else text[:200] + "…"
