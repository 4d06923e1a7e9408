"""One open step: the model's decision and its tool calls, each recorded, none repeated.

Knows the owner's pipeline, tools and payloads; knows nothing of how a task is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from journal import events as ev
from journal.codec import decode_value, digest_value
from journal.errors import CallUncertain, JournalError, ReplayDiverged, ToolError, UsageError
from journal.events import Decision
from journal.payloads import decision_payload, payload, type_name
from journal.replies import as_decision
from journal.state import COMPLETED, FAILED, UNCERTAIN, Call
from journal.state import Step as StepState
from journal.tools import Tool, as_tool, run_function

if TYPE_CHECKING:
    from journal.task import Task


class Step:
    """A step while it runs. Made by `task.step()`, used as an async context."""

    def __init__(self, task: Task, index: int) -> None:
        self.index = index
        self._task = task
        self._next_position = 0
        self._scope = contextlib.ExitStack()

    @property
    def recorded(self) -> StepState | None:
        """What is recorded of this step so far."""
        return self._task.state.steps.get(self.index)

    @property
    def attempt(self) -> int:
        """From 1; only a failure raises it."""
        step = self.recorded
        return 1 if step is None else step.attempt + (step.status == FAILED)

    async def decide(self, model: Callable[..., Any], *args: Any, **kwargs: Any) -> Decision:
        """The step's decision: the recorded one, or what `model(*args, **kwargs)` returns now.

        `model`, sync or async, returns a `Decision`, or an OpenAI or Anthropic response.
        """
        self._task.check()
        decision = self._decision()
        if decision is not None:
            return decision
        await self._task.look()
        made = as_decision(await run_function(model, args, kwargs))
        await self._start(await decision_payload(made, self._task.blobs))
        return self._decision() or made

    def _decision(self) -> Decision | None:
        step = self.recorded
        return None if step is None else step.decision(self._task.blobs.get)

    async def _start(self, decision: Raw = ev.ABSENT) -> None:
        messages = self._task.state.messages_received
        body = ev.StepStarted(self.index, self.attempt, decision, next(reversed(messages), None))
        await self._task.owner.append("StepStarted", body)

    async def call(self, function: Callable[..., Any] | Tool, *args: Any, **kwargs: Any) -> Any:
        """Run the step's next tool call, or return what it returned. See `options`."""
        return await self.options().call(function, *args, **kwargs)

    def options(self, *, call: int | None = None, key: str | None = None) -> CallOptions:
        """How the next call is made: `call` is its position in the decision (by default one
        after the last), `key` replaces its idempotency key."""
        return CallOptions(self, call, key)

    def _take(self, position: int | None) -> int:
        if position is None:
            position = self._next_position
        self._next_position = position + 1
        return position

    def _call_state(self, position: int) -> Call | None:
        step = self.recorded
        return None if step is None or step.calls is None else step.calls.get(position)

    async def record(
        self, call: int, *, result: Any = None, error: BaseException | str | None = None
    ) -> None:
        """Write the outcome of a call that no tool of ours made: unknown, or denied."""
        known = self._call_state(call)
        if known is None:
            raise UsageError(f"step {self.index} has no call {call}; its decision asked for none")
        if known.finished:
            return
        if error is None:
            await self._complete(call, await payload(result, self._task.blobs))
        else:
            await self._fail(call, error, True)

    async def resolve(
        self,
        call: int,
        *,
        result: Any = None,
        error: BaseException | str | None = None,
        run_again: bool = False,
    ) -> None:
        """Settle an uncertain call: it had this result, or this error, or it is to run again."""
        body = ev.CallResolved(self.index, call, run_again=run_again)
        if error is not None:
            body.error = str(error)
            body.error_type = _type_of(error)
        elif not run_again:
            body.result = await payload(result, self._task.blobs)
        verdict = await self._task.owner.append("CallResolved", body)
        if verdict.label:
            raise UsageError(f"nothing to resolve: {verdict.detail}")
        self._next_position = min(self._next_position, call)

    async def _complete(self, position: int, result: Raw) -> None:
        body = ev.ToolCallCompleted(self.index, position, result, self.attempt)
        await self._task.owner.append("ToolCallCompleted", body)

    async def _fail(self, position: int, error: BaseException | str, final: bool) -> None:
        body = ev.ToolCallFailed(
            self.index, position, _type_of(error), str(error), final, self.attempt
        )
        await self._task.owner.append("ToolCallFailed", body)

    # --- the context ----------------------------------------------------------------------------

    async def __aenter__(self) -> Step:
        try:
            await self._task.ready()
        except BaseException:
            self._task.leave(self.index)
            raise
        self._scope.enter_context(self._task.scope(f"step {self.index}"))
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._scope.close()
        self._task.leave(self.index)
        if not self._task.running:
            return
        if error is None:
            body = ev.StepCompleted(self.index, self.attempt)
            await self._task.owner.append("StepCompleted", body)
        elif isinstance(error, ToolError) or (
            isinstance(error, Exception) and not isinstance(error, JournalError)
        ):
            failed = ev.StepFailed(self.index, type_name(error), str(error), self.attempt)
            await self._task.owner.append("StepFailed", failed)


class CallOptions:
    """One call of a step with its options; see `Step.options`."""

    def __init__(self, step: Step, position: int | None, key: str | None) -> None:
        self._step = step
        self._position = position
        self._key = key

    async def call(self, function: Callable[..., Any] | Tool, *args: Any, **kwargs: Any) -> Any:
        """The recorded result, or that of running the tool now.

        Raises `ToolError` (the tool failed), `CallUncertain` (a `once` call was in flight),
        `ReplayDiverged` (another call is recorded at this position).
        """
        step, used = self._step, as_tool(function)
        task = step._task
        position = step._take(self._position)
        arguments = used.arguments(args, kwargs)
        digest = digest_value(arguments)
        task.check()
        if step.recorded is None:
            await step._start()
        known = step._call_state(position)
        if known is not None:
            _check(step.index, known, used, digest)
            if known.status == COMPLETED:
                return decode_value(known.result, task.blobs.get)
            if known.status == FAILED:
                raise ToolError(known.error or "", known.error_type or "")
            if known.status == UNCERTAIN:
                raise CallUncertain(
                    f"call {position} ({used.name}) of step {step.index} was in flight when its "
                    f"worker was lost; settle it with step.resolve({position}, ...)",
                    step.index,
                    position,
                )
        body = ev.ToolCallStarted(
            step.index,
            position,
            used.name,
            digest,
            step.attempt,
            used.effect,
            None if known is None else known.tool_call_id,
        )
        if arguments != _asked(step, position):
            body.arguments = await payload(arguments, task.blobs)
        key = self._key or f"{task.state.head.run_id}:{step.index}:{position}:{digest}"
        task.owner.live_calls.add((step.index, position))
        try:
            verdict = await task.owner.append(
                "ToolCallStarted", body, read_back=used.effect == "once"
            )
            if verdict.label:
                raise ReplayDiverged(f"step {step.index}, call {position}: {verdict.detail}")
            return await self._run(used, position, key, args, kwargs)
        finally:
            task.owner.live_calls.discard((step.index, position))

    async def _run(
        self, used: Tool, position: int, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        step = self._step
        try:
            result = await used.run(key, args, kwargs)
            raw = await payload(result, step._task.blobs)
        except asyncio.CancelledError:
            raise
        except JournalError as error:
            if type(error).__name__ != "ValueRefused":
                raise
            await step._fail(position, error, True)
            raise
        except Exception as error:
            await step._fail(position, error, True)
            raise ToolError(str(error), type_name(error)) from error
        await step._complete(position, raw)
        # What was recorded, not what was returned: a replay must not see another value.
        return decode_value(raw, step._task.blobs.get)


def _asked(step: Step, position: int) -> Any:
    decision = step._decision()
    if decision is None or position >= len(decision.tool_calls):
        return None
    return decision.tool_calls[position].arguments


def _check(index: int, known: Call, used: Tool, digest: str) -> None:
    if known.arguments_digest is None:
        return
    if (known.tool_name, known.arguments_digest) != (used.name, digest):
        raise ReplayDiverged(
            f"step {index}, call {known.position}: recorded {known.tool_name} with arguments "
            f"{known.arguments_digest}, now asked for {used.name} with {digest}; has the code "
            f"changed since?"
        )


def _type_of(error: BaseException | str) -> str:
    return "Error" if isinstance(error, str) else type_name(error)
