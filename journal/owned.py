"""What an open task may still do: its worker may have been fenced, or the run is to end.

Knows the owner's pipeline and the state; knows nothing of steps, calls and messages, and of
sub-tasks only that they are cancelled first.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from journal import events as ev
from journal.acceptance import CANCELLED
from journal.errors import TaskEnded
from journal.owner import Owner
from journal.state import TaskState


class Owned(ABC):
    """How far a worker may go on with a task."""

    def __init__(self, state: TaskState, owner: Owner | None) -> None:
        self.state = state
        self._owner = owner
        self._cancelling: asyncio.Task[None] | None = None

    @abstractmethod
    async def cancel_children(self, reason: str | None) -> None:
        """Cancel every sub-task that has not ended."""

    @property
    def owner(self) -> Owner:
        """The pipeline. Raises `TaskEnded`, or `TaskFenced` as soon as that is known."""
        owner = self._owner
        if owner is None:
            raise self.ended()
        if owner.dead is not None:
            owner.check()
        return owner

    @property
    def id(self) -> str:
        return self.state.task_id

    def ended(self) -> TaskEnded:
        """What whoever wants more of a task that has ended is told."""
        return TaskEnded(f"task {self.id} has ended ({self.status})")

    def check(self) -> None:
        """Raise what has ended this worker's ownership, if anything has: from then on the state
        goes on with another worker's events, which are no answer to this one."""
        if self._owner is not None:
            self._owner.check()

    @property
    def may_go_on(self) -> bool:
        """Whether this worker still owns the run, and nobody wants it to end."""
        return (
            self._owner is not None
            and self._owner.dead is None
            and self.state.running
            and not self.state.head.cancel_requested
        )

    async def ready(self) -> None:
        """Whether something new may begin: settles what is unknown, raises what `check` raises, and
        `TaskEnded` where the run was to be cancelled, which this then records."""
        self.check()
        if self._owner is not None:
            # What has an unknown outcome may be the very thing that is asked for now.
            await self._owner.settled()
        if self.state.head.cancel_requested and self.state.running:
            await self.cancel_here(self.state.cancel_reason)
        if self.status == CANCELLED:
            if self._owner is not None:
                await self.cancel_here(self.state.error)
            why = self.state.error or "no reason was given"
            raise TaskEnded(f"task {self.id} was cancelled: {why}")

    async def look(self) -> None:
        """See what others have told this task up to now: messages, answers, a wish to end it.
        A decision looks by itself."""
        await self.owner.catch_up()
        await self.ready()

    async def cancel_here(self, reason: str | None) -> None:
        """End the run as cancelled, its children first, as its owner. Whoever asks for it, and
        however often, it is done once, and done to the end; where it fails, by who asks next."""
        if self._cancelling is None or _failed(self._cancelling):
            self._cancelling = asyncio.ensure_future(self._cancel(reason))
        await asyncio.shield(self._cancelling)

    async def cancellation_ended(self) -> None:
        """Return when what `cancel_here` has begun is over, whatever has come of it."""
        if self._cancelling is not None:
            await asyncio.wait([self._cancelling])

    async def _cancel(self, reason: str | None) -> None:
        await self.cancel_children(reason)
        if self.state.running:
            await self.owner.append("TaskCancelled", ev.TaskCancelled(reason))

    @property
    def running(self) -> bool:
        """Whether there is more to do. Raises `TaskFenced` once another worker has claimed."""
        if self._owner is None or not self.state.running:
            return False
        self._owner.check()
        return True

    @property
    def status(self) -> str:
        return self.state.status


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
