"""A task's sub-tasks: each with a journal of its own, under the parent's name and for its epoch.

`SubtaskStarted` is read back on the parent before the child is claimed, and the child's claims
carry the parent's epoch, so that a fenced parent starts and steals nothing. Knows open tasks and
the owner's pipeline; how a child is found and claimed is the journal's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from journal import events as ev
from journal.acceptance import CANCELLED, FAILED
from journal.codec import check_task_id
from journal.declared import declared, fit, refit
from journal.errors import (
    AskTimedOut,
    JournalError,
    ReplayDiverged,
    SubtaskFailed,
    TaskEnded,
    TaskFenced,
    TaskMismatch,
    ToolError,
)
from journal.payloads import payload, type_name
from journal.state import COMPLETED, STARTED, Subtask
from journal.tools import run_function
from journal.values import decode_value, digest_value

if TYPE_CHECKING:
    from journal.task import Task

_FAILURES = (AskTimedOut, SubtaskFailed, ToolError)
"""Errors of this library that are the task's own, and not about who owns it."""


class Opener(Protocol):
    """What opens a child: the journal."""

    def child(
        self, parent: Task, subtask: Subtask, *, start: int | None = None, create: bool = True
    ) -> AbstractAsyncContextManager[Task | None]:
        """The child, claimed for the parent; None where there is none and `create` is False.
        `start` is an offset below which it has nothing, where the parent knows one."""

    async def before_child(self, child_task_id: str) -> int | None:
        """Such an offset for a child that its parent is about to start; None where none is needed.
        To be asked before: once it has started, another parent can have taken it over."""


class Children:
    """The sub-tasks of one open task."""

    def __init__(self, task: Task, opener: Opener) -> None:
        self._task = task
        self._opener = opener
        self._running: dict[str, tuple[asyncio.Task[Any], Task]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._stopped = False

    async def run(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """See `Task.subtask`."""
        task = self._task
        await task.ready()
        kind = declared(function)
        digest = digest_value([list(args), kwargs])
        called = getattr(function, "__qualname__", type(function).__qualname__)
        start = None
        if name not in task.state.subtasks:
            child_id = check_task_id(f"{task.id}:{name}")
            start = await self._opener.before_child(child_id)
            body = ev.SubtaskStarted(name, child_id, called, digest)
            await task.owner.append("SubtaskStarted", body, read_back=True)
        subtask = task.state.subtasks[name]
        if (subtask.function, subtask.arguments_digest) != (called, digest):
            raise ReplayDiverged(
                f"task {task.id}: sub-task {name} is recorded of {subtask.function} with arguments "
                f"{subtask.arguments_digest}, now it is {called} with {digest}"
            )
        cause: BaseException | None = None
        if subtask.status == STARTED:
            cause = await self._attempt(subtask, start, function, args, kwargs)
            subtask = task.state.subtasks[name]
        if subtask.status == COMPLETED:
            answer = decode_value(subtask.result, task.blobs.get)
            return refit(answer, kind, f"task {task.id}: sub-task {name}")
        error = subtask.error or "no reason was given"
        raise SubtaskFailed(
            f"sub-task {name} {'failed' if subtask.status == FAILED else 'was cancelled'}: {error}",
            name,
            subtask.error_type or subtask.status,
        ) from cause

    async def _attempt(
        self,
        subtask: Subtask,
        start: int | None,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> BaseException | None:
        """Run the child to its end and record that; returns the exception that it failed with."""
        task, cause = self._task, None
        async with contextlib.AsyncExitStack() as stack:
            child = await self._open(stack, subtask, start)
            if child.running:
                try:
                    # It may have been cancelled while the child was not there to be told.
                    await task.ready()
                    cause = await self._run(subtask.name, child, function, args, kwargs)
                except TaskEnded:
                    if task.status == CANCELLED:
                        with contextlib.suppress(TaskFenced, TaskEnded):
                            await _cancel(child, task.state.error)
                    raise
            state = child.state
            end = ev.SubtaskCompleted(
                subtask.name, state.status, error_type=state.error_type, error=state.error
            )
            if state.final_answer is not None:
                end.result = state.final_answer
        await task.owner.append("SubtaskCompleted", end, ref=subtask.id)
        return cause

    async def _open(
        self, stack: contextlib.AsyncExitStack, subtask: Subtask, start: int | None
    ) -> Task:
        while True:
            try:
                child = await stack.enter_async_context(
                    self._opener.child(self._task, subtask, start=start)
                )
            except (TaskFenced, TaskEnded):
                # Claimed by another parent, and then this one is fenced, or ended just now by
                # one that this parent has replaced, and then there is a result.
                await self._task.look()
                start = None
            else:
                assert child is not None
                return child

    async def _run(
        self,
        name: str,
        child: Task,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> BaseException | None:
        running = asyncio.ensure_future(run_function(function, (child, *args), kwargs))
        self._running[name] = running, child
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.ensure_future(self._watch())
        try:
            value = await running
            if child.running:
                kind = declared(function)
                if kind is not Any:
                    raw = await payload(value, child.blobs)
                    fit(decode_value(raw, child.blobs.get), kind)
                await child.complete(value)
        except asyncio.CancelledError:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await running
            if self._stopped:
                # It was not the caller that cancelled this, but what happened to the parent.
                await self._task.ready()
                if not self._task.running:
                    raise self._task.ended() from None
            raise
        except Exception as error:
            if isinstance(error, TaskEnded) and child.status == CANCELLED:
                return error
            if isinstance(error, JournalError) and not isinstance(error, _FAILURES):
                raise
            if child.running:
                await child.fail(error, error_type=type_name(error))
            return error
        finally:
            self._running.pop(name, None)
            if not self._running and self._watcher is not None:
                self._watcher.cancel()
                self._watcher = None
            # Who cancels the child would wait for ever once nobody watches its records.
            await child.cancellation_ended()
        return None

    # --- the end of the parent --------------------------------------------------------------------

    async def _watch(self) -> None:
        """Stop the children when the parent is to be cancelled, or is not ours any more."""
        task = self._task
        # What has ended its ownership is told by whoever asks for something next.
        with contextlib.suppress(JournalError), task.owner.watching():
            while task.may_go_on:
                await task.owner.change()
        self._stopped = True
        for running, _ in list(self._running.values()):
            running.cancel()

    async def cancel(self, reason: str | None) -> None:
        """Cancel every child that has not ended, here or started by an earlier process."""
        for running, _ in list(self._running.values()):
            running.cancel()
        told: set[str] = set()
        # While one is told the start of another can come to be accepted.
        while left := [
            subtask
            for subtask in self._task.state.subtasks.values()
            if subtask.status == STARTED and subtask.name not in told
        ]:
            told.add(left[0].name)
            await self._end(left[0], reason)

    async def _end(self, subtask: Subtask, reason: str | None) -> None:
        """Cancel one child."""
        _, child = self._running.get(subtask.name, (None, None))
        while True:
            try:
                if child is not None:
                    await _cancel(child, reason)
                    return
                opened = self._opener.child(self._task, subtask, create=False)
                async with opened as found:
                    if found is not None:
                        await _cancel(found, reason)
                return
            except TaskMismatch:
                # The id was taken by a task of somebody else's: there is no such child to end.
                return
            except (TaskFenced, TaskEnded):
                # Claimed meanwhile by who was about to run it here, and then it is ours to claim
                # again, or by another parent, and then this one is fenced; or it has just ended.
                child = None
                await self._task.owner.catch_up()


async def _cancel(child: Task, reason: str | None) -> None:
    if child.running:
        await child.cancel_here(reason)
