"""One life of an agent: it runs on a log in memory until it ends, or until a point kills it.

A life stands for a process. What it started dies with it, and what it appends after its death is
written nowhere. Knows envelopes and asyncio's tasks; knows nothing of what is asserted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, cast

import msgspec

from journal.client import Journal, connect
from journal.codec import decode_event
from journal.errors import BadRecord, UsageError
from journal.genesis import GENESIS_KEY
from journal.log import Append
from journal.memory_log import PROCESS, Memory, Process
from journal.testing.points import Crash, Point

if TYPE_CHECKING:
    from journal.testing.effects import Run

Agent = Callable[[Journal], Awaitable[Any]]
"""An agent under test: from a journal, start or resume the task and work on it to its end."""

_ROUNDS = 1_000
_THREAD_SECONDS = 0.01


class Life(Process):
    """One life, and what can be said of it afterwards.

    number    from 1
    appends   how many events it has handed to the log
    written   how many of them were written
    events    their types with the step that they are about, such as "StepStarted of step 0"
    dead      the `Crash`, where a point has struck
    runs      the counted tools that ran in it
    """

    def __init__(self, number: int, point: Point | None) -> None:
        self.number = number
        self.appends = 0
        self.written = 0
        self.events: list[str] = []
        self.runs: list[Run] = []
        self._point = point
        self._fitting = 0
        self._strikes = False
        self._died: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._threads: list[asyncio.Future[Any]] = []

    # --- what the log tells -----------------------------------------------------------------------

    def submitted(self, append: Append) -> None:
        if append.key != GENESIS_KEY:
            self.appends += 1

    def before(self, append: Append) -> None:
        if append.key == GENESIS_KEY:
            return
        event, step = _read(append)
        self.events.append(event if step is None else f"{event} of step {step}")
        point = self._point
        if point is not None and point.fits(event, step):
            self._fitting += 1
            self._strikes = self._fitting == point.n
        if self._strikes and point is not None and point.when == "before":
            self._die("before")

    def after(self, append: Append) -> None:
        if append.key == GENESIS_KEY:
            return
        self.written += 1
        if self._strikes:
            self._die("after")

    def _die(self, when: str) -> None:
        self.dead = Crash(f"crash {when} append {len(self.events)}, {self.events[-1]}")
        if self._died is not None and not self._died.done():
            self._died.set_result(None)

    # --- running ----------------------------------------------------------------------------------

    async def run(self, agent: Agent, memory: Memory) -> Any:
        """Run the agent until it ends, and return its value, or until the point strikes, and return
        None. An exception of the agent is raised; `UsageError` where another life runs here."""
        loop = asyncio.get_running_loop()
        factory = loop.get_task_factory()
        if isinstance(factory, _Births):
            raise UsageError("an agent is under test on this loop; await that before the next")
        context = copy_context()
        context.run(PROCESS.set, self)
        self._died = loop.create_future()
        loop.set_task_factory(cast(Any, _Births(self, factory)))
        try:
            main = loop.create_task(_open_and_run(agent, memory), context=context)
            self.started(main)
            await asyncio.wait((main, self._died), return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                await self._bury()
            finally:
                loop.set_task_factory(factory)
        return None if self.dead is not None else main.result()

    def started(self, task: asyncio.Task[Any]) -> None:
        """A task of asyncio's that dies with this life."""
        self._tasks.append(task)

    def on_thread(self, ended: asyncio.Future[Any]) -> None:
        """Plain code that runs on a thread until `ended` is done, and ends with this life."""
        self._threads.append(ended)

    async def _bury(self) -> None:
        for _ in range(_ROUNDS):
            left = [task for task in self._tasks if not task.done()]
            threads = [thread for thread in self._threads if not thread.done()]
            if not (left or threads):
                break
            for task in left:
                task.cancel()
            if threads:
                await asyncio.wait(threads, timeout=_THREAD_SECONDS)
            else:
                await asyncio.sleep(0)
        else:
            what = left[0].get_name() if left else "plain code"
            raise AssertionError(f"the agent goes on after its death: {what}")
        for ended in (*self._tasks, *self._threads):
            if not ended.cancelled():
                ended.exception()  # asked for, so that asyncio does not complain


class _Births:
    """A loop's task factory that notes which tasks a life has started."""

    def __init__(self, life: Life, before: Callable[..., Any] | None) -> None:
        self._life = life
        self._before = before

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any]
        if self._before is None:
            task = asyncio.Task(coro, loop=loop, **options)
        else:
            task = self._before(loop, coro, **options)
        if PROCESS.get() is self._life:
            self._life.started(task)
        return task


async def _open_and_run(agent: Agent, memory: Memory) -> Any:
    async with connect(memory) as j:
        return await agent(j)


def current_life() -> Life | None:
    """The life that the running code belongs to."""
    process = PROCESS.get()
    return process if isinstance(process, Life) else None


def _read(append: Append) -> tuple[str, int | None]:
    try:
        event = decode_event(append.value)
    except BadRecord:
        return "BadRecord", None
    step = msgspec.json.decode(event.body).get("step_index")
    return event.type, step if isinstance(step, int) else None
