"""What resuming asks of a projection: a task's checkpoint, and where the log goes on from it.

Whoever keeps checkpoints (the projector's store and its client) implements the protocol and is
handed in; this file knows neither DuckDB nor sockets.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

from msgspec import Struct

from journal.errors import HistoryTruncated, LogReplaced
from journal.log import Log
from journal.state import TaskState


def checksum(value: bytes | None) -> str:
    """SHA-256 of a record's value, in hex."""
    return hashlib.sha256(value or b"").hexdigest()


class Checkpoint(Struct, frozen=True):
    """One task as of one snapshot of the projection.

    state          folded from every event of the task below `next_offset`; without a status
                   where there is none
    next_offset    the first offset of the task's partition that the projection had not read
    last_checksum  `checksum` of the record before it; None where it had read none
    """

    state: TaskState
    next_offset: int
    last_checksum: str | None = None


class CheckpointStore(Protocol):
    """Something that keeps checkpoints of one journal."""

    async def checkpoint(self, task_id: str, journal_id: str) -> Checkpoint | None:
        """The task's checkpoint; None where nothing is known of its partition yet.

        Raises `ProjectionError` where the projection is of another journal than `journal_id`
        or cannot be used.
        """


async def check(log: Log, partition: int, checkpoint: Checkpoint) -> None:
    """Raise `LogReplaced` where the log is not the one that the checkpoint was made from."""
    if checkpoint.last_checksum is None:
        return
    last = checkpoint.next_offset - 1
    found: list[str] = []
    try:
        async for batch in log.read(partition, last, last + 1):
            found += [checksum(record.value) for record in batch]
    except HistoryTruncated:
        # Deleted since, as retention does; what comes after it is there.
        return
    if found != [checkpoint.last_checksum]:
        raise LogReplaced(
            f"{log.url}: the record at {partition}:{last} is not the one that the projection has "
            f"read; the log was replaced: project it anew, or resume without checkpoints"
        )
