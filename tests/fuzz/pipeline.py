"""From a record's bytes to rows, and what must hold of any bytes at all.

`check` and `check_pieces` are what both the property tests and the fuzz target call: they fold
hostile records, among a good task's and alone, and compare. Knows neither Hypothesis
nor atheris.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from itertools import islice
from typing import Any

from msgspec import Raw

from journal.codec import decode_event, encode_event
from journal.errors import BadRecord, EventTooNew
from journal.events import EVENT_TYPES, OWNER, Envelope
from journal.genesis import Identity
from journal.log import Record
from journal.upcasters import read_bodies
from projector.arrow import table
from projector.entries import TaskRows, rebuilt
from projector.folding import Changes, Folder
from projector.rows import COLUMNS, TABLES, task_row
from tests.make_events import Pair, Writer, pair

IDENTITY = Identity("0" * 32, 1)

Row = dict[str, Any]
Parts = list[tuple[int, list[Record]]]


def _life() -> list[Envelope]:
    w = Writer("good")
    return [w.start(), *w.step(0, tools=0), w.own("TaskCompleted", final_answer="done")]


GOOD = [pair(event) for event in _life()]


def hostile(lines: Iterable[bytes], task_id: str = "t") -> list[Pair]:
    """Each line as a record of the task, behind its start.

    A line `TYPE VERSION SEQ BODY` is the body in an envelope of the task's owner, with SEQ, one
    digit, added to its last `seq`: 1 is accepted and reaches the fold, 0 and 2 close the epoch.
    Any other line is the record's value as it stands.
    """
    w, key = Writer(task_id), task_id.encode()
    found = [pair(w.start())]
    asked = w.run_id
    for line in lines:
        type, v, step, body = [*line.split(b" ", 3), b"", b"", b""][:4]
        name = type.decode(errors="replace")
        if name not in EVENT_TYPES or not (_NUMBER.fullmatch(v) and _NUMBER.fullmatch(step)):
            found.append((key, line))
            continue
        id, ref = f"h{len(found)}", asked if name in _ANSWERS else w.run_id
        if EVENT_TYPES[name][0] == OWNER:
            event = Envelope(
                name, int(v), id, task_id, w.epoch, w.owner, w.seq + int(step), ref, body=_HERE
            )
        else:
            event = Envelope(name, int(v), id, task_id, w.epoch + 1, "other", 1, ref, body=_HERE)
        # The body's bytes go in as they are, whether they are JSON or not.
        value = encode_event(event).replace(bytes(_HERE), body)
        found.append((key, value))
        if isinstance(decoded(value, key), BadRecord):
            continue
        if EVENT_TYPES[name][0] == OWNER and step == b"1":
            w.seq += 1
        if name == "TaskClaimed":
            w.epoch, w.owner = w.epoch + 1, "other"
        if name in _QUESTIONS:
            asked = id
    return found


_NUMBER = re.compile(rb"[0-9]{1,3}")
_HERE = Raw(b'{"the body":"goes here"}')
_QUESTIONS = ("InputRequested", "TimerSet", "SubtaskStarted")
_ANSWERS = ("InputReceived", "TimerFired", "SubtaskCompleted")


def decoded(value: bytes, key: bytes) -> Envelope | BadRecord:
    """The event, or why it is none; anything else that is raised is a defect."""
    try:
        return decode_event(value, key)
    except BadRecord as error:
        return error


class Tables:
    """The tables as the store would hold them, in memory, with cells as Arrow takes them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {name: [] for name in TABLES}

    def write(self, changes: Changes) -> None:
        gone_steps = set(changes.gone_steps)
        gone: dict[str, Callable[[Row], bool]] = {
            "tasks": lambda r: (
                r["task_id"] in changes.gone_tasks and r["last_offset"] >= changes.gone_tasks_from
            ),
            "offsets": lambda r: r["partition"] in changes.partitions,
        }
        gone["steps"] = gone["tool_calls"] = lambda r: (
            (r["task_id"], r["step_index"]) in gone_steps
            and r["last_offset"] >= changes.gone_steps_from
        )
        for name, is_gone in gone.items():
            self.rows[name] = [row for row in self.rows[name] if not is_gone(row)]
        for name, rows in changes.rows.items():
            if rows:
                self.rows[name] += table(name, rows).to_pylist()

    def load(self, task_ids: list[str]) -> dict[str, TaskRows]:
        found = {
            row["task_id"]: TaskRows(
                row["task_id"],
                row["partition"],
                row["last_offset"],
                row["epoch_closed"],
                row["parent_epoch"],
                row["chain"],
                [],
            )
            for row in self.rows["tasks"]
            if row["task_id"] in task_ids
        }
        for row in sorted(self.rows["events"], key=lambda row: row["offset"]):
            if row["task_id"] in found:
                cells = [row[name] for name in COLUMNS["events"]]
                found[row["task_id"]].events.append((cells[1], *cells[3:]))
        return found

    def sorted(self) -> dict[str, list[str]]:
        return {name: sorted(map(repr, rows)) for name, rows in self.rows.items()}

    def of(self, task_id: str) -> dict[str, list[str]]:
        """One task's rows without their positions."""
        places = ("partition", "offset", "first_offset", "last_offset")
        return {
            name: sorted(
                repr({column: cell for column, cell in row.items() if column not in places})
                for row in self.rows[name]
                if row["task_id"] == task_id
            )
            for name in ("tasks", "steps", "tool_calls", "events")
        }


def whole(records: list[Record]) -> tuple[Tables, EventTooNew | None]:
    """All records as one batch."""
    tables = Tables()
    folder = Folder(IDENTITY, tables.load)
    tables.write(folder.fold([(0, records)]))
    return tables, folder.stopped


def in_pieces(records: list[Record]) -> tuple[Tables, EventTooNew | None]:
    """Record by record, with a crash after each: every state comes back from its rows."""
    tables = Tables()
    for record in records:
        folder = Folder(IDENTITY, tables.load)
        tables.write(folder.fold([(0, [record])]))
        if folder.stopped is not None:
            return tables, folder.stopped
    return tables, None


def as_records(pairs: Iterable[Pair]) -> list[Record]:
    return [Record(offset, key, value, 0) for offset, (key, value) in enumerate(pairs)]


def check(pairs: list[Pair]) -> None:
    """Hold the promises over any records: nothing but `BadRecord` and `EventTooNew` is raised
    inside, each record has a row, and good ones around it are kept."""
    mixed: list[Pair] = []
    good = iter(GOOD)
    for key, value in pairs:
        mixed.append((key, value))
        event = decoded(value, key)
        if isinstance(event, Envelope):
            assert decode_event(encode_event(event)) == event
            _opened(event)
        if isinstance(decoded(value, b"good"), BadRecord):
            mixed.append((b"good", value))
        mixed += islice(good, 1)
    mixed += good
    records = as_records(mixed)
    tables, stopped = whole(records)

    (at,) = [row["next_offset"] for row in tables.rows["offsets"]] or [0]
    assert (f"0:{at}" if at < len(records) else None) == (stopped and stopped.position)
    seen = {row["offset"] for name in ("events", "anomalies") for row in tables.rows[name]}
    for offset in set(range(at)) - seen:
        # Only a genesis record has no row; a journal's own, that is.
        event = decoded(*reversed(mixed[offset]))
        assert isinstance(event, Envelope)
        assert event.type == "JournalCreated"
    assert tables.of("good") == _quiet(sum(one in GOOD for one in mixed[:at]))


def check_pieces(pairs: list[Pair]) -> None:
    """The rows are the same however records are cut into batches, with a crash after each."""
    records = as_records(pairs)
    (tables, stopped), (again, stopped_again) = whole(records), in_pieces(records)
    assert again.sorted() == tables.sorted()
    assert str(stopped_again) == str(stopped)


@cache
def _quiet(count: int) -> dict[str, list[str]]:
    """The good task's rows with nothing around its first events."""
    return whole(as_records(GOOD[:count]))[0].of("good")


def check_rebuilt(tables: Tables) -> None:
    """Every task comes back from its rows as it was when they were written."""
    for row in tables.rows["tasks"]:
        entry = rebuilt(tables.load([row["task_id"]])[row["task_id"]])
        (again,) = table("tasks", [task_row(entry.state, entry.first_offset)]).to_pylist()
        assert again == row


def _opened(event: Envelope) -> None:
    try:
        read_bodies(event, "0:0")
    except (BadRecord, EventTooNew):
        return
