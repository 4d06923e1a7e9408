"""What can be asked of a journal without claiming anything: a task's state and events, all tasks.

Finds where a task begins, by its id, by a projection, or by reading its partition. Writes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from journal.codec import check_task_id, decode_event
from journal.errors import BadRecord, TaskNotFound
from journal.events import Envelope
from journal.finding import caught_up, cut_at, every_state
from journal.genesis import Identity
from journal.ids import birth_ms
from journal.log import Log, Record
from journal.partition import partition_of
from journal.resume import CheckpointStore, check
from journal.state import TaskState


class Looking:
    """The reading side of a journal that is connected."""

    url: str
    log: Log
    identity: Identity

    def __init__(self, url: str, checkpoints: CheckpointStore | None) -> None:
        self.url = url
        self._checkpoints = checkpoints

    async def state(self, task_id: str) -> TaskState:
        """The task's state now, without claiming it. Raises `TaskNotFound`."""
        state, _, _ = await self.load(task_id)
        if not state.exists:
            raise TaskNotFound(f"no task {task_id} in {self.url}; journal tasks lists them")
        return state

    async def events(self, task_id: str, start: int = 0) -> AsyncIterator[tuple[int, Envelope]]:
        """The task's events from offset `start` of its partition on: (offset, event), as they
        were written, rejected ones too."""
        for record in await self.records(task_id, start):
            with contextlib.suppress(BadRecord):
                yield record.offset, decode_event(record.value, record.key)

    async def records(self, task_id: str, start: int = 0) -> list[Record]:
        """The same as the log holds them, undecodable ones too."""
        partition = partition_of(check_task_id(task_id), self.log.partitions)
        start = start or await self._birth(task_id, partition)
        return await self.log.read_key(partition, task_id.encode(), start)

    async def _birth(self, task_id: str, partition: int) -> int:
        """An offset below which the task has nothing; 0 where its id does not tell its birth."""
        born = birth_ms(task_id)
        return 0 if born is None else await self.log.offset_at(partition, born)

    async def tasks(self, *, status: str | None = None) -> list[TaskState]:
        """Every task's state, from the log alone, in order of appearance."""
        return [s for s in await every_state(self.log) if status in (None, s.status)]

    async def load(self, task_id: str, start: int | None = None) -> tuple[TaskState, int, int]:
        """(state, offset up to which it is known, offset of the task's last record). `start` is
        an offset below which the task has nothing, where the caller knows one."""
        partition = partition_of(check_task_id(task_id), self.log.partitions)
        state = TaskState(task_id, partition=partition)
        if self._checkpoints is not None and start is None:
            found = await self._checkpoints.checkpoint(task_id, self.identity.journal_id)
            if found is not None:
                await check(self.log, partition, found)
                if found.state.exists or not await cut_at(self.log, partition):
                    state, start = found.state, found.next_offset
                # Else the projection may be younger than the cut, and not know of the task.
        if not start:
            start = await self._birth(task_id, partition)
        return await caught_up(self.log, state, start)
