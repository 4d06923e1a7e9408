"""One task in memory: its state with what its rows need, and how both come back from the rows.

Pure; knows neither DuckDB nor batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, Struct

from journal.errors import BadRecord, EventTooNew
from journal.events import CLAIM, EVENT_TYPES, Envelope, TaskClaimed, TaskReopened
from journal.fold import apply
from journal.state import COMPLETED, TaskState
from journal.upcasters import read_bodies

MOST = 2**63 - 1
"""The largest number that a column holds; a step of a larger index has no row."""

_CLAIMS = {TaskClaimed, TaskReopened}
_TASK_BYTES = 4_096
_STEP_BYTES = 512

EventRow = tuple[
    int, str, int, str, int | None, str | None, int | None, str | None, str | None, str | None, str
]
"""offset, type, v, id, epoch, owner, seq, ref, at, traceparent, body."""


class TaskRows(Struct, array_like=True, gc=False):
    """What the tables hold of one task: what `rebuilt` makes a state of."""

    task_id: str
    partition: int
    last_offset: int
    epoch_closed: bool
    parent_epoch: int | None
    chain: str
    events: list[EventRow]


class Offset(Struct, frozen=True):
    """How far one partition has been read, and the last record there."""

    partition: int
    next_offset: int
    last_id: str | None
    last_checksum: str | None
    journal_id: str | None


class Entry:
    """One task in memory.

    steps      a step's index to the first and the last offset about it
    changed    what that was before the present batch, for the steps that are changed in it;
               None for one that is new
    batch      the number of the last batch that changed the task
    """

    __slots__ = ("batch", "bytes", "changed", "first_offset", "in_file", "state", "steps")

    def __init__(self, state: TaskState) -> None:
        self.state = state
        self.first_offset = -1
        self.steps: dict[int, tuple[int, int]] = {}
        self.changed: dict[int, tuple[int, int] | None] = {}
        self.in_file = False
        self.bytes = _TASK_BYTES
        self.batch = -1

    def accepted(self, offset: int, size: int, bodies: Sequence[Struct] | None) -> int:
        """Note an accepted event, in the record of `size` bytes at `offset`, that the state has
        been moved past. Returns by how many bytes that made this larger."""
        if self.first_offset < 0:
            self.first_offset = offset
        for body in bodies or ():
            index = getattr(body, "step_index", None)
            if index is not None:
                self._touch(index, offset)
            elif type(body) in _CLAIMS:
                # It can leave the calls of any step that is not completed uncertain.
                for step in self.state.steps.values():
                    if step.status != COMPLETED:
                        self._touch(step.index, offset)
        size += _STEP_BYTES
        self.bytes += size
        return size

    def _touch(self, index: int, offset: int) -> None:
        """Note that the step's row, if it has one, may have changed."""
        if index in self.state.steps and index <= MOST:
            before = self.steps.get(index)
            self.steps[index] = (offset if before is None else before[0], offset)
            if index not in self.changed:
                self.changed[index] = before


def rebuilt(rows: TaskRows) -> Entry:
    """The task as it was when its rows were written.

    Its accepted events are folded; what they do not tell (an epoch that was closed, and the
    chain over that) comes from its row.
    """
    state = TaskState(rows.task_id, partition=rows.partition)
    entry = Entry(state)
    for offset, type, v, id, epoch, owner, seq, ref, at, traced, body in rows.events:
        # Of a sub-task only the latest claim's is kept; every accepted claim passes with that.
        parent = rows.parent_epoch if EVENT_TYPES[type][0] == CLAIM else None
        content = Raw(body.encode())
        event = Envelope(
            type, v, id, rows.task_id, epoch, owner, seq, ref, parent, at, traced, content
        )
        bodies = open_body(event)
        apply(state, event, offset, bodies)
        entry.accepted(offset, len(body), bodies)
    state.head.epoch_closed = rows.epoch_closed
    state.head.parent_epoch = rows.parent_epoch
    state.head.chain = bytes.fromhex(rows.chain)
    state.offset = rows.last_offset
    entry.changed.clear()
    entry.in_file = True
    return entry


def open_body(event: Envelope) -> list[Struct] | None:
    """The bodies, decoded once for all; None where `apply` has to say what is wrong."""
    try:
        return read_bodies(event, "")
    except (BadRecord, EventTooNew):
        return None
