"""Agents that work for as long as something is done to their log, and what each of them was told.

An agent resumes as a user's would: in its block, or, if that fails too, with the next connection.
Knows the journal's public API, and puts a witness in front of each connection's log. Knows nothing
of brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import journal
from journal import Decision, ToolCall
from journal.errors import (
    EventTooLarge,
    LogNotFound,
    LogReplaced,
    LogUnavailable,
    OutcomeUnknown,
    TaskEnded,
    TaskFenced,
)
from journal.state import COMPLETED, TaskState
from journal.step import Step
from journal.values import decode_value
from tests.fire.witness import Sent, Witness

PATIENCE_S = 240.0
"""For whatever must happen once a fault is over, on a machine that has much else to do."""

THINK_S = 0.1, 0.3
"""What a model takes for an answer. Without it the agents would leave brokers on the same cores
nothing to run on."""

AFTER = 3
"""Whole steps that every agent makes after the last fault."""

GO_ON = (TaskFenced, OutcomeUnknown, LogUnavailable, EventTooLarge, TaskEnded)
CONFIRMS = ("always", "once", "always")
"""Of the connections that the agents use in turn."""

Fact = tuple[int, str]
"""What an agent is told something about: a step, and "asked", "noted" or "done"."""

ANSWER: Fact = -1, "answer"


class Agent:
    """One agent, through all of its lives. `heard` is what it was told, in that order."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.task_id = f"agent-{number}"
        self.heard: dict[Fact, str] = {}
        self.wrong: list[str] = []
        self.troubles: Counter[str] = Counter()
        self.said: list[str] = []
        """Of all troubles, what they said."""
        self.lives = 0
        self.asked = 0
        self.steps = 0
        """Whole steps in which it was not disturbed."""
        self.ended = False
        self.lost: Exception | None = None
        """That its log is not there any more."""

    def hear(self, step: int, what: str, text: Any) -> None:
        known = self.heard.setdefault((step, what), text)
        if known != text:
            self.wrong.append(f"{self.task_id} was told {known!r}, then {text!r}")

    def recall(self, state: TaskState) -> None:
        """What the journal gives it on resuming."""
        for step in state.steps.values():
            decision = step.decision()
            assert decision is not None
            self.hear(step.index, "asked", decision.text)
            for call in step.all_calls():
                if call.finished:
                    self.hear(step.index, "noted", decode_value(call.result))
            if step.status == COMPLETED and decision.tool_calls:
                self.hear(step.index, "done", "")
        if not state.running:
            self.hear(*ANSWER, decode_value(state.final_answer))

    def trouble(self, error: Exception) -> None:
        self.troubles[type(error).__name__] += 1
        self.said.append(f"{type(error).__name__}: {error}")


class Load:
    """The agents of one log."""

    def __init__(self, url: str, blobs: Path, agents: int, options: Mapping[str, Any]) -> None:
        """Use `working`."""
        self.url = url
        self.agents = [Agent(number) for number in range(agents)]
        self.sent: list[Sent] = []
        self.complaints: list[str] = []
        self.journals: list[journal.Journal] = []
        self.burden: dict[int, str] = {}
        """Agent's number to what its model says besides, once."""
        self._options: dict[str, Any] = {"blobs": blobs, **options}
        self._works: list[asyncio.Task[None]] = []
        self._over: list[int] = []
        self._may_lose = False
        self._changed = asyncio.Event()
        self._random = random.Random(agents)

    @classmethod
    @contextlib.asynccontextmanager
    async def working(
        cls, url: str, folder: Path, *, agents: int, **options: Any
    ) -> AsyncIterator[Load]:
        """Agents at work on a new log, or one that is there; `options` are those of
        `journal.connect`."""
        load = cls(url, folder / "blobs", agents, options)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: load.complaints.append(str(context)))
        async with contextlib.AsyncExitStack() as stack:
            for confirm in CONFIRMS:
                j = await stack.enter_async_context(load.connected(confirm))
                load.journals.append(j)
            try:
                for agent in load.agents:
                    load.begin(agent)
                yield load
            finally:
                for work in load._works:
                    work.cancel()
                await asyncio.gather(*load._works, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def connected(self, confirm: str = "always") -> AsyncIterator[journal.Journal]:
        async with journal.connect(self.url, create=True, confirm=confirm, **self._options) as j:
            j.log = Witness(j.log, self.sent, self._changed.set)
            yield j

    # --- for the test -------------------------------------------------------------------------

    async def progress(self, steps: int = 1) -> None:
        """Return once every agent has made so many whole steps more."""
        wanted = [agent.steps + steps for agent in self.agents]
        await self.until(
            lambda: all(a.steps >= n for a, n in zip(self.agents, wanted, strict=True)),
            f"{steps} steps more of each",
        )

    async def troubled(self, agents: int = 1) -> None:
        """Return once so many agents have been told of trouble that they did not know yet."""
        before = [agent.troubles.total() for agent in self.agents]
        await self.until(
            lambda: (
                sum(a.troubles.total() > n for a, n in zip(self.agents, before, strict=True))
                >= agents
            ),
            f"trouble for {agents}",
        )

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Return once it holds. Fails where an agent does."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not condition():
                    self._check()
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(
                f"not within {PATIENCE_S:g} s: {what}\n" + "\n".join(map(self._shown, self.agents))
            ) from None
        self._check()

    async def lose(self) -> None:
        """Return once every agent has been told that its log is gone."""
        self._may_lose = True
        await self.until(lambda: all(agent.lost for agent in self.agents), "the loss of the log")

    async def finish(self) -> None:
        """No fault comes any more: let every agent make some steps and end."""
        self._over = [agent.steps + AFTER for agent in self.agents]
        await self.until(lambda: all(agent.ended for agent in self.agents), "every agent's end")

    async def caught(self, wanted: int) -> int:
        """Return once so many appends are on their way, or trouble is told of first: agents that
        wait for an answer of a log that is frozen append nothing. How many there are."""
        before = self._troubles()
        await self.until(
            lambda: self._on_their_way() >= wanted or self._troubles() > before,
            f"{wanted} appends on their way",
        )
        return self._on_their_way()

    def crash(self, agents: list[Agent]) -> None:
        """Cancel them where they are, and let each begin again with another connection."""
        for agent in agents:
            work = self._works[agent.number]
            if work.cancel():
                agent.trouble(Cancelled(f"cancelled in life {agent.lives}"))
        for agent in agents:
            self.begin(agent)

    def begin(self, agent: Agent) -> None:
        before = self._works[agent.number] if agent.number < len(self._works) else None
        work = asyncio.ensure_future(self._live(agent, before))
        work.add_done_callback(lambda _: self._changed.set())
        self._works[agent.number : agent.number + 1] = [work]

    def _on_their_way(self) -> int:
        return sum(not sent.outcomes for sent in self.sent[-1_000:])

    def _troubles(self) -> int:
        return sum(agent.troubles.total() for agent in self.agents)

    def _check(self) -> None:
        for work in self._works:
            if work.done() and not work.cancelled():
                work.result()
        if lost := [agent.lost for agent in self.agents if agent.lost and not self._may_lose]:
            raise lost[0]

    def _shown(self, agent: Agent) -> str:
        return (
            f"{agent.task_id}: {agent.steps} steps, {agent.lives} lives, ended {agent.ended}, "
            f"{dict(agent.troubles)} {agent.said[-1:]}"
        )

    # --- the agents ---------------------------------------------------------------------------

    async def _live(self, agent: Agent, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        while not agent.ended:
            j = self.journals[(agent.number + agent.lives) % len(self.journals)]
            agent.lives += 1
            try:
                async with j.task(agent.task_id, "work under fire") as task:
                    agent.recall(task.state)
                    await self._work(agent, task)
                agent.ended = True
            except GO_ON as error:
                self._note(agent, error)
            except (LogNotFound, LogReplaced) as error:
                agent.lost = error
                self._note(agent, error)
                return

    async def _work(self, agent: Agent, task: journal.Task) -> None:
        stayed = False
        while task.running:
            try:
                async with task.step() as step:
                    if stayed:
                        agent.recall(task.state)
                    await self._step(agent, task, step)
                if task.running:
                    agent.hear(step.index, "done", "")
                else:
                    agent.hear(*ANSWER, agent.number)
                agent.steps += 1
                stayed = False
                self._changed.set()
            except (OutcomeUnknown, LogUnavailable, EventTooLarge) as error:
                if stayed or agent.number % 2:
                    raise
                # It goes on where it is; what became of the step, the next one tells.
                stayed = True
                self._note(agent, error)

    async def _step(self, agent: Agent, task: journal.Task, step: Step) -> None:
        name = f"{agent.task_id} step {step.index}"

        async def model() -> Decision:
            await asyncio.sleep(self._random.uniform(*THINK_S))
            agent.asked += 1
            text = f"{name}, asked for the {agent.asked}. time"
            if self._over and agent.steps >= self._over[agent.number]:
                return Decision(text)
            burden = self.burden.pop(agent.number, "")
            return Decision(text, [ToolCall("note", {"of": text, "burden": burden})])

        async def note(of: str, burden: str) -> str:
            return f"{of}, noted in life {agent.lives}"

        reply = await step.decide(model)
        agent.hear(step.index, "asked", reply.text)
        for call in reply.tool_calls:
            agent.hear(step.index, "noted", await step.call(note, **call.arguments))
        if not reply.tool_calls:
            await task.complete(agent.number)

    def _note(self, agent: Agent, error: Exception) -> None:
        agent.trouble(error)
        self._changed.set()


class Cancelled(Exception):
    """An agent's task was cancelled."""
