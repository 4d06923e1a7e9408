"""One open step: the model's decision and its tool calls, each recorded, none repeated.

Knows the owner's pipeline, tools and payloads; knows nothing of how a task is opened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from journal import events as ev
from journal.call import CallOptions
from journal.errors import JournalError, ToolError, UsageError
from journal.events import Decision
from journal.payloads import clean, decision_payload, payload, type_name
from journal.replies import as_decision
from journal.state import FAILED, Call
from journal.state import Step as StepState
from journal.tools import Tool, run_function

if TYPE_CHECKING:
    from journal.spans import Span
    from journal.task import Task


class Step:
    """A step while it runs. Made by `task.step()`, used as an async context."""

    def __init__(self, task: Task, index: int) -> None:
        self.index = index
        self.task = task
        self.next_position = 0
        self._told: set[int] = set()
        """Positions whose outcome was recorded here: no tool's call comes there."""
        self.span: Span | None = None
        self._scope = contextlib.ExitStack()

    @property
    def scope(self) -> str:
        return f"step {self.index}"

    @property
    def recorded(self) -> StepState | None:
        """What is recorded of this step so far."""
        return self.task.state.steps.get(self.index)

    @property
    def attempt(self) -> int:
        """From 1; only a failure raises it."""
        step = self.recorded
        return 1 if step is None else step.attempt + (step.status == FAILED)

    async def decide(self, model: Callable[..., Any], *args: Any, **kwargs: Any) -> Decision:
        """The step's decision: the recorded one, or what `model(*args, **kwargs)` returns now.

        `model`, sync or async, returns a `Decision`, or an OpenAI or Anthropic response.
        """
        self.task.check()
        decision = self.decision()
        if decision is not None:
            return decision
        await self.task.look()
        decision = self.decision()
        if decision is not None:
            # It was recorded by an append whose outcome was unknown until now.
            return decision
        if self.task.spans is None:
            made = as_decision(await run_function(model, args, kwargs))
        else:
            with self.task.spans.chat(self.index) as span:
                made = as_decision(await run_function(model, args, kwargs))
                span.decided(made)
        await self.start(await decision_payload(made, self.task.blobs))
        return self.decision() or made

    def decision(self) -> Decision | None:
        step = self.recorded
        return None if step is None else step.decision(self.task.blobs.get)

    async def start(self, decision: Raw = ev.ABSENT) -> None:
        body = ev.StepStarted(self.index, self.attempt, decision, self.task.last_message)
        await self.task.owner.append("StepStarted", body)

    async def call(self, function: Callable[..., Any] | Tool, *args: Any, **kwargs: Any) -> Any:
        """Run the step's next tool call, or return what it returned. See `options`."""
        return await self.options().call(function, *args, **kwargs)

    def options(self, *, call: int | None = None, key: str | None = None) -> CallOptions:
        """How the next call is made: `call` is its position in the decision (by default one
        after the last), `key` replaces its idempotency key."""
        return CallOptions(self, call, key)

    def take(self, position: int | None) -> int:
        if position is None:
            position = self.next_position
            while position in self._told:
                position += 1
        self.next_position = position + 1
        return position

    def call_state(self, position: int) -> Call | None:
        step = self.recorded
        return None if step is None or step.calls is None else step.calls.get(position)

    async def record(
        self, call: int, *, result: Any = None, error: BaseException | str | None = None
    ) -> None:
        """Write the outcome of a call that no tool of ours made: unknown, or denied."""
        known = self.call_state(_position(call))
        if known is None:
            raise UsageError(f"step {self.index} has no call {call}; its decision asked for none")
        self._told.add(call)
        if known.finished:
            return
        if error is None:
            await self.complete_call(call, await payload(result, self.task.blobs))
        else:
            await self.fail_call(call, error, True)

    async def resolve(
        self,
        call: int,
        *,
        result: Any = None,
        error: BaseException | str | None = None,
        run_again: bool = False,
        resolved_by: str | None = None,
    ) -> None:
        """Settle an uncertain call: it had this result, or this error, or it is to run again.
        The next `call` is that call once more."""
        await self.settle(
            call, result=result, error=error, run_again=run_again, resolved_by=resolved_by
        )
        self.next_position = min(self.next_position, call)

    async def settle(
        self,
        call: int,
        *,
        result: Any = None,
        error: BaseException | str | None = None,
        run_again: bool = False,
        resolved_by: str | None = None,
    ) -> None:
        """Write what became of an uncertain call. Raises `UsageError` where it is none."""
        position = _position(call)
        body = ev.CallResolved(self.index, position, run_again=run_again, resolved_by=resolved_by)
        if error is not None:
            body.error = clean(error, self.task.blobs)
            body.error_type = error_type_of(error)
        elif not run_again:
            body.result = await payload(result, self.task.blobs)
        verdict = await self.task.owner.append("CallResolved", body)
        if verdict.label:
            raise UsageError(f"nothing to resolve: {verdict.detail}")

    async def complete_call(self, position: int, result: Raw) -> None:
        body = ev.ToolCallCompleted(self.index, position, result, self.attempt)
        await self.task.owner.append("ToolCallCompleted", body)

    async def fail_call(self, position: int, error: BaseException | str, final: bool) -> None:
        text, kind = clean(error, self.task.blobs), error_type_of(error)
        body = ev.ToolCallFailed(self.index, position, kind, text, final, self.attempt)
        await self.task.owner.append("ToolCallFailed", body)

    # --- the context ----------------------------------------------------------------------------

    async def __aenter__(self) -> Step:
        try:
            await self.task.ready()
        except BaseException:
            self.task.leave(self.index)
            raise
        if self.task.completed(self.index):
            # By an append whose outcome was unknown when this step was asked for.
            self.task.leave(self.index)
            self.index = self.task.step().index
        if self.task.spans is not None:
            self.span = self.task.spans.step(self.index, self.attempt, self.recorded)
            self.span.begin()
        self._scope.enter_context(self.task.scope(self.scope))
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._scope.close()
        self.task.ends(self.index)
        try:
            await self._over(error)
        except BaseException as found:
            error = found
            raise
        finally:
            self.task.leave(self.index)
            if self.span is not None:
                self.span.end(error)

    async def _over(self, error: BaseException | None) -> None:
        if not self.task.running:
            return
        if error is None:
            body = ev.StepCompleted(self.index, self.attempt)
            await self.task.owner.append("StepCompleted", body)
        elif isinstance(error, ToolError) or (
            isinstance(error, Exception) and not isinstance(error, JournalError)
        ):
            text = clean(error, self.task.blobs)
            failed = ev.StepFailed(self.index, type_name(error), text, self.attempt)
            await self.task.owner.append("StepFailed", failed)


def _position(call: int) -> int:
    if type(call) is not int:
        raise UsageError("a call is named by its position in the decision, from 0 on")
    return call


def error_type_of(error: BaseException | str) -> str:
    """`error_type` of an error, or of a text that stands for one."""
    return "Error" if isinstance(error, str) else type_name(error)
