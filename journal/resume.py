"""What resuming asks of a projection: a task's checkpoint, and where the log goes on from it.

Protocol and struct only. Whoever keeps checkpoints (the projector's store and its client)
implements it and is handed in; this file knows neither DuckDB nor sockets.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from journal.state import TaskState


class Checkpoint(Struct, frozen=True):
    """One task as of one snapshot of the projection.

    state        folded from every event of the task below `next_offset`; without a status
                 where there is none
    next_offset  the first offset of the task's partition that the projection had not read
    """

    state: TaskState
    next_offset: int


class CheckpointStore(Protocol):
    """Something that keeps checkpoints of one journal."""

    async def checkpoint(self, task_id: str, journal_id: str) -> Checkpoint | None:
        """The task's checkpoint; None where nothing is known of its partition yet.

        Raises `ProjectionError` where the projection is of another journal than `journal_id`
        or cannot be used.
        """
