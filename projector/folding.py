"""A batch of records to what it changes in the tables: the fold, with the tasks in memory.

Owns the states of the tasks seen lately. A task that is not here is loaded again through
`load`, by folding its own event rows. Knows neither DuckDB nor the log; what it gives is built
from the states at once, so that the next batch may be folded while this one is written.
"""

from __future__ import annotations

import hashlib
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
from journal.state import TaskState
from projector.entries import MOST, Entry, TaskRows, open_body, rebuilt, touched
from projector.rows import Row, anomaly_row, event_row, step_rows, task_row

UNDECODABLE = "undecodable"
MISPLACED = "misplaced"
FOREIGN = "foreign"

MEMORY_BYTES = 512 << 20


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

        Stops before an event that is too new, and says so in `stopped`.
        """
        self._batch += 1
        batch = _Batch()
        decoded = [(p, [(r, *_decoded(r)) for r in records]) for p, records in parts]
        self._fetch(decoded)
        for partition, events in decoded:
            done: tuple[Record, Envelope | None] | None = None
            for record, event, reason in events:
                try:
                    if event is None:
                        row = anomaly_row(
                            partition, record.offset, None, UNDECODABLE, reason, record.value
                        )
                        batch.anomalies.append(row)
                    else:
                        self._one(batch, partition, record, event)
                except EventTooNew as error:
                    self.stopped = error
                    break
                done = record, event
                batch.records += 1
            if done is not None:
                batch.done[partition] = done
            if self.stopped is not None:
                break
        return batch.changes(self._identity.journal_id)

    def _fetch(self, decoded: list[tuple[int, list[tuple[Record, Envelope | None, str]]]]) -> None:
        tasks = self._tasks
        missing = {
            event.task_id
            for _, events in decoded
            for _, event, _ in events
            if event is not None and event.task_id is not None and event.task_id not in tasks
        }
        if missing:
            for task_id, rows in self._load(sorted(missing)).items():
                entry = tasks[task_id] = rebuilt(rows)
                self._bytes += entry.bytes

    def _one(self, batch: _Batch, partition: int, record: Record, event: Envelope) -> None:
        offset, raw = record.offset, record.value
        known = EVENT_TYPES.get(event.type)
        if known is None:
            raise EventTooNew(event.type, event.v, f"{partition}:{offset}")
        if known[0] == JOURNAL:
            self._genesis(batch, partition, record, event)
            return
        task_id = event.task_id
        assert task_id is not None
        entry = self._tasks.get(task_id)
        if entry is None:
            if partition_of(task_id, self._identity.partitions) != partition:
                batch.anomalies.append(anomaly_row(partition, offset, event, MISPLACED, "", raw))
                return
            entry = self._tasks[task_id] = Entry(TaskState(task_id, partition=partition))
            self._bytes += entry.bytes
        elif entry.state.partition != partition:
            batch.anomalies.append(anomaly_row(partition, offset, event, MISPLACED, "", raw))
            return
        if entry.batch != self._batch:
            entry.batch = self._batch
            self._tasks.move_to_end(task_id)
        state = entry.state
        before = state.offset
        bodies = open_body(event)
        verdict = apply(state, event, offset, bodies)
        if verdict.label:
            row = anomaly_row(partition, offset, event, verdict.label, verdict.detail, raw)
            batch.anomalies.append(row)
        if verdict.accepted:
            batch.events.append(event_row(partition, offset, event))
            for index in touched(state, bodies):
                batch.step(entry, index, offset)
            before_bytes = entry.bytes
            entry.moved(offset, len(raw or b""))
            self._bytes += entry.bytes - before_bytes
            batch.task(entry, before)
        elif verdict.label in (CONFLICT, GAP):
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
            batch.anomalies.append(
                anomaly_row(partition, record.offset, event, FOREIGN, detail, record.value)
            )

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


def _decoded(record: Record) -> tuple[Envelope | None, str]:
    try:
        return decode_event(record.value, record.key), ""
    except BadRecord as error:
        return None, str(error)


class _Batch:
    """What one batch has changed so far, by task and step."""

    def __init__(self) -> None:
        self.events: list[Row] = []
        self.anomalies: list[Row] = []
        self.tasks: dict[str, Entry] = {}
        self.steps: dict[tuple[str, int], Entry] = {}
        self.gone_tasks: list[str] = []
        self.gone_steps: list[tuple[str, int]] = []
        self.tasks_from = MOST
        self.steps_from = MOST
        self.done: dict[int, tuple[Record, Envelope | None]] = {}
        self.records = 0

    def task(self, entry: Entry, last_offset: int) -> None:
        task_id = entry.state.task_id
        if task_id in self.tasks:
            return
        self.tasks[task_id] = entry
        if entry.in_file:
            self.gone_tasks.append(task_id)
            self.tasks_from = min(self.tasks_from, last_offset)
        entry.in_file = True

    def step(self, entry: Entry, index: int, offset: int) -> None:
        key = (entry.state.task_id, index)
        before = entry.steps.get(index)
        entry.steps[index] = (offset if before is None else before[0], offset)
        if key not in self.steps:
            self.steps[key] = entry
            if before is not None:
                self.gone_steps.append(key)
                self.steps_from = min(self.steps_from, before[1])

    def changes(self, journal_id: str) -> Changes:
        """The rows as the states are now."""
        steps: list[Row] = []
        calls: list[Row] = []
        for (task_id, index), entry in self.steps.items():
            state = entry.state
            row, its = step_rows(task_id, state.steps[index], state.partition, *entry.steps[index])
            steps.append(row)
            calls += its
        offsets: list[Row] = []
        for partition, (record, event) in self.done.items():
            offsets.append(
                (
                    partition,
                    record.offset + 1,
                    None if event is None else event.id,
                    checksum(record.value),
                    journal_id,
                )
            )
        rows = {
            "tasks": [task_row(e.state, e.first_offset) for e in self.tasks.values()],
            "steps": steps,
            "tool_calls": calls,
            "events": self.events,
            "anomalies": self.anomalies,
            "offsets": offsets,
        }
        return Changes(
            rows,
            self.gone_tasks,
            self.gone_steps,
            self.tasks_from,
            self.steps_from,
            sorted(self.done),
            self.records,
        )


def checksum(value: bytes | None) -> str:
    """SHA-256 of a record's value, in hex."""
    return hashlib.sha256(value or b"").hexdigest()
