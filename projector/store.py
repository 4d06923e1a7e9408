"""The projection's DuckDB file, open: rows in, rows out.

One writer; any number of readers through cursors of it. Rows and offsets go in together, in
one transaction. Knows tables and SQL; knows neither events nor states nor the log.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import duckdb
import pyarrow as pa

from journal.errors import ProjectionError
from projector.entries import Offset, TaskRows
from projector.folding import Changes
from projector.store_file import attach, check_journal, clear, explained
from projector.store_schema import check_place, create, followed, is_ours, looks_new

_CLOSE_SECONDS = 5.0
"""How long closing waits for readers that it has interrupted."""

_LOCKED = (
    "SET GLOBAL enable_external_access = false",
    # Nobody's SQL may read our Python variables.
    "SET GLOBAL python_enable_replacements = false",
    "SET GLOBAL lock_configuration = true",
)

Commit = Callable[[Any], None]
"""Ends a transaction, given its connection; tests hand in one that fails."""

Cut = Callable[[], None]


def _nothing() -> None: ...


def _commit(con: Any) -> None:
    con.execute("COMMIT")


class Store:
    """An open projection. `open` for the writer, `open_for_reading` for anybody else."""

    def __init__(self, path: str, con: duckdb.DuckDBPyConnection, commit: Commit) -> None:
        """For `open` and `open_for_reading` only."""
        self.path = path
        # A connection that is at work refuses to be asked for a cursor: this one never works.
        self._root = con
        self._con = con.cursor()
        self._con.execute("USE d")
        self._commit = commit
        self._lock = threading.Condition()
        self._reading: dict[duckdb.DuckDBPyConnection, Cut] = {}
        self._closed = False

    # --- opening ------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: str, journal_id: str | None = None, *, commit: Commit = _commit) -> Self:
        """Open the file for writing, or make it. A file that is refused is only read.

        Raises `ProjectionError`: no DuckDB file, foreign tables, another schema, another
        journal than `journal_id`, a file that somebody else holds, a folder without write
        permission.
        """
        path = followed(path)
        new = looks_new(path)
        check_place(path)
        ours = False
        if new:
            clear(path)
        else:
            probe = attach(path, read_only=True)
            try:
                ours = is_ours(probe, path)
                if ours:
                    check_journal(probe, path, journal_id)
            finally:
                probe.close()
        con = attach(path)
        try:
            con.execute("USE d")
            if not ours:
                create(con)
            for setting in _LOCKED:
                con.execute(setting)
        except BaseException as error:
            con.close()
            if isinstance(error, duckdb.Error):
                raise explained(path, error) from error
            raise
        return cls(path, con, commit)

    @classmethod
    def open_for_reading(cls, path: str) -> Self:
        """Open a file that no projector holds. Raises `ProjectionError`."""
        path = followed(path)
        if looks_new(path):
            raise ProjectionError(f"{path}: no projection there; make one with: projector run")
        con = attach(path, read_only=True)
        try:
            if not is_ours(con, path):
                raise ProjectionError(f"{path}: is empty; fill it with: projector run")
            con.execute("USE d")
            for setting in _LOCKED:
                con.execute(setting)
        except BaseException:
            con.close()
            raise
        return cls(path, con, _commit)

    def close(self) -> None:
        """Stop what is being read, and close. Safe to call twice."""
        with self._lock:
            self._closed = True
            for cursor in self._reading:
                cursor.interrupt()
            if not self._lock.wait_for(lambda: not self._reading, _CLOSE_SECONDS):
                # Whoever waits for the other end of a connection hears of no interruption, and
                # would hold the file.
                for cut in self._reading.values():
                    cut()
                self._lock.wait_for(lambda: not self._reading, _CLOSE_SECONDS)
        self._con.close()
        self._root.close()

    def check_journal(self, journal_id: str) -> None:
        """Raise `ProjectionError` where the rows are of another journal."""
        with self.snapshot() as cursor:
            check_journal(cursor, self.path, journal_id)

    # --- writing ------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Bring all that is committed into the file itself, so that it is whole without its WAL."""
        try:
            self._con.execute("CHECKPOINT d")
        except duckdb.Error as error:
            raise explained(self.path, error) from error

    def write(self, changes: Changes, tables: dict[str, pa.Table]) -> None:
        """Rows and offsets in one transaction. After any error the file must be opened anew:
        it tells what became of the transaction."""
        con = self._con
        try:
            con.execute("BEGIN")
            if changes.gone_tasks:
                con.execute(
                    f"DELETE FROM tasks WHERE last_offset >= {changes.gone_tasks_from} "
                    "AND task_id IN (SELECT unnest($1))",
                    [changes.gone_tasks],
                )
            if changes.gone_steps:
                keys = [list(column) for column in zip(*changes.gone_steps, strict=True)]
                for table in ("steps", "tool_calls"):
                    con.execute(
                        f"DELETE FROM {table} WHERE last_offset >= {changes.gone_steps_from} "
                        "AND (task_id, step_index) IN (SELECT unnest($1), unnest($2))",
                        keys,
                    )
            con.execute(
                'DELETE FROM offsets WHERE "partition" IN (SELECT unnest($1))',
                [changes.partitions],
            )
            for name, rows in tables.items():
                con.from_arrow(rows).insert_into(name)
            self._commit(con)
        except duckdb.Error as error:
            raise explained(self.path, error) from error

    # --- reading ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def snapshot(self, cut: Cut = _nothing) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor in a read-only transaction: everything read through it is of one moment."""
        with self._lock:
            if self._closed:
                raise ProjectionError(f"{self.path}: the projection is being closed; try again")
            cursor = self._root.cursor()
            self._reading[cursor] = cut
        try:
            cursor.execute("USE d")
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            yield cursor
        except duckdb.Error as error:
            raise explained(self.path, error) from error
        finally:
            with self._lock:
                cursor.close()
                del self._reading[cursor]
                self._lock.notify_all()

    def offsets(self) -> dict[int, Offset]:
        """Every partition's offset."""
        with self.snapshot() as cursor:
            return _offsets(cursor)

    def load(self, task_ids: list[str]) -> dict[str, TaskRows]:
        """What the tables hold of these tasks; those that are not there are left out."""
        with self.snapshot() as cursor:
            return _load(cursor, task_ids)

    def task(self, task_id: str) -> tuple[TaskRows | None, dict[int, Offset]]:
        """One task and all offsets, of one moment."""
        with self.snapshot() as cursor:
            return _load(cursor, [task_id]).get(task_id), _offsets(cursor)

    @contextlib.contextmanager
    def query(self, sql: str, cut: Cut = _nothing) -> Iterator[pa.RecordBatchReader]:
        """The result of exactly one SELECT, streamed while the block lasts. `cut` ends what the
        block waits for, from another thread, where the file is to be closed.

        Raises `ProjectionError` for anything else and for SQL that fails.
        """
        try:
            statements = duckdb.extract_statements(sql)
        except duckdb.Error as error:
            raise explained(self.path, error) from error
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise ProjectionError("one SELECT at a time is answered here, and nothing else")
        with self.snapshot(cut) as cursor:
            # The statement's type is not enough (a SELECT can hold a DELETE): the transaction
            # is read-only, and nothing outside this database can be reached.
            reader = cursor.sql(statements[0].query).to_arrow_reader(10_000)
            try:
                yield reader
            finally:
                # It holds the file as the cursor does.
                reader.close()


def _offsets(cursor: Any) -> dict[int, Offset]:
    rows = cursor.execute('SELECT * FROM offsets ORDER BY "partition"').fetchall()
    return {row[0]: Offset(*row) for row in rows}


def _load(cursor: Any, task_ids: list[str]) -> dict[str, TaskRows]:
    tasks = cursor.execute(
        'SELECT task_id, "partition", last_offset, epoch_closed, parent_epoch, chain, '
        "first_offset FROM tasks WHERE task_id IN (SELECT unnest($1))",
        [task_ids],
    ).fetchall()
    if not tasks:
        return {}
    found = {
        task_id: TaskRows(task_id, partition, last, closed, parent_epoch, chain, [])
        for task_id, partition, last, closed, parent_epoch, chain, _ in tasks
    }
    events = cursor.execute(
        'SELECT task_id, "offset", type, v, id, epoch, owner, seq, ref, "at", traceparent, body '
        # The bounds let DuckDB skip the row groups that lie outside of them.
        f'FROM events WHERE "offset" BETWEEN {min(row[6] for row in tasks)} '
        f"AND {max(row[2] for row in tasks)} "
        'AND task_id IN (SELECT unnest($1)) ORDER BY "offset"',
        [list(found)],
    ).fetchall()
    for row in events:
        found[row[0]].events.append(row[1:])
    return found
