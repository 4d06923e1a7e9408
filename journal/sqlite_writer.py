"""The embedded log's writer: one thread that turns concurrent appends into one commit.

Each append is decided against its key's last record inside the write: either the group's one
INSERT names the last offset that it was decided at, and writes nothing where that has moved,
or the group is decided while the write lock is held. Knows nothing of event loops.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

import apsw

from journal.errors import AppendRefused, JournalError, LogUnavailable, OutcomeUnknown
from journal.log import NONE, Append, Cursor
from journal.sqlite_file import certain, explain
from journal.sqlite_read import Heads, bounds
from journal.sqlite_seat import Seat

GROUP_RECORDS = 256
OVERLAPPING_RECORDS = 64
SLOW_SECONDS = 0.002
SAVE_HEADS_EVERY = 4_096
KNOWN_HEADS = 100_000
TRUNCATE_RECORDS = 5_000
WAL_BYTES = 33 << 20
WAL_STEP_BYTES = 4 << 20
WAL_SPARE_BYTES = 1 << 30
WAL_AFTER_GROUPS = 8

T = TypeVar("T")
Settle = Callable[[list[Append], int, list[tuple[Append, Exception]]], None]
"""Is told of a group: those that were written, the offset of the first of them, those that were
not, and why."""

_INSERTS = {
    size: "INSERT INTO records (offset, key, timestamp_ms, prev, value) "
    f"SELECT * FROM (VALUES {','.join(['(?,?,?,?,?)'] * size)}) WHERE column1 IS NOT NULL "
    "AND ? = (SELECT seq FROM sqlite_sequence WHERE name = 'records')"
    for size in (1, 2, 4, 8, 16, 32, 64, 128, GROUP_RECORDS)
}


class _Decision:
    """What a group comes to, at one last offset: rows to insert, what they move, who is refused."""

    __slots__ = ("failed", "first", "moved", "placed", "rows", "written")

    def __init__(self, last: int) -> None:
        self.first = last + 1
        self.rows: list[apsw.SQLiteValue] = []
        self.written: list[Append] = []
        self.failed: list[tuple[Append, Exception]] = []
        self.moved: dict[bytes, int] = {}
        self.placed: dict[Cursor, int] = {}


class Writer:
    """Writes what `submit` is given, in that order, on a thread of its own.

    `settle` is called on that thread, once for each group.
    """

    def __init__(self, seat: Seat, settle: Settle) -> None:
        self._seat = seat
        self._settle = settle
        self._heads = Heads()
        self._alone = False
        self._groups = 0
        self._tried_save = NONE
        self._finished = False
        self._decided: _Decision | None = None
        self._queue: queue.SimpleQueue[list[Append] | Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, item: list[Append] | Callable[[], None]) -> None:
        """Queue appends, at most `GROUP_RECORDS`, or a job."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)
            self._thread.start()
        self._queue.put(item)

    def call(self, job: Callable[[], T]) -> Future[T]:
        """Run a job on the thread, behind everything that was submitted before."""
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:
                    future.set_exception(error)

        self.submit(run)
        return future

    def _run(self) -> None:
        ahead: list[Append] | Callable[[], None] | None = None
        took = 0.0
        while not self._finished:
            if ahead is None and self._queue.empty():
                self._tell()
            item, ahead = ahead or self._queue.get(), None
            if not isinstance(item, list):
                self._tell()
                item()
                continue
            # Small groups let the loop go on with one while the next is committed; where the disk
            # is slow, all that queued up during the last commit shares the next.
            most = GROUP_RECORDS if took > SLOW_SECONDS else OVERLAPPING_RECORDS
            while len(item) < most and not self._queue.empty():
                more = self._queue.get()
                if not isinstance(more, list) or len(item) + len(more) > most:
                    ahead = more
                    break
                item = item + more
            began = time.monotonic()
            decision = self._write(item)
            took = time.monotonic() - began
            self._tell()
            self._decided = decision
            self._keep_up()

    def _tell(self) -> None:
        """Let the callers of the last group know. As late as the next group's INSERT where one is
        queued: whoever wakes the loop earlier has to wait, with all of the disk's time still ahead,
        until the loop gives the interpreter away again."""
        decided, self._decided = self._decided, None
        if decided is not None:
            self._settle(decided.written, decided.first, decided.failed)

    # --- appends --------------------------------------------------------------------------------

    def _write(self, group: list[Append]) -> _Decision:
        error: Exception
        try:
            with self._seat.taken() as db, _no_transaction_left(db):
                return self._write_to(db, group)
        except JournalError as reason:
            error = LogUnavailable(str(reason))
        except apsw.Error as reason:
            error = explain(self._seat.path, reason)
            if not certain(reason):
                error = OutcomeUnknown(f"{error}; the append may or may not be in the log")
        except Exception as reason:
            error = OutcomeUnknown(f"{self._seat.path}: {type(reason).__name__} while writing")
        self._heads.forget()
        self._alone = False
        if isinstance(error, OutcomeUnknown):
            with contextlib.suppress(apsw.Error):
                self._seat.close()
        decision = _Decision(NONE)
        for append in group:
            # What is queued behind must not overtake what was not written.
            if append.expect is not None:
                append.expect.broken = True
            decision.failed.append((append, type(error)(str(error))))
        return decision

    def _write_to(self, db: apsw.Connection, group: list[Append]) -> _Decision:
        if self._alone:
            decision = self._decide(db, group, None)
            if decision is not None:
                self._tell()
                if self._insert(db, decision):
                    return self._done(decision)
        # Somebody else writes too, or an append does not fit what is known here.
        self._tell()
        db.execute("BEGIN IMMEDIATE")
        news = self._heads.catch_up(db)
        decision = self._decide(db, group, bounds(db)[0])
        assert decision is not None
        if decision.written and not self._insert(db, decision):
            raise AssertionError("the last offset moved under the write lock")
        db.execute("COMMIT")
        self._alone = not news
        return self._done(decision)

    def _decide(
        self, db: apsw.Connection, group: list[Append], first: int | None
    ) -> _Decision | None:
        """Decide a group by the known heads. `first` is the log's first offset where all is known
        for sure; without it, None is returned in place of a refusal."""
        decision = _Decision(self._heads.seq)
        rows, written, moved, placed = (
            decision.rows,
            decision.written,
            decision.moved,
            decision.placed,
        )
        known = self._heads.known
        offset = self._heads.seq
        for append in group:
            key = append.key
            cursor = append.expect
            head = moved.get(key)
            if head is not None:
                expected = placed.get(cursor) if cursor is not None else None
            else:
                expected = None
                head = known.get(key)
                if head is None:
                    head = self._heads.of(db, key)
                if first is not None and head < first:
                    head = NONE
            if cursor is not None:
                if expected is None:
                    expected = cursor.offset
                if expected != head or cursor.broken:
                    if first is None:
                        return None
                    cursor.broken = True
                    error = AppendRefused(
                        f"{self._seat.path}: others have appended to the key; read that first"
                    )
                    decision.failed.append((append, error))
                    continue
                placed[cursor] = offset + 1
            offset += 1
            rows += (offset, key, append.timestamp_ms, head, append.value)
            moved[key] = offset
            written.append(append)
        return decision

    def _insert(self, db: apsw.Connection, decision: _Decision) -> bool:
        """Write the rows, unless the log's last offset is not what they were decided at."""
        count = len(decision.written)
        size = 1 << (count - 1).bit_length()
        rows = decision.rows
        rows += (None,) * (5 * (size - count))
        rows.append(self._heads.seq)
        # One statement, which is its own transaction: apsw gives the interpreter's lock away
        # once, for the whole commit.
        db.execute(_INSERTS[size], rows)
        return db.changes() > 0

    def _done(self, decision: _Decision) -> _Decision:
        self._heads.known.update(decision.moved)
        self._heads.seq += len(decision.written)
        for cursor, offset in decision.placed.items():
            cursor.offset = offset
        return decision

    # --- upkeep ---------------------------------------------------------------------------------

    def _keep_up(self) -> None:
        self._groups += 1
        if WAL_AFTER_GROUPS < self._groups <= WAL_AFTER_GROUPS + WAL_BYTES // WAL_STEP_BYTES + 1:
            self._tell()
            with contextlib.suppress(JournalError, apsw.Error, OSError):
                self._grow_wal()
        heads = self._heads
        if heads.seq - max(heads.saved, self._tried_save) >= SAVE_HEADS_EVERY:
            self._tried_save = heads.seq
            self._tell()
            self.save_heads()

    def finish(self) -> None:
        """The last job: save the heads if anything was written, and end connection and thread."""
        self._finished = True
        if self._groups:
            self.save_heads()
        with contextlib.suppress(apsw.Error):
            self._seat.close()

    def save_heads(self) -> None:
        """Bring the file's table of heads up to now. It only saves readers time, so it may fail."""
        if self._heads.seq <= self._heads.saved:
            return
        with (
            contextlib.suppress(JournalError, apsw.Error),
            self._seat.taken() as db,
            _no_transaction_left(db),
        ):
            db.execute("BEGIN IMMEDIATE")
            self._heads.catch_up(db)
            self._heads.save(db)
            db.execute("COMMIT")
            self._heads.saved = self._heads.seq
            if len(self._heads.known) > KNOWN_HEADS:
                self._heads.known.clear()

    def _grow_wal(self) -> None:
        """Lengthen the WAL ahead of what is written, a step at a time: a commit that lengthens the
        file takes half as long again. SQLite takes zeros for the end of the log."""
        with self._seat.taken() as db, _no_transaction_left(db):
            db.execute("BEGIN IMMEDIATE")
            # No one else can write to the WAL now, and it carries no locks that closing would drop.
            with open(db.filename_wal, "r+b") as wal:
                size = wal.seek(0, os.SEEK_END)
                disk = os.statvfs(db.filename_wal)
                if 0 < size < WAL_BYTES and disk.f_bavail * disk.f_frsize > WAL_SPARE_BYTES:
                    try:
                        wal.write(bytes(min(WAL_BYTES - size, WAL_STEP_BYTES)))
                        wal.flush()
                        os.fsync(wal.fileno())
                    except OSError:
                        wal.truncate(size)
                        raise
            db.execute("ROLLBACK")

    def truncate_some(self, before: int) -> bool:
        """Delete some of the records with offset < before; True while there are more of them."""
        try:
            with self._seat.taken() as db, _no_transaction_left(db):
                db.execute("BEGIN IMMEDIATE")
                first, end = bounds(db)
                until = min(before, end)
                stop = min(until, first + TRUNCATE_RECORDS)
                db.execute("DELETE FROM records WHERE offset < ?", (stop,))
                if stop == until:
                    db.execute("DELETE FROM heads WHERE offset < ?", (until,))
                db.execute("COMMIT")
        except apsw.Error as error:
            raise explain(self._seat.path, error) from error
        finally:
            self._heads.forget()
            self._alone = False
        return stop < until


@contextlib.contextmanager
def _no_transaction_left(db: apsw.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if db.in_transaction:
            with contextlib.suppress(apsw.Error):
                db.execute("ROLLBACK")
        raise
