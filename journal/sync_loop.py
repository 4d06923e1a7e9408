"""Between plain code and an event loop on another thread: what `journal.sync` stands on.

A coroutine is run on the loop while the calling thread waits for it; what the coroutine calls back
runs on that thread. Knows asyncio, threads and how a tool is run; knows no tasks and no journal.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import os
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, InvalidStateError
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from journal.tools import Tool, as_tool, plain_call

T = TypeVar("T")

LOOP: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("loop", default=None)
"""The loop to use in this context in place of the process's own, as the kit for tests does."""


class _Loop:
    """One event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="journal-loop", daemon=True).start()


_lock = threading.Lock()
_loop: _Loop | None = None


def running() -> asyncio.AbstractEventLoop:
    """The loop that plain code of this context uses."""
    global _loop
    here = LOOP.get()
    if here is not None:
        return here
    with _lock:
        if _loop is None:
            _loop = _Loop()
        return _loop.loop


def _forget_loop() -> None:
    # The parent's loop and thread are not in a forked child, and its lock may be held for ever.
    global _lock, _loop
    _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_loop)


class Here:
    """Runs a coroutine on the loop, and what it calls back on the thread that waits for it."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, running())
        future.add_done_callback(lambda _: self._asked.put(None))
        try:
            while (call := self._asked.get()) is not None:
                call()
        except BaseException:
            # Ctrl-C, in most cases: what runs on the loop must not go on unheard.
            future.cancel()
            raise
        return _result(future)

    def back(self, function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """The function as a coroutine function that runs it on the waiting thread, in the
        coroutine's context. One that is asynchronous stays on the loop."""
        if inspect.iscoroutinefunction(function):
            return function

        async def called(*args: Any, **kwargs: Any) -> Any:
            done: Future[Any] = Future()
            context = copy_context()

            def call() -> None:
                if not done.set_running_or_notify_cancel():
                    return  # nobody waits for it any more
                try:
                    done.set_result(context.run(plain_call, function, *args, **kwargs))
                except BaseException as error:
                    done.set_exception(error)
                    if not isinstance(error, Exception):
                        raise

            self._asked.put(call)
            return await asyncio.wrap_future(done)

        functools.update_wrapper(called, function)
        return called

    def tool(self, function: Callable[..., Any] | Tool) -> Tool:
        """The tool, with its policy, running on the waiting thread."""
        return as_tool(function).running(self.back)


def wait(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, or raises."""
    return Here().wait(coroutine)


@contextlib.contextmanager
def entered(manager: Any) -> Iterator[Any]:
    """An asynchronous context as a plain one; both ends run in one context of variables."""
    begun: Future[Any] = Future()
    left: Future[tuple[Any, Any, Any]] = Future()

    async def inside() -> bool:
        try:
            value = await manager.__aenter__()
        except BaseException as error:
            begun.set_exception(error)
            return False
        begun.set_result(value)
        try:
            how = await asyncio.wrap_future(left)
        except asyncio.CancelledError as error:
            await manager.__aexit__(type(error), error, error.__traceback__)
            raise
        return bool(await manager.__aexit__(*how))

    ended = asyncio.run_coroutine_threadsafe(inside(), running())
    try:
        value = _result(begun)
    except BaseException:
        # Ctrl-C, in most cases: what is being opened must not be claimed unheard.
        ended.cancel()
        raise
    try:
        yield value
    except BaseException as error:
        _tell(left, (type(error), error, error.__traceback__))
        if not _result(ended):
            raise
    else:
        _tell(left, (None, None, None))
        _result(ended)


def _tell(left: Future[Any], how: tuple[Any, Any, Any]) -> None:
    with contextlib.suppress(InvalidStateError):  # it was cancelled, and `ended` says so
        left.set_result(how)


def _result(future: Future[T]) -> T:
    """Its result, or what it raised. A cancellation is asyncio's, as in agents with `await`, and
    not that of futures, which an `except Exception` would take for a failure."""
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        raise asyncio.CancelledError from None
