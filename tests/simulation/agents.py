"""Random agents: programs drawn from the seed, played through the public API, started again after
each crash. Their tools count what they did to a world that no crash touches.

Every payload is made from a number that is unique within the seed, so that what ran can be found
in the log again. Knows the public API; of the simulation only where it reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from journal.decision import Decision, ToolCall, Usage
from journal.errors import (
    AskTimedOut,
    CallUncertain,
    LogUnavailable,
    OutcomeUnknown,
    SubtaskFailed,
    ToolError,
)
from journal.step import Step
from journal.task import Task
from journal.tools import Happened, Tool, tool

if TYPE_CHECKING:
    from tests.simulation.world import World

TOOLS = ("look", "put", "pay", "pay_again", "pay_check", "pay_fail", "flaky", "broken", "slow")
EXTRAS = ("value", "values", "result", "receive", "sleep", "ask", "child", "boom", "record")
_UNSURE = (OutcomeUnknown, LogUnavailable)


@dataclass
class Op:
    """One thing that an agent does. `calls` are (tool, number) of a step's decision."""

    kind: str
    n: int
    calls: list[tuple[str, int]] = field(default_factory=list)
    parallel: bool = False
    again: bool = False
    seconds: float = 0.0
    child: Program | None = None


@dataclass
class Program:
    """What one task does; `steps` of a model, or durable functions."""

    steps: bool
    ops: list[Op]
    fails: bool = False


class Numbers:
    """Unique within a seed."""

    def __init__(self) -> None:
        self._n = 0

    def next(self) -> int:
        self._n += 1
        return self._n


def draw(r: Random, numbers: Numbers, depth: int = 0) -> Program:
    """A program; at depth 0 it may have sub-tasks."""
    steps = r.random() < 0.6
    extras = [e for e in EXTRAS if depth == 0 or e != "child"]
    ops = []
    for _ in range(r.randint(1, 4 - depth)):
        kind = r.choice(extras) if not steps or r.random() < 0.5 else "none"
        if kind in ("boom", "record") and not steps:
            kind = "value"
        op = Op(kind, numbers.next(), again=r.random() < 0.4, seconds=r.choice((0, 0.01, 1.0, 8.0)))
        if kind == "values":
            op.calls = [("", numbers.next()) for _ in range(r.randint(2, 3))]
        elif steps and kind != "record":
            op.calls = [(r.choice(TOOLS), numbers.next()) for _ in range(r.randint(0, 3))]
        op.parallel = r.random() < 0.5
        if kind == "child":
            op.child = draw(r, numbers, depth + 1)
        ops.append(op)
    return Program(steps, ops, fails=r.random() < 0.1 and depth == 0)


class Agent:
    """One task's program, in one process."""

    def __init__(self, world: World, task: Task) -> None:
        self.world = world
        self.task = task

    async def play(self, program: Program) -> None:
        """Work on the task until it ends."""
        task = self.task
        if program.steps:
            while task.running:
                try:
                    await self._step(program)
                except Boom:
                    continue
            return
        for op in program.ops:
            await self._again(op, lambda op=op: self._extra(op, None))  # type: ignore[misc]
        await self._end(program)

    async def _end(self, program: Program) -> None:
        task = self.task
        if not task.running:
            return
        if program.fails and task.state.run_epoch == 0:
            await task.fail("no", error_type="Drawn")
        else:
            await task.complete(["answer", program.ops[0].n])

    async def _step(self, program: Program) -> None:
        task = self.task
        async with task.step() as step:
            index = step.index
            op = program.ops[index] if index < len(program.ops) else None
            if op is not None and op.kind == "record":
                await task.record_step(index, Decision(text=f"did {op.n}"), [])
                return
            decision = await self._again(op, lambda: step.decide(self._model, index, op))
            text = "the end" if op is None else f"step {op.n}"
            self.world.same(f"{task.id}: decision {index}", decision.text, text)
            if op is None:
                await self._end(program)
                return
            await self._calls(step, op)
            await self._again(op, lambda: self._extra(op, step))

    async def _again(self, op: Op | None, work: Callable[[], Awaitable[Any]]) -> Any:
        """Some agents try again where they stand; others leave, and open the task anew."""
        for _ in range(3 if op is not None and op.again else 0):
            try:
                return await work()
            except _UNSURE:
                await asyncio.sleep(0.05)
        return await work()

    # --- a step ---------------------------------------------------------------------------------

    async def _model(self, index: int, op: Op | None) -> Decision:
        self.world.ran(self.task, "model", index)
        await asyncio.sleep(0.01 * index)
        calls = [ToolCall(name, {"n": n}) for name, n in (op.calls if op else [])]
        text = "the end" if op is None else f"step {op.n}"
        return Decision(text=text, tool_calls=calls, usage=Usage(input_tokens=10, output_tokens=1))

    async def _calls(self, step: Step, op: Op) -> None:
        if op.parallel:
            calls = [self._call(step, op, at) for at in range(len(op.calls))]
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
        else:
            for at in range(len(op.calls)):
                await self._call(step, op, at)

    async def _call(self, step: Step, op: Op, at: int) -> None:
        name, n = op.calls[at]
        used = self._tool(name, n, op)

        async def once() -> None:
            try:
                value = await step.options(call=at).call(used, n=n)
            except CallUncertain:
                await step.resolve(at, run_again=True, resolved_by="agent")
                value = await step.options(call=at).call(used, n=n)
            except ToolError as error:
                if name not in ("broken", "pay_fail"):
                    self.world.wrong(f"{self.task.id}: {name} {n} failed: {error}")
                return
            self.world.same(f"{self.task.id}: {name} {n}", value, [name, n])

        await self._again(op, once)

    def _tool(self, name: str, n: int, op: Op) -> Tool:
        world, task = self.world, self.task

        async def function(n: int, idempotency_key: str) -> Any:
            await asyncio.sleep(op.seconds / 2)
            count = world.effect(task, name, n, idempotency_key)
            await asyncio.sleep(op.seconds / 2)
            if name == "broken" or (name == "flaky" and count < 3):
                raise RuntimeError("no")
            return [name, n]

        def found(n: int, **_: Any) -> Happened | None:
            return Happened([name, n]) if world.effects.get(n) else None

        policies: dict[str, Any] = {
            "pay_again": "retry",
            "pay_fail": "fail",
            "pay_check": found,
        }
        return tool(
            effect="once" if name.startswith("pay") else "none" if name == "look" else "idempotent",
            name=name,
            retries=5 if name == "flaky" else 0,
            backoff=0.1,
            on_uncertain=policies.get(name),
        )(function)

    # --- what is not a call of the model's ------------------------------------------------------

    async def _extra(self, op: Op, step: Step | None) -> None:
        task, n = self.task, op.n
        if op.kind == "value":
            self.world.same(f"{task.id}: value {n}", await task.run(self._value, n), ["value", n])
        elif op.kind == "values":
            calls = (task.run(self._value, m) for _, m in op.calls)
            values = await task.gather(*calls, limit=2)
            self.world.same(f"{task.id}: {n}", values, [["value", m] for _, m in op.calls])
        elif op.kind == "result":
            await task.set_result(f"file {n}", n)
        elif op.kind == "receive":
            await task.receive(f"message {n}", id=f"message-{n}")
        elif op.kind == "sleep":
            await task.sleep(op.seconds)
        elif op.kind == "ask":
            try:
                answer = await task.ask(f"question {n}", timeout=5.0 + op.seconds)
            except AskTimedOut:
                self.world.ran(task, "timeout", n)
                return
            self.world.same(f"{task.id}: answer {n}", answer, f"answer to question {n}")
        elif op.kind == "child" and op.child is not None:
            await self._child(op, op.child)
        elif op.kind == "boom" and step is not None and step.attempt == 1:
            raise Boom

    async def _value(self, n: int) -> Any:
        self.world.ran(self.task, "value", n)
        await asyncio.sleep(0.01)
        return ["value", n]

    async def _child(self, op: Op, program: Program) -> None:
        world, n = self.world, op.n

        async def child(task: Task, n: int) -> Any:
            world.opened(task)
            await Agent(world, task).play(program)
            return ["answer", program.ops[0].n]

        try:
            value = await self.task.subtask(f"child-{n}", child, n)
        except SubtaskFailed as error:
            if error.error_type != "cancelled":
                world.wrong(f"{self.task.id}: child {n} failed: {error}")
            raise
        world.same(f"{self.task.id}: child {n}", value, ["answer", program.ops[0].n])


class Boom(Exception):
    """A step's own failure."""
