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

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from journal import connect as _connect
from journal.claims import Resumed
from journal.client import Journal as AsyncJournal
from journal.events import Decision, Envelope
from journal.state import Message, TaskState
from journal.state import Step as StepState
from journal.step import Step as AsyncStep
from journal.sync_loop import Here, entered, wait
from journal.task import Task as AsyncTask
from journal.tools import Tool
from journal.tracing import inside
from journal.waits import Until


class Journal:
    """See `journal.Journal`. Made by `connect`, used as a context."""

    def __init__(self, inner: AsyncJournal) -> None:
        self.inner = inner

    def __enter__(self) -> Journal:
        wait(self.inner.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        wait(self.inner.__aexit__(*error))

    @contextlib.contextmanager
    def task(self, task_id: str, description: str | None = None, **options: Any) -> Iterator[Task]:
        """See `journal.Journal.task`."""
        with entered(self.inner.task(task_id, description, **options)) as task, inside(task.spans):
            yield Task(task)

    def state(self, task_id: str) -> TaskState:
        """See `journal.Journal.state`."""
        return wait(self.inner.state(task_id))

    def tasks(self, *, status: str | None = None) -> list[TaskState]:
        """See `journal.Journal.tasks`."""
        return wait(self.inner.tasks(status=status))

    def events(self, task_id: str, start: int = 0) -> list[tuple[int, Envelope]]:
        """See `journal.Journal.events`; all of them."""

        async def all_of_them() -> list[tuple[int, Envelope]]:
            return [each async for each in self.inner.events(task_id, start)]

        return wait(all_of_them())

    def resolve(self, task_id: str, step_index: int, position: int, **outcome: Any) -> TaskState:
        """See `journal.Journal.resolve`."""
        return wait(self.inner.resolve(task_id, step_index, position, **outcome))

    def retry(self, task_id: str, reason: str | None = None) -> TaskState:
        """See `journal.Journal.retry`."""
        return wait(self.inner.retry(task_id, reason))

    def send(self, task_id: str, content: Any, role: str = "user", **options: Any) -> str:
        """See `journal.Journal.send`."""
        return wait(self.inner.send(task_id, content, role, **options))

    def answer(self, task_id: str, value: Any, **options: Any) -> TaskState:
        """See `journal.Journal.answer`."""
        return wait(self.inner.answer(task_id, value, **options))

    def cancel(self, task_id: str, reason: str | None = None, **options: Any) -> TaskState:
        """See `journal.Journal.cancel`."""
        return wait(self.inner.cancel(task_id, reason, **options))


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
    def resumed(self) -> Resumed | None:
        """See `journal.task.Task.resumed`."""
        return self.inner.resumed

    @property
    def last_message(self) -> str | None:
        """See `journal.task.Task.last_message`."""
        return self.inner.last_message

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
        with entered(self.inner.step()) as step, self.inner.scope(step.scope), inside(step.span):
            yield Step(step)

    def record_step(
        self, step_index: int, decision: Decision | str, results: Sequence[Any] = (), **times: Any
    ) -> StepState:
        """See `journal.task.Task.record_step`."""
        return wait(self.inner.record_step(step_index, decision, results, **times))

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See `journal.task.Task.run`."""
        here = Here()
        used = here.tool(function) if isinstance(function, Tool) else here.back(function)
        return here.wait(self.inner.run(used, *args, **kwargs))

    def subtask(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See `journal.task.Task.subtask`; the function is given a `journal.sync.Task`."""
        here = Here()

        def called(child: AsyncTask, *args: Any, **kwargs: Any) -> Any:
            return function(Task(child), *args, **kwargs)

        called.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
        called.__wrapped__ = function  # type: ignore[attr-defined]
        return here.wait(self.inner.subtask(name, here.back(called), *args, **kwargs))

    def look(self) -> None:
        """See `journal.task.Task.look`."""
        wait(self.inner.look())

    def now(self) -> datetime:
        """See `journal.task.Task.now`."""
        return wait(self.inner.now())

    def random(self) -> float:
        """See `journal.task.Task.random`."""
        return wait(self.inner.random())

    def uuid(self) -> UUID:
        """See `journal.task.Task.uuid`."""
        return wait(self.inner.uuid())

    def ask(self, question: Any, **options: Any) -> Any:
        """See `journal.task.Task.ask`."""
        return wait(self.inner.ask(question, **options))

    def sleep(self, until: Until, *, key: str | None = None) -> None:
        """See `journal.task.Task.sleep`."""
        wait(self.inner.sleep(until, key=key))

    def receive(self, content: Any, role: str = "user", *, id: str | None = None) -> str:
        """See `journal.task.Task.receive`."""
        return wait(self.inner.receive(content, role, id=id))

    def next_message(self) -> Message:
        """See `journal.task.Task.next_message`."""
        return wait(self.inner.next_message())

    def set_result(self, name: str, value: Any) -> None:
        """See `journal.task.Task.set_result`."""
        wait(self.inner.set_result(name, value))

    def complete(self, final_answer: Any = None) -> None:
        """See `journal.task.Task.complete`."""
        wait(self.inner.complete(final_answer))

    def fail(self, error: BaseException | str, *, error_type: str | None = None) -> None:
        """See `journal.task.Task.fail`."""
        wait(self.inner.fail(error, error_type=error_type))


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
        here = Here()
        return here.wait(self.inner.decide(here.back(model), *args, **kwargs))

    def call(self, function: Callable[..., Any] | Tool, *args: Any, **kwargs: Any) -> Any:
        """See `journal.step.Step.call`."""
        here = Here()
        return here.wait(self.inner.call(here.tool(function), *args, **kwargs))

    def record(
        self, call: int, *, result: Any = None, error: BaseException | str | None = None
    ) -> None:
        """See `journal.step.Step.record`."""
        wait(self.inner.record(call, result=result, error=error))

    def resolve(self, call: int, **outcome: Any) -> None:
        """See `journal.step.Step.resolve`."""
        wait(self.inner.resolve(call, **outcome))


def connect(*args: Any, **options: Any) -> Journal:
    """See `journal.connect`."""
    return Journal(_connect(*args, **options))
