"""One seed: who runs when, who dies when, and what of that can be held against them later.

Starts claimers, the projector and somebody outside, ends them where their fuses do, and, when
the faults are over, one last worker who has to come to the end. Knows what to run; what must
hold is in `checks`.
"""

from __future__ import annotations

import asyncio
import random
import warnings
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from journal import ids
from journal.client import Journal, connect
from journal.errors import (
    LogUnavailable,
    OutcomeUnknown,
    SubtaskFailed,
    TaskEnded,
    TaskFenced,
    TaskNotFound,
    UsageError,
)
from journal.events import Envelope
from journal.fold import Verdict
from journal.genesis import identify
from journal.ids import new_task_id
from journal.log import Append
from journal.memory_log import PROCESS
from journal.pending import Pending
from journal.state import TaskState
from journal.task import Task
from projector.runner import Runner
from tests.make_events import START_MS
from tests.simulation.agents import Agent, Numbers, Program, draw
from tests.simulation.faults import Faults
from tests.simulation.loop import NOBODY, Loop, Mortal, Stuck
from tests.simulation.projection import File, Tables
from tests.simulation.topic import Topic

_MET = (LogUnavailable, OutcomeUnknown, TaskEnded, TaskNotFound, UsageError)
_PATIENCE_S = 900.0  # virtual, that the last worker has


class World:
    """Everything of one seed that no crash touches."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.faults = Faults(self.random)
        self.loop = Loop(self.random, self._killed)
        self.history: list[tuple[float, str, str, Any]] = []
        self.violations: list[str] = []
        self.topic = Topic(self.loop, self.random, self.faults, self.note, self._watch)
        self.file = File(self._commit_fails)
        self.processes: list[Mortal] = []
        self.journals: list[tuple[Mortal, Journal]] = []
        self.acked: list[tuple[Envelope, Verdict]] = []
        self.claimed: list[tuple[str, str]] = []
        self.effects: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
        self.runs: list[tuple[str, str, int, str]] = []
        self.on_kill: Callable[[World, Mortal], None] = lambda world, process: None
        self.cancelled = False
        self.done: set[str] = set()
        self.over = False
        numbers = Numbers()
        self.roots: dict[str, Program] = {}
        for n in range(self.random.choice((1, 1, 1, 2))):
            id = f"root-{n}"
            if self.random.random() < 0.5:
                # As `new_task_id` makes it, by a clock that is nobody's here.
                id = new_task_id(START_MS + self.faults.skew_ms())[:13] + f"{n:020x}"
            self.roots[id] = draw(self.random, numbers)

    # --- what agents and the log report ---------------------------------------------------------

    def note(self, what: str, *about: Any) -> None:
        process = PROCESS.get()
        self.history.append((self.loop.now, getattr(process, "name", ""), what, about))

    def wrong(self, text: str) -> None:
        """Something that must not be."""
        if not self.over:
            self.note("wrong", text)
            self.violations.append(text)

    def same(self, what: str, got: Any, expected: Any) -> None:
        if got != expected:
            self.wrong(f"{what} is {got!r}, not {expected!r}")

    def opened(self, task: Task) -> None:
        """A task was claimed, or found to have ended."""
        if task.running:
            claim = task.owner.state.head.claim_id or ""
            self.note("opened", task.id, f"epoch {task.state.head.epoch}")
            self.claimed.append((task.id, claim))

    def ran(self, task: Task, kind: str, n: int) -> None:
        """A model or a durable function ran, by the claim that this worker has."""
        owner = task._owner
        if owner is not None and owner.dead is None:
            self.note("ran", f"{kind} {n} of {task.id}")
            self.runs.append((task.id, kind, n, task.state.head.claim_id or ""))

    def effect(self, task: Task, name: str, n: int, key: str) -> int:
        """A tool did its work; how often it has by now."""
        self.note("effect", f"{name} {n} of {task.id}")
        self.effects[n].append((task.id, name))
        return len(self.effects[n])

    def _watch(self, append: Append) -> None:
        if isinstance(append, Pending):
            event = append.event

            def settled(future: asyncio.Future[Verdict]) -> None:
                if not future.cancelled() and future.exception() is None:
                    self.acked.append((event, future.result()))

            append.future.add_done_callback(settled, context=NOBODY)

    def _killed(self, process: Mortal) -> None:
        self.note("killed", process.name)
        self.on_kill(self, process)

    def _commit_fails(self) -> str:
        if self.faults.over or not self.faults.crashes or self.random.random() > 0.05:
            return ""
        return self.random.choice(("before", "after"))

    # --- processes --------------------------------------------------------------------------------

    def start(self, name: str, work: Callable[[Mortal], Awaitable[None]]) -> Mortal:
        """A new process; `work` is all that it does."""
        faults = self.faults
        process = Mortal(f"{name}-{len(self.processes)}", len(self.processes))
        process.fuse, process.nap = faults.fuse(), faults.nap()
        process.skew_ms = faults.skew_ms()
        self.processes.append(process)
        context = NOBODY.copy()
        context.run(PROCESS.set, process)
        self.loop.create_task(self._life(process, work), context=context)
        self.note("started", process.name)
        return process

    async def _life(self, process: Mortal, work: Callable[[Mortal], Awaitable[None]]) -> None:
        try:
            await work(process)
        except (LogUnavailable, OutcomeUnknown, TaskFenced, TaskEnded) as error:
            self.note("left", f"{type(error).__name__}: {error}")
        except SubtaskFailed as error:
            self.note("left", f"SubtaskFailed: {error}")
            if error.error_type != "cancelled" or not self.cancelled:
                self.wrong(f"{process.name}: {error}")
        except Exception as error:
            self.wrong(f"{process.name} met {type(error).__name__}: {error}")
        process.ended = True  # type: ignore[attr-defined]

    def _alive(self, process: Mortal) -> bool:
        return process.dead is None and not getattr(process, "ended", False)

    def _connect(self, process: Mortal) -> Journal:
        journal = connect(
            self.topic,
            confirm=self.faults.confirm,
            worker=process.name,
            deadline_s=self.faults.deadline_s,
        )
        self.journals.append((process, journal))
        return journal

    def worker(self, id: str, *, last: bool = False) -> Callable[[Mortal], Awaitable[None]]:
        """What a claimer of this root does. The last one never gives up."""

        async def work(process: Mortal) -> None:
            async with self._connect(process) as j:
                while True:
                    try:
                        if await self._attempt(j, id):
                            return
                    except (LogUnavailable, OutcomeUnknown, TaskFenced) as error:
                        self.note("met", f"{type(error).__name__}: {error}")
                        if not last and (self.faults.over or self.random.random() < 0.3):
                            return
                    await asyncio.sleep(self.random.random() * 3)

        return work

    async def _attempt(self, j: Journal, id: str) -> bool:
        """Whether the task has ended for good."""
        try:
            async with j.task(id, f"work on {id}") as task:
                self.opened(task)
                if task.running:
                    await Agent(self, task).play(self.roots[id])
        except TaskEnded:
            state = await j.state(id)
            if state.status == "failed":
                try:
                    await j.retry(id)
                except UsageError as error:
                    # Somebody else has reopened it at the same moment.
                    self.note("met", str(error))
        state = await j.state(id)
        if state.status not in ("completed", "cancelled"):
            return False
        self.done.add(id)
        return True

    async def outsider(self, process: Mortal) -> None:
        """Answers, sends messages, now and then cancels."""
        r, number = self.random, 0
        async with self._connect(process) as j:
            while True:
                await asyncio.sleep(1 + r.random() * 6)
                try:
                    for state in await j.tasks():
                        if state.running and r.random() < 0.7:
                            await self._tell(j, state, f"{process.name}-{number}")
                            number += 1
                except _MET as error:
                    self.note("met", f"{type(error).__name__}: {error}")

    async def _tell(self, j: Journal, state: TaskState, message: str) -> None:
        id = state.task_id
        asked = [wait for wait in state.pending if wait.question is not None]
        if asked:
            question = bytes(asked[0].question or b"").decode().strip('"')
            await j.answer(id, f"answer to {question}", key=asked[0].id)
        elif not self.faults.over and id in self.roots and self.random.random() < 0.03:
            self.cancelled = True
            await j.cancel(id, "drawn")
        elif not self.faults.over and self.random.random() < 0.3:
            await j.send(id, "hello", id=message)

    async def projector(self, process: Mortal) -> None:
        """Follows the log into the file, by the projector's own runner."""
        log = self.topic.handle()
        identity = await identify(log, create=True)
        runner = Runner(
            cast(Any, log), identity, lambda: cast(Any, Tables(self.file)), batch_records=50
        )
        await runner.run(follow=True)

    # --- the course of it -------------------------------------------------------------------------

    async def course(self) -> None:
        r, faults = self.random, self.faults
        supervised: list[tuple[str, Callable[[Mortal], Awaitable[None]], Mortal | None]] = [
            ("worker", self.worker(id), None) for id in self.roots for _ in range(faults.claimers)
        ]
        supervised.append(("outsider", self.outsider, None))
        supervised += [("projector", self.projector, None)] * (self.seed % 4 == 0)
        while self.loop.now < faults.lasts_s:
            for n, (name, work, process) in enumerate(supervised):
                if (process is None or not self._alive(process)) and r.random() < 0.7:
                    supervised[n] = name, work, self.start(name, work)
                elif process is not None and faults.skews and r.random() < 0.1:
                    process.skew_ms = faults.skew_ms()
                    self.note("clock", f"{process.name} is {process.skew_ms} ms off")
            if faults.outages and r.random() < 0.05:
                self.topic.down_until = self.loop.now + r.random() * 20
                self.note("down", f"until {self.topic.down_until:.3f}")
            await asyncio.sleep(0.1 + r.random())
            if len(self.done) == len(self.roots) and r.random() < 0.3:
                break
        await self._calm()

    async def _calm(self) -> None:
        self.faults.calm()
        self.topic.down_until = 0.0
        self.note("calm")
        for process in self.processes:
            process.fuse, process.nap, process.skew_ms = -1, None, 0
            if not process.name.startswith("worker") and self._alive(process):
                self.loop.kill(process)
        outsider = self.start("outsider", self.outsider)
        if self.file.kept["offsets"]:
            self.start("projector", self.projector)
        last = [self.start("last", self.worker(id, last=True)) for id in self.roots]
        until = self.loop.now + _PATIENCE_S
        while any(self._alive(p) for p in last):
            if self.loop.now > until:
                raise Stuck(f"no end {_PATIENCE_S:g} s after the last fault")
            await asyncio.sleep(1.0)
        self.loop.kill(outsider)
        # What is late has arrived by then.
        await asyncio.sleep(60.0)

    def run(self) -> None:
        """Play the seed to its end."""
        with _seams(self):
            try:
                self.loop.run(self.course())
            except Stuck as error:
                self.wrong(f"no progress: {error}")
            for error in self.loop.errors:
                self.wrong(f"the loop was told: {error}")

    def bury(self) -> None:
        """Clear away what is left; nothing of that counts."""
        self.over = True
        with _seams(self), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            for process in self.processes:
                if process.dead is None:
                    self.loop.kill(process)
            self.loop.bury(self.processes)


class _Time:
    """Stands for the module `time` in `journal.ids`: each process has a clock of its own."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def time_ns(self) -> int:
        skew = getattr(PROCESS.get(), "skew_ms", 0)
        return int((START_MS + skew) * 1_000_000 + self._loop.now * 1e9)


class _Pool:
    """Stands for the pool of ids."""

    def __init__(self, seed: int) -> None:
        self._bits = random.Random(f"ids {seed}").getrandbits

    def pop(self) -> str:
        return f"{self._bits(128):032x}"


@contextmanager
def _seams(world: World) -> Iterator[None]:
    """`journal.ids` is the one place where chance and the clock enter; what its hot path looks up
    anyway is put there for as long as the seed runs, so that it pays nothing for this."""
    before = ids._pool, ids.time
    state = random.getstate()
    random.seed(world.seed)
    ids._pool, ids.time = cast(Any, _Pool(world.seed)), cast(Any, _Time(world.loop))
    try:
        yield
    finally:
        ids._pool, ids.time = before
        random.setstate(state)
