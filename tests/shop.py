"""An agent with a model and two tools, for the tests of the kit for crash tests."""

from __future__ import annotations

from typing import Any

import journal
from journal import testing

STEPS = 2


class Shop:
    """An agent with a model and two tools, all of them counted. Subclasses get things wrong."""

    def __init__(self, effect: str = "idempotent") -> None:
        self.model = testing.counted(self._model)
        self.note = testing.counted(self._note)
        self.charge = testing.counted(journal.tool(effect=effect, name="charge")(self._charge))
        self.charged: list[int] = []

    def _model(self, index: int) -> journal.Decision:
        if index == STEPS:
            return journal.Decision("sold")
        calls = [journal.ToolCall("charge", {"n": index}), journal.ToolCall("note", {"n": index})]
        return journal.Decision(f"sell {index}", calls)

    def _charge(self, n: int) -> str:
        self.charged.append(n)
        return f"receipt {n}"

    async def _note(self, n: int) -> int:
        return n * n

    def reset(self) -> None:
        self.charged.clear()

    async def __call__(self, j: journal.Journal) -> str:
        async with j.task("order", "Sell books") as task:
            while task.running:
                async with task.step() as step:
                    decision = await step.decide(self.model, step.index)
                    if not decision.tool_calls:
                        await task.complete(decision.text)
                        break
                    await self.act(task, step)
        return str(task.final_answer)

    async def act(self, task: journal.Task, step: Any) -> None:
        receipt = await step.call(self.charge, n=step.index)
        await task.set_result(f"r{step.index}", receipt)
        await step.call(self.note, n=step.index)
