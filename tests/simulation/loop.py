"""An event loop without time and sockets: a virtual clock, and an order drawn from a seed.

Handles belong to the `Process` that their context names. Those of one process run in the order
in which they were asked for, as asyncio promises; which process has the next turn is drawn. When
nothing is ready the clock jumps to the next timer. Knows no logs and no agents.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any

from journal.memory_log import PROCESS, Process

NOBODY = Context()
"""The context of what belongs to no process: the network, the brokers, whoever starts workers."""


class Mortal(Process):
    """A process that the loop may end, or keep from running, at any await.

    name     for the history
    skew_ms  how far its clock is off
    fuse     turns until it is killed; below 0 it never is
    nap      turns until it stalls, and for how many seconds it does
    """

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.skew_ms = 0
        self.fuse = -1
        self.nap: tuple[int, float] | None = None
        self.stalled = False
        self.turns: deque[Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []


class Gone(BaseException):
    """What code of a dead process is told when it is cleared away; no `except Exception` has it."""


class Stuck(Exception):
    """Nothing is ready, no timer is set, or it has taken too many turns."""


class Handle:
    """What `call_soon` and `call_at` give."""

    __slots__ = ("args", "callback", "context", "dropped", "process", "time")

    def __init__(
        self, callback: Callable[..., Any], args: Any, context: Context | None, time: float
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.process: Mortal | None = self.context.get(PROCESS)  # type: ignore[assignment]
        self.time = time
        self.dropped = False

    def cancel(self) -> None:
        self.dropped = True

    def cancelled(self) -> bool:
        return self.dropped

    def when(self) -> float:
        return self.time


class Loop(asyncio.AbstractEventLoop):
    """The loop. `killed` is told of each process that a fuse has ended."""

    def __init__(self, random: Random, killed: Callable[[Mortal], None]) -> None:
        self.now = 0.0
        self.turns = 0
        self.most_turns = 300_000
        self.errors: list[str] = []
        self._random = random.random
        self._killed = killed
        self._nobody: deque[Handle] = deque()
        self._ready: list[deque[Handle]] = []
        self._timers: list[tuple[float, int, Handle]] = []
        self._numbers = itertools.count()
        self._closed = False

    # --- what asyncio asks for ----------------------------------------------------------------

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle = Handle(callback, args, context, self.now)
        self._enqueue(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        handle = Handle(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        process: Any = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, function: Any, *args: Any) -> Any:
        """Threads would bring an order of their own: it runs here and now."""
        future = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            self.errors.append(f"{context['message']}: {context.get('exception')!r}")

    # --- turns ----------------------------------------------------------------------------------

    def _enqueue(self, handle: Handle) -> None:
        process = handle.process
        if process is None:
            turns = self._nobody
        elif process.dead is not None or self._closed:
            return
        else:
            turns = process.turns
            if process.stalled:
                turns.append(handle)
                return
        turns.append(handle)
        if len(turns) == 1:
            self._ready.append(turns)

    def run(self, coro: Any) -> Any:
        """Run a coroutine of nobody's to its end. Raises `Stuck`."""
        asyncio._set_running_loop(self)
        try:
            main = asyncio.Task(coro, loop=self, context=NOBODY.copy())
            while not main.done():
                self._turn()
            return main.result()
        finally:
            asyncio._set_running_loop(None)

    def _turn(self) -> None:
        ready = self._ready
        if not ready:
            self._jump()
            return
        self.turns += 1
        if self.turns > self.most_turns:
            raise Stuck(f"not at an end after {self.turns} turns")
        n = int(self._random() * len(ready)) if len(ready) > 1 else 0
        turns = ready[n]
        handle = turns[0]
        process = handle.process
        if process is not None and (process.fuse >= 0 or process.nap is not None):
            if process.fuse == 0:
                self.kill(process)
                self._killed(process)
                return
            process.fuse -= 1
            if process.nap is not None and self._naps(process, process.nap):
                return
        turns.popleft()
        if not turns:
            ready[n] = ready[-1]
            ready.pop()
        if not handle.dropped:
            handle.context.run(handle.callback, *handle.args)

    def _jump(self) -> None:
        timers = self._timers
        while timers:
            when, _, handle = heapq.heappop(timers)
            if handle.dropped:
                continue
            if handle.process is not None and handle.process.dead is not None:
                continue
            self.now = max(self.now, when)
            self._enqueue(handle)
            # All of the same moment are ready at once.
            while timers and timers[0][0] <= self.now:
                handle = heapq.heappop(timers)[2]
                if not handle.dropped:
                    self._enqueue(handle)
            return
        raise Stuck("everybody waits, and no timer is set")

    # --- processes --------------------------------------------------------------------------------

    def kill(self, process: Mortal) -> None:
        """End it between two turns. Nothing of it runs again, no `finally` either."""
        process.dead = Gone(process.name)
        if process.turns and not process.stalled:
            self._ready.remove(process.turns)
        process.turns.clear()

    def _naps(self, process: Mortal, nap: tuple[int, float]) -> bool:
        turns, seconds = nap
        if turns:
            process.nap = turns - 1, seconds
            return False
        process.nap = None
        process.stalled = True
        self._ready.remove(process.turns)
        self.call_later(seconds, self._wakes, process, context=NOBODY)
        return True

    def _wakes(self, process: Mortal) -> None:
        process.stalled = False
        if process.turns:
            self._ready.append(process.turns)

    def bury(self, processes: list[Mortal]) -> None:
        """Clear away what is left of dead processes, whose logs refuse everything by now."""
        self._closed = True
        asyncio._set_running_loop(self)
        try:
            for process in processes:
                for task in process.tasks:
                    if task.done():
                        if not task.cancelled():
                            task.exception()  # asked for, so that asyncio does not complain
                        continue
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    coro: Any = task.get_coro()
                    # A `finally` that waits for something has to be ended there, too.
                    while coro.cr_frame is not None:
                        with contextlib.suppress(BaseException):
                            coro.close()
        finally:
            asyncio._set_running_loop(None)
