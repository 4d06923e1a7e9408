"""The projector's tables without DuckDB: `projector.store.Store` as far as the `Runner` needs it.

A commit is one assignment; it fails before or after that where the seed says so. What a table
must not hold twice is checked as it goes in. Knows rows and their columns; knows no events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from journal.errors import ProjectionError
from projector.entries import Offset, TaskRows
from projector.folding import Changes
from projector.rows import COLUMNS, TABLES, Row

_AT = {table: {name: n for n, name in enumerate(COLUMNS[table])} for table in TABLES}
_KEYS = {
    "tasks": ("task_id",),
    "steps": ("task_id", "step_index"),
    "tool_calls": ("task_id", "step_index", "position"),
    "events": ("partition", "offset"),
    "offsets": ("partition",),
}
Kept = dict[str, list[Row]]


def empty() -> Kept:
    return {name: [] for name in TABLES}


class File:
    """What is on the disk: it outlives those who write it."""

    def __init__(self, fails: Callable[[], str]) -> None:
        """`fails` says "before" or "after" the commit, or ""."""
        self.kept = empty()
        self.commits = 0
        self.fails = fails


class Tables:
    """The file, open."""

    def __init__(self, file: File) -> None:
        self._file = file

    def close(self) -> None:
        pass

    def offsets(self) -> dict[int, Offset]:
        return {row[0]: Offset(*row) for row in self._file.kept["offsets"]}

    def load(self, task_ids: list[str]) -> dict[str, TaskRows]:
        kept, at = self._file.kept, _AT["tasks"]
        names = ("task_id", "partition", "last_offset", "epoch_closed", "parent_epoch", "chain")
        found = {
            row[0]: TaskRows(*(row[at[name]] for name in names), [])
            for row in kept["tasks"]
            if row[0] in task_ids
        }
        for row in sorted(kept["events"], key=lambda row: row[1]):
            if row[2] in found:
                body = bytes(row[-1]).decode()
                found[row[2]].events.append((row[1], *row[3:-1], body))
        return found

    def write(self, changes: Changes, tables: Any = None) -> None:
        file = self._file
        fails = file.fails()
        after = changed(file.kept, changes)
        if fails == "before":
            raise ProjectionError("the disk was pulled out")
        file.kept = after
        file.commits += 1
        if fails == "after":
            raise ProjectionError("the answer was lost")


def changed(kept: Kept, changes: Changes) -> Kept:
    """The tables after a batch, by the rules of `Store.write`."""
    after = dict(kept)
    if changes.gone_tasks:
        gone, last = set(changes.gone_tasks), _AT["tasks"]["last_offset"]
        after["tasks"] = [
            row
            for row in kept["tasks"]
            if row[0] not in gone or row[last] < changes.gone_tasks_from
        ]
    if changes.gone_steps:
        keys = set(changes.gone_steps)
        for name in ("steps", "tool_calls"):
            last = _AT[name]["last_offset"]
            after[name] = [
                row
                for row in kept[name]
                if (row[0], row[1]) not in keys or row[last] < changes.gone_steps_from
            ]
    after["offsets"] = [row for row in kept["offsets"] if row[0] not in changes.partitions]
    for name, rows in changes.rows.items():
        if rows:
            after[name] = after[name] + rows
    return after


def doubled(kept: Kept) -> list[str]:
    """Rows that are there twice."""
    found = []
    for name, columns in _KEYS.items():
        at = [_AT[name][column] for column in columns]
        keys = [tuple(row[n] for n in at) for row in kept[name]]
        if len(set(keys)) != len(keys):
            found.append(f"table {name} has a row twice")
    return found


def offsets_in(kept: Kept, partition: int) -> set[int]:
    """The offsets that have a row, of events and of anomalies."""
    at = _AT["anomalies"]
    rows = {row[1] for row in kept["events"] if row[0] == partition}
    return rows | {
        row[at["offset"]] for row in kept["anomalies"] if row[at["partition"]] == partition
    }


def ordered(kept: Kept) -> dict[str, list[str]]:
    """Every table's rows, sorted, to be compared."""
    return {name: sorted(map(repr, map(_plain, rows))) for name, rows in kept.items()}


def _plain(row: Row) -> Row:
    return tuple(
        bytes(v) if isinstance(v, memoryview) or type(v).__name__ == "Raw" else v for v in row
    )
