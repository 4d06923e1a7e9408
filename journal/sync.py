"""The same API without `await`, for agents that are plain code.

All journals of a process share one event loop on a thread of its own, which begins with the
first and begins anew after a fork. A function that is given in (a model, a tool, a sub-task's)
runs on the thread that called, as it would without a journal. Safe to use from many threads.

    with sync.connect("journal.db") as j, j.task("t", "Research AI trends") as task:
        while task.running:
            with task.step() as step:
                reply = step.decide(model, task.messages())
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from journal import connect as _connect
from journal.connect import Journal as AsyncJournal
from journal.events import Decision
from journal.state import Message, TaskState
from journal.state import Step as StepState
from journal.step import Step as AsyncStep
from journal.task import Task as AsyncTask
from journal.tools import Tool, as_tool
from journal.tracing import inside
from journal.waits import Until

T = TypeVar("T")


# --- the loop -----------------------------------------------------------------------------------


class _Loop:
    """One event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="journal-loop", daemon=True).start()


_lock = threading.Lock()
_loop: _Loop | None = None


def _running() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = _Loop()
        return _loop.loop


def _forget_loop() -> None:
    # The parent's loop and thread are not in a forked child, and its lock may be held for ever.
    global _lock, _loop
    _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_loop)


class _Here:
    """Runs a coroutine on the loop, and what it calls back on the thread that waits for it."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, _running())
        future.add_done_callback(lambda _: self._asked.put(None))
        try:
            while (call := self._asked.get()) is not None:
                call()
        except BaseException:
            # Ctrl-C, in most cases: what runs on the loop must not go on unheard.
            future.cancel()
            raise
        return future.result()

    def back(self, function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """The function as a coroutine function that runs it on the waiting thread, in the
        coroutine's context. One that is asynchronous stays on the loop."""
        if inspect.iscoroutinefunction(function):
            return function

        async def called(*args: Any, **kwargs: Any) -> Any:
            done: Future[Any] = Future()
            context = copy_context()

            def call() -> None:
                try:
                    done.set_result(context.run(function, *args, **kwargs))
                except BaseException as error:
                    done.set_exception(error)
                    if not isinstance(error, Exception):
                        raise

            self._asked.put(call)
            return await asyncio.wrap_future(done)

        for name in ("__name__", "__qualname__", "__doc__", "__wrapped__"):
            with contextlib.suppress(AttributeError):
                setattr(called, name, getattr(function, name))
        called.__wrapped__ = function  # type: ignore[attr-defined]
        return called

    def tool(self, function: Callable[..., Any] | Tool) -> Tool:
        """The tool, with its policy, running on the waiting thread."""
        return as_tool(function).running(self.back)


def _wait(coroutine: Coroutine[Any, Any, T]) -> T:
    return _Here().wait(coroutine)


# --- the API ------------------------------------------------------------------------------------


class Journal:
    """See `journal.connect.Journal`. Made by `connect`, used as a context."""

    def __init__(self, inner: AsyncJournal) -> None:
        self.inner = inner

    def __enter__(self) -> Journal:
        _wait(self.inner.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        _wait(self.inner.__aexit__(*error))

    @contextlib.contextmanager
    def task(self, task_id: str, description: str | None = None, **options: Any) -> Iterator[Task]:
        """See `journal.connect.Journal.task`."""
        with _entered(self.inner.task(task_id, description, **options)) as task, inside(task.spans):
            yield Task(task)

    def state(self, task_id: str) -> TaskState:
        """See `journal.connect.Journal.state`."""
        return _wait(self.inner.state(task_id))

    def tasks(self, *, status: str | None = None) -> list[TaskState]:
        """See `journal.connect.Journal.tasks`."""
        return _wait(self.inner.tasks(status=status))

    def retry(self, task_id: str, reason: str | None = None) -> TaskState:
        """See `journal.connect.Journal.retry`."""
        return _wait(self.inner.retry(task_id, reason))

    def send(self, task_id: str, content: Any, role: str = "user", **options: Any) -> str:
        """See `journal.connect.Journal.send`."""
        return _wait(self.inner.send(task_id, content, role, **options))

    def answer(self, task_id: str, value: Any, **options: Any) -> TaskState:
        """See `journal.connect.Journal.answer`."""
        return _wait(self.inner.answer(task_id, value, **options))

    def cancel(self, task_id: str, reason: str | None = None, **options: Any) -> TaskState:
        """See `journal.connect.Journal.cancel`."""
        return _wait(self.inner.cancel(task_id, reason, **options))


class Task:
    """See `journal.task.Task`; what is said there of functions holds for plain ones here."""

    def __init__(self, inner: AsyncTask) -> None:
        self.inner = inner

    @property
    def id(self) -> str:
        return self.inner.id

    @property
    def state(self) -> TaskState:
        return self.inner.state

    @property
    def traceparent(self) -> str | None:
        """See `journal.task.Task.traceparent`."""
        return self.inner.traceparent

    @property
    def running(self) -> bool:
        return self.inner.running

    @property
    def status(self) -> str:
        return self.inner.status

    @property
    def final_answer(self) -> Any:
        return self.inner.final_answer

    def completed(self, index: int) -> StepState | None:
        """See `journal.task.Task.completed`."""
        return self.inner.completed(index)

    def messages(self, style: str = "openai") -> list[dict[str, Any]]:
        """See `journal.task.Task.messages`."""
        return self.inner.messages(style)

    @contextlib.contextmanager
    def step(self) -> Iterator[Step]:
        """See `journal.task.Task.step`."""
        with _entered(self.inner.step()) as step, self.inner.scope(step.scope), inside(step.span):
            yield Step(step)

    def record_step(
        self, step_index: int, decision: Decision | str, results: Sequence[Any] = (), **times: Any
    ) -> StepState:
        """See `journal.task.Task.record_step`."""
        return _wait(self.inner.record_step(step_index, decision, results, **times))

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See `journal.task.Task.run`."""
        here = _Here()
        used = here.tool(function) if isinstance(function, Tool) else here.back(function)
        return here.wait(self.inner.run(used, *args, **kwargs))

    def subtask(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See `journal.task.Task.subtask`; the function is given a `journal.sync.Task`."""
        here = _Here()

        def called(child: AsyncTask, *args: Any, **kwargs: Any) -> Any:
            return function(Task(child), *args, **kwargs)

        called.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
        called.__wrapped__ = function  # type: ignore[attr-defined]
        return here.wait(self.inner.subtask(name, here.back(called), *args, **kwargs))

    def now(self) -> datetime:
        """See `journal.task.Task.now`."""
        return _wait(self.inner.now())

    def random(self) -> float:
        """See `journal.task.Task.random`."""
        return _wait(self.inner.random())

    def uuid(self) -> UUID:
        """See `journal.task.Task.uuid`."""
        return _wait(self.inner.uuid())

    def ask(self, question: Any, **options: Any) -> Any:
        """See `journal.task.Task.ask`."""
        return _wait(self.inner.ask(question, **options))

    def sleep(self, until: Until, *, key: str | None = None) -> None:
        """See `journal.task.Task.sleep`."""
        _wait(self.inner.sleep(until, key=key))

    def receive(self, content: Any, role: str = "user", *, id: str | None = None) -> str:
        """See `journal.task.Task.receive`."""
        return _wait(self.inner.receive(content, role, id=id))

    def next_message(self) -> Message:
        """See `journal.task.Task.next_message`."""
        return _wait(self.inner.next_message())

    def set_result(self, name: str, value: Any) -> None:
        """See `journal.task.Task.set_result`."""
        _wait(self.inner.set_result(name, value))

    def complete(self, final_answer: Any = None) -> None:
        """See `journal.task.Task.complete`."""
        _wait(self.inner.complete(final_answer))

    def fail(self, error: BaseException | str, *, error_type: str | None = None) -> None:
        """See `journal.task.Task.fail`."""
        _wait(self.inner.fail(error, error_type=error_type))


class Step:
    """See `journal.step.Step`."""

    def __init__(self, inner: AsyncStep) -> None:
        self.inner = inner

    @property
    def index(self) -> int:
        return self.inner.index

    @property
    def attempt(self) -> int:
        return self.inner.attempt

    def decide(self, model: Callable[..., Any], *args: Any, **kwargs: Any) -> Decision:
        """See `journal.step.Step.decide`."""
        here = _Here()
        return here.wait(self.inner.decide(here.back(model), *args, **kwargs))

    def call(self, function: Callable[..., Any] | Tool, *args: Any, **kwargs: Any) -> Any:
        """See `journal.step.Step.call`."""
        here = _Here()
        return here.wait(self.inner.call(here.tool(function), *args, **kwargs))

    def record(
        self, call: int, *, result: Any = None, error: BaseException | str | None = None
    ) -> None:
        """See `journal.step.Step.record`."""
        _wait(self.inner.record(call, result=result, error=error))

    def resolve(self, call: int, **outcome: Any) -> None:
        """See `journal.step.Step.resolve`."""
        _wait(self.inner.resolve(call, **outcome))


@contextlib.contextmanager
def _entered(manager: Any) -> Iterator[Any]:
    """An asynchronous context as a plain one; both ends run in one context of variables."""
    entered: Future[Any] = Future()
    left: Future[tuple[Any, Any, Any]] = Future()

    async def inside() -> bool:
        try:
            value = await manager.__aenter__()
        except BaseException as error:
            entered.set_exception(error)
            return False
        entered.set_result(value)
        return bool(await manager.__aexit__(*await asyncio.wrap_future(left)))

    ended = asyncio.run_coroutine_threadsafe(inside(), _running())
    value = entered.result()
    try:
        yield value
    except BaseException as error:
        left.set_result((type(error), error, error.__traceback__))
        if not ended.result():
            raise
    else:
        left.set_result((None, None, None))
        ended.result()


def connect(*args: Any, **options: Any) -> Journal:
    """See `journal.connect`."""
    return Journal(_connect(*args, **options))
