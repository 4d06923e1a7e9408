"""One tool call of a step: recorded, run, tried again after a failure, settled when uncertain.

Knows the step's events and a tool's policy; knows nothing of how a step is opened or decided.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from journal import events as ev
from journal.declared import declared, fit, refit
from journal.errors import (
    CallUncertain,
    JournalError,
    ReplayDiverged,
    ToolError,
    UsageError,
    ValueRefused,
)
from journal.payloads import payload
from journal.state import COMPLETED, FAILED, STARTED, UNCERTAIN, Call
from journal.tools import KEY_PARAMETER, Happened, Tool, as_tool, run_function
from journal.values import decode_value, digest_value

if TYPE_CHECKING:
    from journal.step import Step

_ANSWER_SCHEMA = {
    "oneOf": [
        {"type": "object", "required": ["result"]},
        {
            "type": "object",
            "required": ["error"],
            "properties": {"error": {"type": "string"}},
        },
        {
            "type": "object",
            "required": ["run_again"],
            "properties": {"run_again": {"const": True}},
        },
    ]
}


class CallOptions:
    """One call of a step with its options; see `Step.options`."""

    def __init__(self, step: Step, position: int | None, key: str | None) -> None:
        self._step = step
        self._position = position
        self._key = key

    async def call(self, function: Callable[..., Any] | Tool, *args: Any, **kwargs: Any) -> Any:
        """The recorded result, or that of running the tool now, by its policy.

        Raises `ToolError` (the tool failed for good), `CallUncertain` (a `once` call was in
        flight, or took too long), `ReplayDiverged` (another call is recorded at this position).
        """
        step, used = self._step, as_tool(function)
        kind = declared(used.function)
        position = step.take(self._position)
        await step.task.ready()
        if step.recorded is None:
            await step.start()
        run = _Run(step, position, used, kind, args, kwargs)
        key = self._key or f"{step.task.state.head.run_id}:{step.index}:{position}:{run.digest}"
        run.check()
        spans, known = step.task.spans, run.known
        if spans is None or (known is not None and known.finished):
            return await self._outcome(run, key)
        with spans.tool_call(step.index, position, step.attempt, used, known):
            return await self._outcome(run, key)

    async def _outcome(self, run: _Run, key: str) -> Any:
        step = self._step
        if run.uncertain:
            await run.settle(key)
        while True:
            known = run.known
            if known is not None and known.status == COMPLETED:
                what = f"step {step.index}, call {run.position}"
                return refit(decode_value(known.result, step.task.blobs.get), run.kind, what)
            if known is not None and known.status == FAILED:
                raise ToolError(known.error or "", known.error_type or "") from run.cause
            await run.once(key)


class _Run:
    """A call on its way to an outcome."""

    def __init__(
        self,
        step: Step,
        position: int,
        used: Tool,
        kind: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._step = step
        self._task = step.task
        self._place = step.index, position
        self.position = position
        self._used = used
        self.kind = kind
        self._args = args
        self._kwargs = kwargs
        self._arguments = used.arguments(args, kwargs)
        self.digest = digest_value(self._arguments)
        self.cause: BaseException | None = None

    @property
    def known(self) -> Call | None:
        return self._step.call_state(self.position)

    def check(self) -> None:
        """Raise `ReplayDiverged` where another call is recorded here."""
        known, used = self.known, self._used
        if known is None:
            return
        if known.arguments_digest is None:
            # Its outcome was recorded without a call of ours.
            if known.finished and known.tool_name != used.name:
                raise ReplayDiverged(
                    f"step {self._step.index}, call {self.position}: the outcome of "
                    f"{known.tool_name} is recorded, now asked for {used.name}"
                )
            return
        if (known.tool_name, known.arguments_digest) != (used.name, self.digest):
            raise ReplayDiverged(
                f"step {self._step.index}, call {self.position}: recorded {known.tool_name} with "
                f"arguments {known.arguments_digest}, now asked for {used.name} with "
                f"{self.digest}; has the code changed since?"
            )

    # --- running ----------------------------------------------------------------------------------

    async def once(self, key: str) -> None:
        """Run the tool; afterwards the call is finished, or may be tried again."""
        await self._task.ready()
        owner, used = self._task.owner, self._used
        owner.live_calls.add(self._place)
        try:
            await self._started()
            try:
                result = await used.run(key, self._args, self._kwargs)
                raw = await payload(result, self._task.blobs)
                if self.kind is not Any:
                    fit(decode_value(raw, self._task.blobs.get), self.kind)
            except JournalError as error:
                if isinstance(error, ValueRefused):
                    await self._step.fail_call(self.position, error, True)
                raise
            except Exception as error:
                await self._failed(error)
            else:
                await self._step.complete_call(self.position, raw)
        finally:
            owner.live_calls.discard(self._place)

    async def _started(self) -> None:
        step, known, used = self._step, self.known, self._used
        body = ev.ToolCallStarted(
            step.index,
            self.position,
            used.name,
            self.digest,
            step.attempt,
            used.effect,
            None if known is None else known.tool_call_id,
        )
        if self._arguments != self._asked():
            body.arguments = await payload(self._arguments, self._task.blobs)
        verdict = await self._task.owner.append(
            "ToolCallStarted", body, read_back=used.effect == "once"
        )
        if verdict.label:
            raise ReplayDiverged(f"step {step.index}, call {self.position}: {verdict.detail}")

    def _asked(self) -> Any:
        decision = self._step.decision()
        if decision is None or self.position >= len(decision.tool_calls):
            return None
        return decision.tool_calls[self.position].arguments

    async def _failed(self, error: Exception) -> None:
        used = self._used
        if used.effect == "once" and isinstance(error, TimeoutError) and used.timeout_s:
            # Nobody knows whether it has happened, or happens yet.
            raise self._nobody_knows(f"took longer than {used.timeout_s:g} s") from error
        known = self.known
        failures = 1 + (0 if known is None else known.failures)
        again = used.may_retry(error, failures)
        await self._step.fail_call(self.position, error, not again)
        self.cause = error
        if again:
            await asyncio.sleep(used.backoff_s(failures, error))

    # --- a call of which nobody knows -------------------------------------------------------------

    @property
    def uncertain(self) -> bool:
        """Whether a `once` call was begun, and neither finished nor runs here. `once` counts as
        declared then or now: an imported call began without a declaration."""
        known = self.known
        return known is not None and (
            known.status == UNCERTAIN
            or (
                known.status == STARTED
                and "once" in (known.effect, self._used.effect)
                and self._place not in self._task.owner.live_calls
            )
        )

    def _nobody_knows(self, what: str) -> CallUncertain:
        index, position = self._place
        return CallUncertain(
            f"call {position} ({self._used.name}) of step {index} {what}; settle it with "
            f"step.resolve({position}, ...) or: journal resolve {self._task.id} {index}:{position}",
            index,
            position,
        )

    async def settle(self, key: str) -> None:
        """Decide by the tool's policy whether it happened. Raises `CallUncertain` without one."""
        policy, by = self._used.on_uncertain, "on_uncertain"
        if policy is None:
            raise self._nobody_knows("was in flight when its worker was lost")
        if policy == "retry":
            await self._step.settle(self.position, run_again=True, resolved_by=by)
        elif policy == "fail":
            error = CallUncertain("it was in flight when its worker was lost", *self._place)
            await self._step.settle(self.position, error=error, resolved_by=by)
        elif policy == "ask":
            await self._ask()
        else:
            assert callable(policy)
            kwargs = self._kwargs | ({KEY_PARAMETER: key} if _keyed(policy) else {})
            found = await run_function(policy, self._args, kwargs)
            if found is None:
                await self._step.settle(self.position, run_again=True, resolved_by=by)
            elif isinstance(found, Happened):
                await self._step.settle(self.position, result=found.result, resolved_by=by)
            else:
                raise UsageError(
                    f"the check of {self._used.name} returns Happened(result) or None, "
                    f"not a {type(found).__name__}"
                )

    async def _ask(self) -> None:
        index, position = self._place
        known = self.known
        assert known is not None
        question = {
            "question": f"Has {self._used.name} happened? Answer with its result, its error, or "
            f"run_again.",
            "tool_name": self._used.name,
            "arguments": self._arguments,
        }
        key = f"call {index}:{position}, start {known.starts}"
        answer = await self._task.ask(question, schema=_ANSWER_SCHEMA, key=key)
        by = self._task.state.waits[f"={key}"].answered_by
        await self._step.settle(
            position,
            result=answer.get("result"),
            error=answer.get("error"),
            run_again="run_again" in answer,
            resolved_by=by,
        )


def _keyed(function: Callable[..., Any]) -> bool:
    return KEY_PARAMETER in inspect.signature(function).parameters
