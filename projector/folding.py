"""A batch of records to what it changes in the tables: the fold, with the tasks in memory.

Owns the states of the tasks seen lately. A task that is not here is loaded again through
`load`, by folding its own event rows. Knows neither DuckDB nor the log; what it gives is built
from the states at once, so that the next batch may be folded while this one is written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from journal.acceptance import CONFLICT, GAP
from journal.codec import decode_event
from journal.errors import BadRecord, EventTooNew
from journal.events import (
    ACCEPTANCE_VERSION,
    EVENT_TYPES,
    JOURNAL,
    Envelope,
    JournalCreated,
)
from journal.fold import apply
from journal.genesis import Identity
from journal.log import Record
from journal.partition import partition_of
from journal.resume import checksum
from journal.state import TaskState
from projector.entries import MOST, Entry, TaskRows, open_body, rebuilt
from projector.rows import Row, anomaly_row, event_row, step_rows, task_row

UNDECODABLE = "undecodable"
MISPLACED = "misplaced"
FOREIGN = "foreign"

MEMORY_BYTES = 512 << 20

_OF_TASKS = {name for name, (kind, _, _) in EVENT_TYPES.items() if kind != JOURNAL}


class Changes(Struct):
    """What one batch changes. `gone_*` are the keys of rows to be replaced, all of which stand
    at or past `gone_from`, the lowest of their last offsets."""

    rows: dict[str, list[Row]]
    gone_tasks: list[str] = []
    gone_steps: list[tuple[str, int]] = []
    gone_tasks_from: int = MOST
    gone_steps_from: int = MOST
    partitions: list[int] = []
    records: int = 0


Load = Callable[[list[str]], dict[str, TaskRows]]


class Folder:
    """The tasks in memory, and where each partition stands."""

    def __init__(self, identity: Identity, load: Load, memory_bytes: int = MEMORY_BYTES) -> None:
        self._identity = identity
        self._load = load
        self._memory_bytes = memory_bytes
        self._tasks: OrderedDict[str, Entry] = OrderedDict()
        self._bytes = 0
        self._batch = 0
        self.stopped: EventTooNew | None = None
        """Set when an event was met that this release cannot read; what came before it counts."""

    def fold(self, parts: Sequence[tuple[int, list[Record]]]) -> Changes:
        """Fold (partition, records) pairs, in this order.

        Stops before an event that is too new, says so in `stopped`, and folds nothing more.
        """
        self._batch += 1
        batch = _Batch()
        if self.stopped is not None:
            return batch.changes(self._identity.journal_id)
        decoded = [(p, records, list(map(_decoded, records))) for p, records in parts]
        self._fetch([events for _, _, events in decoded])
        for partition, records, events in decoded:
            done = self._part(batch, partition, records, events)
            batch.records += done
            if done:
                batch.done[partition] = records[done - 1], events[done - 1]
            if self.stopped is not None:
                break
        return batch.changes(self._identity.journal_id)

    def _fetch(self, decoded: list[list[_Decoded]]) -> None:
        tasks = self._tasks
        named = {e.task_id for events in decoded for e in events if type(e) is Envelope}
        missing = {task_id for task_id in named if task_id is not None and task_id not in tasks}
        if missing:
            for task_id, rows in self._load(sorted(missing)).items():
                entry = tasks[task_id] = rebuilt(rows)
                self._bytes += entry.bytes

    def _part(
        self, batch: _Batch, partition: int, records: list[Record], events: list[_Decoded]
    ) -> int:
        """How many of the records are folded: all, or those before one that is too new."""
        done = 0
        try:
            for record, event in zip(records, events, strict=True):
                if type(event) is Envelope:
                    self._one(batch, partition, record, event)
                else:
                    batch.anomaly(partition, record, None, UNDECODABLE, str(event))
                done += 1
        except EventTooNew as error:
            self.stopped = error
        return done

    def _one(self, batch: _Batch, partition: int, record: Record, event: Envelope) -> None:
        if event.type not in _OF_TASKS:
            self._genesis(batch, partition, record, event)
            return
        task_id = event.task_id
        assert task_id is not None
        entry = self._tasks.get(task_id)
        if entry is None and partition_of(task_id, self._identity.partitions) == partition:
            entry = self._tasks[task_id] = Entry(TaskState(task_id, partition=partition))
            self._bytes += entry.bytes
        if entry is None or entry.state.partition != partition:
            batch.anomaly(partition, record, event, MISPLACED)
            return
        offset, state = record.offset, entry.state
        before = state.offset
        bodies = open_body(event)
        label, detail, accepted = apply(state, event, offset, bodies)
        if label:
            batch.anomaly(partition, record, event, label, detail)
        if accepted:
            batch.events.append(event_row(partition, offset, event))
            self._bytes += entry.accepted(offset, len(record.value or b""), bodies)
        elif label not in (CONFLICT, GAP):
            return
        if entry.batch != self._batch:
            entry.batch = self._batch
            self._tasks.move_to_end(task_id)
            batch.task(entry, before)

    def _genesis(self, batch: _Batch, partition: int, record: Record, event: Envelope) -> None:
        bodies = open_body(event)
        if bodies is None or not isinstance(bodies[0], JournalCreated):
            raise EventTooNew(event.type, event.v, f"{partition}:{record.offset}")
        body = bodies[0]
        if body.acceptance > ACCEPTANCE_VERSION:
            raise EventTooNew(event.type, body.acceptance, f"{partition}:{record.offset}")
        if body.journal_id != self._identity.journal_id:
            # Of two that were written at the same moment the first one counts.
            detail = f"genesis record of journal {body.journal_id}"
            batch.anomaly(partition, record, event, FOREIGN, detail)

    def written(self, batch: int) -> None:
        """All batches up to the number `batch` (from 1) are in the file: older tasks may go."""
        for task_id in list(self._oldest(batch)):
            self._bytes -= self._tasks.pop(task_id).bytes

    def _oldest(self, batch: int) -> Iterable[str]:
        excess = self._bytes - self._memory_bytes
        for task_id, entry in self._tasks.items():
            if excess <= 0 or entry.batch > batch:
                return
            excess -= entry.bytes
            yield task_id


_Decoded = Envelope | BadRecord


def _decoded(record: Record) -> _Decoded:
    try:
        return decode_event(record.value, record.key)
    except BadRecord as error:
        return error


class _Batch:
    """What one batch has changed so far."""

    def __init__(self) -> None:
        self.events: list[Row] = []
        self.anomalies: list[Row] = []
        self.tasks: list[Entry] = []
        self.gone_tasks: list[str] = []
        self.tasks_from = MOST
        self.done: dict[int, tuple[Record, _Decoded]] = {}
        self.records = 0

    def anomaly(
        self, partition: int, record: Record, event: Envelope | None, label: str, detail: str = ""
    ) -> None:
        row = anomaly_row(partition, record.offset, event, label, detail, record.value)
        self.anomalies.append(row)

    def task(self, entry: Entry, last_offset: int) -> None:
        """Note the first change of a task in this batch, whose row stands at `last_offset`."""
        self.tasks.append(entry)
        if entry.in_file:
            self.gone_tasks.append(entry.state.task_id)
            self.tasks_from = min(self.tasks_from, last_offset)
        entry.in_file = True

    def changes(self, journal_id: str) -> Changes:
        """The rows as the states are now."""
        steps: list[Row] = []
        calls: list[Row] = []
        gone_steps: list[tuple[str, int]] = []
        steps_from = MOST
        for entry in self.tasks:
            state = entry.state
            task_id, partition = state.task_id, state.partition
            for index, before in entry.changed.items():
                row, its = step_rows(task_id, state.steps[index], partition, *entry.steps[index])
                steps.append(row)
                calls += its
                if before is not None:
                    gone_steps.append((task_id, index))
                    steps_from = min(steps_from, before[1])
            entry.changed.clear()
        offsets: list[Row] = [
            (p, r.offset + 1, e.id if type(e) is Envelope else None, checksum(r.value), journal_id)
            for p, (r, e) in self.done.items()
        ]
        rows = {
            "tasks": [task_row(entry.state, entry.first_offset) for entry in self.tasks],
            "steps": steps,
            "tool_calls": calls,
            "events": self.events,
            "anomalies": self.anomalies,
            "offsets": offsets,
        }
        return Changes(
            rows,
            self.gone_tasks,
            gone_steps,
            self.tasks_from,
            steps_from,
            sorted(self.done),
            self.records,
        )
