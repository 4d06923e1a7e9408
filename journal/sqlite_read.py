"""Reading the embedded log: ranges, one key's records, and the last record of each key.

Plain functions over one connection; they know the tables and nothing of threads or loops.

apsw lets go of the interpreter's lock at each step of a statement, and beside a busy event loop
every step may then wait 5 ms to get it back. So a batch is one row: SQLite strings the columns
together, and they are cut apart here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise

import apsw

from journal.errors import HistoryTruncated, LogReplaced
from journal.log import NONE, Record

BATCH_BYTES = 1 << 20
BATCH_RECORDS = 1_000

_SEQ = "(SELECT seq FROM sqlite_sequence WHERE name = 'records')"
_STATE = f"SELECT {_SEQ}, (SELECT heads_to FROM meta)"
_BOUNDS = f"SELECT (SELECT min(offset) FROM records), {_SEQ} + 1"
_SIZES = """
SELECT group_concat(length(key) + length(value))
FROM (SELECT key, value FROM records WHERE offset >= ? AND offset < ? ORDER BY offset LIMIT ?)
"""
# A BLOB that is taken as text keeps its bytes, NUL and all: nothing looks at the encoding.
_PACK = """
SELECT group_concat(offset), group_concat(timestamp_ms),
    group_concat(length(key)), CAST(group_concat(key, '') AS BLOB),
    group_concat(length(value)), CAST(group_concat(value, '') AS BLOB)
FROM """
_RANGE = _PACK + "(SELECT * FROM records WHERE offset >= ? AND offset < ? ORDER BY offset)"
_LISTED = (
    _PACK + "(SELECT r.* FROM json_each(?) AS j CROSS JOIN records AS r ON r.offset = j.value)"
)
_CHAIN = """
WITH RECURSIVE chain (offset, prev, size) AS (
    SELECT offset, prev, length(value) FROM records WHERE offset = ?
    UNION ALL
    SELECT r.offset, r.prev, length(r.value)
    FROM chain AS c CROSS JOIN records AS r ON r.offset = c.prev WHERE c.prev >= ?
)
SELECT group_concat(offset), group_concat(size) FROM chain
"""
_HEADS = """
SELECT group_concat(last), group_concat(length(key)), CAST(group_concat(key, '') AS BLOB)
FROM (SELECT key, max(offset) AS last FROM records WHERE offset > ? AND offset <= ? GROUP BY key)
"""


def _numbers(text: object) -> list[int]:
    return [int(number) for number in text.split(",")] if isinstance(text, str) else []


def _cut(packed: object, lengths: list[int]) -> list[bytes]:
    whole = packed if isinstance(packed, bytes) else b""
    return [whole[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]


def _unpack(row: tuple[object, ...]) -> list[Record]:
    offsets, stamps, key_lengths, keys, value_lengths, values = row
    records = list(
        map(
            Record,
            _numbers(offsets),
            _cut(keys, _numbers(key_lengths)),
            _cut(values, _numbers(value_lengths)),
            _numbers(stamps),
        )
    )
    records.sort(key=lambda record: record.offset)
    return records


def _batches(offsets: list[int], sizes: Iterable[int]) -> Iterator[list[int]]:
    """Cut `offsets` so that each part stays below the batch bounds, or is a single record."""
    part: list[int] = []
    total = 0
    for offset, size in zip(offsets, sizes, strict=True):
        if part and (total + size > BATCH_BYTES or len(part) == BATCH_RECORDS):
            yield part
            part, total = [], 0
        part.append(offset)
        total += size
    if part:
        yield part


def only_row(
    db: apsw.Connection, sql: str, bindings: tuple[apsw.SQLiteValue, ...] = ()
) -> tuple[apsw.SQLiteValue, ...]:
    """The one row of a query that always has one."""
    (row,) = db.execute(sql, bindings).fetchall()
    return tuple(row)


@contextmanager
def snapshot(db: apsw.Connection) -> Iterator[None]:
    """Everything read inside is of one moment."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


def bounds(db: apsw.Connection) -> tuple[int, int]:
    """(offset of the first record or the end, offset that the next record gets)."""
    first, end = only_row(db, _BOUNDS)
    assert isinstance(end, int)
    return (first if isinstance(first, int) else end), end


def read_batch(
    db: apsw.Connection, url: str, start: int, end: int | None
) -> tuple[list[Record], int]:
    """The next records from `start`, and where reading ends: at `end`, or the end as of now.

    Raises `HistoryTruncated` and `LogReplaced` where `start` is outside the log.
    """
    with snapshot(db):
        first, now = bounds(db)
        if start < first:
            raise HistoryTruncated(
                f"{url}: the records from 0:{start} on were deleted; the log starts at 0:{first}"
            )
        if start > now:
            raise LogReplaced(
                f"{url}: ends at 0:{now}, before 0:{start}, where reading was to start; "
                f"it is not the log that was read before"
            )
        end = now if end is None else min(end, now)
        if start >= end:
            return [], end
        # There are no holes: a transaction that is rolled back gives its offsets back.
        sizes = _numbers(only_row(db, _SIZES, (start, end, BATCH_RECORDS))[0])
        part = next(_batches(list(range(start, start + len(sizes))), sizes))
        return _unpack(only_row(db, _RANGE, (start, part[-1] + 1))), end


class Heads:
    """The last record of each key, as of `seq`, the log's last offset when it was looked at.

    The file's `heads` table is written now and then, up to `saved`; the records past it are
    read. Every key with a record in (saved, seq] is in `known`; any other is in the table.
    """

    __slots__ = ("known", "saved", "seq")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Trust nothing until the next `catch_up`."""
        self.known: dict[bytes, int] = {}
        self.seq = self.saved = NONE - 1

    def catch_up(self, db: apsw.Connection) -> bool:
        """Read what came since; False where nothing did. Call it inside a transaction."""
        seq, saved = only_row(db, _STATE)
        assert isinstance(seq, int)
        assert isinstance(saved, int)
        self.saved = saved
        if seq == self.seq:
            return False
        since = self.seq
        if saved > since:
            self.known.clear()
            since = saved
        last, lengths, keys = only_row(db, _HEADS, (since, seq))
        self.known.update(zip(_cut(keys, _numbers(lengths)), _numbers(last), strict=True))
        self.seq = seq
        return True

    def of(self, db: apsw.Connection, key: bytes) -> int:
        """The offset of the key's last record, which may have been truncated, or `NONE`."""
        head = self.known.get(key)
        if head is not None:
            return head
        rows = db.execute("SELECT offset FROM heads WHERE key = ?", (key,)).fetchall()
        return int(str(rows[0][0])) if rows else NONE

    def save(self, db: apsw.Connection) -> None:
        """Bring the table up to now. Call it inside a write transaction."""
        seq, saved = only_row(db, _STATE)
        assert isinstance(seq, int)
        db.execute(
            "INSERT OR REPLACE INTO heads "
            "SELECT key, max(offset) FROM records WHERE offset > ? GROUP BY key",
            (saved,),
        )
        db.execute("UPDATE meta SET heads_to = ?", (seq,))


def read_key(db: apsw.Connection, heads: Heads, key: bytes, start: int) -> list[Record]:
    """The records of one key from `start` on, in order, by following `prev` from its head."""
    records: list[Record] = []
    with snapshot(db):
        heads.catch_up(db)
        head = heads.of(db, key)
        if head < start:
            return records
        offsets, sizes = only_row(db, _CHAIN, (head, max(start, 0)))
        found, lengths = _numbers(offsets)[::-1], _numbers(sizes)[::-1]
        for part in _batches(found, lengths):
            records += _unpack(only_row(db, _LISTED, (json.dumps(part),)))
    return records


def first_at(db: apsw.Connection, timestamp_ms: int) -> int:
    """The offset of the first record that is stamped at this time or later, or the end."""
    with snapshot(db):
        (found,) = only_row(
            db, "SELECT min(offset) FROM records WHERE timestamp_ms >= ?", (timestamp_ms,)
        )
        return found if isinstance(found, int) else bounds(db)[1]
