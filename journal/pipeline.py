"""What one writer has on its way to a log, in order, and who waits for it.

Sends, sends again what was refused, gives up on what takes too long, and fails all of it when its
writer can write no more. What counts, and what a record that the log shows means, is left to
`Owner`. Knows logs and the fold's head; numbers nothing and claims nothing.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque

from msgspec import Struct

from journal.acceptance import ACCEPTED, judge
from journal.errors import (
    AppendRefused,
    JournalError,
    OutcomeUnknown,
    TaskEnded,
    TaskFenced,
    UsageError,
)
from journal.events import CLAIM, EVENT_TYPES, Envelope
from journal.ids import birth_ms, now_ms
from journal.log import Cursor, Log, Record
from journal.pending import Pending
from journal.state import TaskState


class Pipeline(ABC):
    """The appends of one writer to one task."""

    def __init__(self, log: Log, state: TaskState, last: int, deadline_s: float) -> None:
        """`last` is the offset of the key's last record; an append may take `deadline_s`."""
        self.log = log
        self.state = state
        self.key = state.task_id.encode()
        self.partition = state.partition
        self.birth_ms = birth_ms(state.task_id) or 0
        self.cursor = Cursor(last)
        self.deadline_ms = int(deadline_s * 1000)
        self.dead: JournalError | None = None
        """What has ended this worker's ownership."""
        self._last = last
        self._conditional = log.conditional
        self._pending: deque[Pending] = deque()
        self._refused: list[Pending] = []
        self._recovering: asyncio.Task[None] | None = None
        self._unsettled = False
        self._changed: set[asyncio.Future[None]] = set()
        self._left = False

    @abstractmethod
    def written(self, pending: Pending, offset: int) -> None:
        """The log says that the record is durable."""

    @abstractmethod
    def seen(self, record: Record) -> None:
        """One record of this task, in log order."""

    @abstractmethod
    def _was_read(self, pending: Pending) -> bool:
        """Whether the log has shown an event whose acknowledgement is lost: then it is written."""

    def check(self) -> None:
        """Raise what has ended this worker's ownership, if anything has."""
        if self.dead is not None:
            # Not with the frames of all who were told before.
            raise self.dead.with_traceback(None)

    def _submit(self, event: Envelope, body: Struct | None) -> Pending:
        if self.dead is not None:
            self.check()
        if self._left:
            raise UsageError(f"{self._name()}: its block has ended; open the task again to go on")
        pending = Pending(self, event, body, now_ms())
        if self._recovering is not None or self._refused:
            self._refused.append(pending)
        else:
            self._pending.append(pending)
            self.log.append(self.partition, pending)
        return pending

    def failed(self, pending: Pending, error: Exception) -> None:
        """The log says that the record was not, or may not have been, written."""
        if isinstance(error, AppendRefused):
            if pending in self._pending:
                self._pending.remove(pending)
                self._refused.append(pending)
            if not self._pending and self._recovering is None:
                self._recovering = asyncio.ensure_future(self._recover())
            self._wake()
            return
        if pending not in self._pending and pending.future.done():
            return  # the log has shown it
        if self._was_read(pending):
            return
        if pending in self._pending:
            self._pending.remove(pending)
        self._unsettled = True
        self._fail(pending, error)
        # What stands behind it can no longer be accepted: its seq would leave a gap.
        behind, self._refused = self._refused, []
        for later in behind:
            self._fail(later, OutcomeUnknown(f"{self._name()}: an append before this one failed"))

    async def _recover(self) -> None:
        """After a refusal: read what came, fold it, and send again what is still ours to send."""
        try:
            while self._refused:
                for record in await self.log.read_key(self.partition, self.key, self._last + 1):
                    self.seen(record)
                if self.dead is not None:
                    break
                again, self._refused = self._refused, []
                self.cursor = Cursor(self._last)
                for pending in again:
                    if self._claim_lost(pending.event):
                        self._fail(pending, self._die(self._fenced()))
                        continue
                    pending.expect = self.cursor
                    self._pending.append(pending)
                    self.log.append(self.partition, pending)
                while self._pending and not self._refused:
                    await self.change()
        except JournalError as error:
            self._unsettled = True
            for pending in self._refused:
                self._fail(pending, error)
            self._refused = []
        finally:
            self._recovering = None
            refused, self._refused = self._refused, []
            for pending in refused:
                self._fail(pending, self.dead or OutcomeUnknown(f"{self._name()}: try again"))
            # Whoever waits until all is settled has been woken before this was.
            self._wake()

    def _claim_lost(self, event: Envelope) -> bool:
        return EVENT_TYPES[event.type][0] == CLAIM and judge(self.state.head, event) != ACCEPTED

    def expire(self, ms: int) -> None:
        """Give up on what has been on its way for longer than the deadline; `ms` is now."""
        if self._conditional or not self._pending:
            return
        if self._pending[0].sent_ms + self.deadline_ms > ms:
            return
        stuck = [pending for pending in tuple(self._pending) if not self._was_read(pending)]
        self._pending.clear()
        self._unsettled = bool(stuck) or self._unsettled
        for pending in stuck:
            self._fail(pending, self._too_late())

    def _too_late(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self._name()}: not confirmed within {self.deadline_ms / 1000:g} s; "
            f"the next call finds out what became of it"
        )

    # --- waiting --------------------------------------------------------------------------------

    async def change(self, timeout_s: float | None = None) -> None:
        """Return when something has happened to the state or to an append, or the time is up."""
        future = asyncio.get_running_loop().create_future()
        self._changed.add(future)
        try:
            await asyncio.wait((future,), timeout=timeout_s)
        finally:
            self._changed.discard(future)

    async def drain(self) -> None:
        """Return when nothing is on its way any more."""
        while self._pending or self._recovering is not None:
            await self.change()

    def leave(self) -> None:
        """Take no more. Of what is on its way nobody will be told by reading the log: who waits for
        that hears that it is unknown. A conditional log itself tells."""
        self._left = True
        if not self._conditional:
            why = OutcomeUnknown(
                f"{self._name()}: its block ended before this was confirmed; open the task again "
                f"to see what became of it"
            )
            leaving, self._pending = self._pending, deque()
            for pending in leaving:
                self._fail(pending, why)

    def _wake(self) -> None:
        for future in self._changed:
            if not future.done():
                future.set_result(None)

    def _fail(self, pending: Pending, error: Exception) -> None:
        if not pending.future.done():
            pending.future.set_exception(error)
            # Nobody may be waiting any more; that is no reason for a warning.
            pending.future.exception()
        self._wake()

    def _die(self, error: JournalError) -> JournalError:
        if self.dead is None:
            self.dead = error
            dying, self._pending = self._pending, deque()
            for pending in (*dying, *self._refused):
                self._fail(pending, error)
            self._refused = []
            self._wake()
        return self.dead

    def _name(self) -> str:
        return f"task {self.state.task_id}"

    def _fenced(self) -> TaskFenced:
        return TaskFenced(
            f"{self._name()}: another worker claimed it at {self.partition}:{self._last}; "
            f"stop this one"
        )

    def _ended(self) -> TaskEnded:
        return TaskEnded(f"{self._name()} has ended ({self.state.status})")
