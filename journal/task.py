"""An open task: steps, durable functions, messages, results, and its end.

Knows the owner's pipeline and the state; knows nothing of how the task was found (connect).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from journal import events as ev
from journal.blobs import BlobStore
from journal.codec import decode_value, digest_value, encode
from journal.errors import ReplayDiverged, TaskEnded, UsageError
from journal.events import Decision
from journal.ids import new_id
from journal.messages import messages
from journal.owner import Owner
from journal.payloads import decision_payload, outcome_payloads, payload, type_name
from journal.state import COMPLETED, Message, TaskState
from journal.state import Step as StepState
from journal.step import Step
from journal.tools import run_function


class Resumed(msgspec.Struct, frozen=True):
    """What a resumption saved."""

    task_id: str
    step_index: int
    steps_reused: int
    tokens_reused: int

    def __str__(self) -> str:
        return (
            f"Resuming {self.task_id} at step {self.step_index}: {self.steps_reused} steps and "
            f"{self.tokens_reused:,} tokens reused"
        )


class Task:
    """A task that this process owns, or (`running` is False) one that has ended."""

    def __init__(
        self, state: TaskState, owner: Owner | None, blobs: BlobStore, resumed: Resumed | None
    ) -> None:
        self.state = state
        self.blobs = blobs
        self.resumed = resumed
        self._owner = owner
        self._live: set[int] = set()
        self._handed: set[str] = set()
        self._occurrences: dict[str, int] = {}
        self._running_functions = 0

    @property
    def owner(self) -> Owner:
        """The pipeline. Raises `TaskEnded`, or `TaskFenced` as soon as that is known."""
        self.check()
        if self._owner is None:
            raise TaskEnded(f"task {self.state.task_id} has ended ({self.state.status})")
        return self._owner

    @property
    def id(self) -> str:
        return self.state.task_id

    def check(self) -> None:
        """Raise what has ended this worker's ownership, if anything has: from then on the state
        goes on with another worker's events, which are no answer to this one."""
        if self._owner is not None and self._owner.dead is not None:
            raise self._owner.dead

    @property
    def running(self) -> bool:
        """Whether there is more to do. Raises `TaskFenced` once another worker has claimed."""
        if self._owner is not None and self._owner.dead is not None and self.state.running:
            raise self._owner.dead
        return self.state.running and self._owner is not None

    @property
    def status(self) -> str:
        return self.state.status

    @property
    def final_answer(self) -> Any:
        return decode_value(self.state.final_answer, self.blobs.get)

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
        while index in self._live or self.completed(index):
            index += 1
        self._live.add(index)
        return Step(self, index)

    def leave(self, index: int) -> None:
        """A step's context has ended."""
        self._live.discard(index)

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
        if step_index < 0:
            raise UsageError("a step index counts from 0")
        if len(results) > len(made.tool_calls):
            raise UsageError(f"step {step_index}: more results than tool calls in the decision")
        body = ev.StepCompleted(
            step_index,
            decision=await decision_payload(made, self.blobs),
            calls=await outcome_payloads(results, self.blobs),
            last_message=next(reversed(self.state.messages_received), None),
            started_at=started_at,
            completed_at=completed_at,
        )
        self.check()
        done = self.completed(step_index)
        if done is None:
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

    # --- durable functions ------------------------------------------------------------------------

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function once; replay its recorded value after that. See `run_as` for a key."""
        name = getattr(function, "__qualname__", type(function).__qualname__)
        if self._running_functions:
            raise UsageError(f"{name}: functions at the same time need a key: task.run_as(key, …)")
        digest = digest_value([list(args), kwargs])
        place = f"{name}:{digest}"
        nth = self._occurrences[place] = self._occurrences.get(place, 0) + 1
        self._running_functions += 1
        try:
            return await self._value(f"{place}:{nth}", name, digest, function, args, kwargs)
        finally:
            self._running_functions -= 1

    async def run_as(
        self, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Like `run`, known by `key` within the task."""
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return await self._value(
            f"key:{key}", name, digest_value([list(args), kwargs]), function, args, kwargs
        )

    async def _value(
        self,
        key: str,
        name: str,
        digest: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        self.check()
        known = self.state.values.get(key)
        if known is not None:
            if (known.function, known.arguments_digest) != (name, digest):
                raise ReplayDiverged(
                    f"task {self.id}: {key} is recorded of {known.function} with arguments "
                    f"{known.arguments_digest}, now it is {name} with {digest}"
                )
            return decode_value(known.value, self.blobs.get)
        raw = await payload(await run_function(function, args, kwargs), self.blobs)
        await self.owner.append("ValueRecorded", ev.ValueRecorded(key, name, raw, digest))
        return decode_value(self.state.values[key].value, self.blobs.get)

    # --- messages ---------------------------------------------------------------------------------

    async def receive(self, content: Any, role: str = "user", *, id: str | None = None) -> str:
        """Record a message from outside before anything acts on it; returns its id. The same
        `id` again changes nothing."""
        id = id or new_id()
        if id not in self.state.messages_received:
            body = ev.MessageReceived(role, await payload(content, self.blobs))
            await self.owner.receive(id, body)
        return id

    async def next_message(self) -> Message:
        """The oldest message that no decision has seen and that was not handed out here
        before; waits for one."""
        with self.owner.watching():
            while self.running:
                for message in self.state.unread:
                    if message.id not in self._handed:
                        self._handed.add(message.id)
                        return message
                await self.owner.change()
        raise TaskEnded(f"task {self.id} has ended ({self.status})")

    # --- results and ends -------------------------------------------------------------------------

    async def set_result(self, name: str, value: Any) -> None:
        """Set one entry of the task's accumulated results."""
        raw = await payload(value, self.blobs)
        if self.state.results.get(name) is None or _plain(self.state.results[name]) != _plain(raw):
            await self.owner.append("ResultRecorded", ev.ResultRecorded(name, raw))

    async def complete(self, final_answer: Any = None) -> None:
        """End the task well; in an open step this completes the step too."""
        open_steps = [i for i in self._live if i in self.state.steps]
        body = ev.TaskCompleted(
            await payload(final_answer, self.blobs),
            open_steps[0] if len(open_steps) == 1 else None,
        )
        await self.owner.append("TaskCompleted", body)

    async def fail(self, error: BaseException | str, *, error_type: str | None = None) -> None:
        """End the task badly; `journal retry` reopens it."""
        kind = error_type or ("Error" if isinstance(error, str) else type_name(error))
        await self.owner.append("TaskFailed", ev.TaskFailed(kind, str(error)))


def _plain(raw: Any) -> Any:
    return None if raw is None else msgspec.json.decode(bytes(raw))


def _content(outcome: ev.CallOutcome) -> Any:
    result = ev.given(outcome.result)
    return (_plain(result), outcome.error, outcome.error_type)


def _short(value: Any) -> str:
    text = encode(value).decode()
    return text if len(text) <= 200 else text[:200] + "…"
