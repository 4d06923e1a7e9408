"""What a log is: ordered partitions of opaque bytes, appended to and read, nothing more.

One small protocol that `sqlite_log` and `kafka_log` implement and that one contract suite
tests. It knows keys, values and offsets; it does not know events, tasks or ownership.

Rules that every log keeps (tests/contract holds them):

- Appends of one process to one partition are written in the order of the calls.
- For every append exactly one of `written` and `failed` is called, once, on the event loop's
  thread. `failed(OutcomeUnknown)` means: it may be there, or come to be there later.
- `append` never blocks and never raises for reasons of the log; those reach `failed`.
- Offsets of a partition rise, but need not be dense, and begin anywhere.
- A record once read at an offset is the same for ever, until it is truncated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from journal.errors import LogMisconfigured

NONE = -1
"""The offset that stands for "no record yet"."""


class Record(NamedTuple):
    """One record as it was read."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class Cursor:
    """What one writer knows of one key: the offset of the key's last record, or `NONE`.

    Passed as `expect`, it makes an append conditional where the log can do that. The log moves
    `offset` on when the append is written. The first refusal sets `broken`, and every append
    behind it that carries the same cursor is refused too: a later event of a pipeline must not
    overtake one that was refused. The writer then reads what came and goes on with a new cursor.
    """

    __slots__ = ("broken", "offset")

    def __init__(self, offset: int = NONE) -> None:
        self.offset = offset
        self.broken = False


class Append:
    """One append on its way. Subclasses say what happens at its end.

    `headers` go to Kafka and are dropped by the embedded log. `timestamp_ms` is the record's
    time (milliseconds since the epoch).
    """

    __slots__ = ("expect", "headers", "key", "timestamp_ms", "value")

    def __init__(
        self,
        key: bytes,
        value: bytes,
        timestamp_ms: int,
        *,
        expect: Cursor | None = None,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.expect = expect
        self.headers = headers

    def written(self, offset: int) -> None:
        """The record is durable. `offset` is `NONE` where the log cannot tell it."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """`AppendRefused`, `EventTooLarge` or `LogUnavailable` (not written), or
        `OutcomeUnknown`."""
        raise NotImplementedError


class Log(Protocol):
    """Ordered, partitioned, append-only. Opened by the backend's own `open`."""

    url: str
    """As the user wrote it; for messages."""

    conditional: bool
    """True where `expect` decides inside the write, so that a written append is accepted
    without being read back. False where it is at most a hint (Kafka)."""

    partitions: int

    def append(self, partition: int, append: Append) -> None:
        """Queue one append; its `written` or `failed` tells the outcome."""

    def read(
        self, partition: int, start: int, end: int | None = None
    ) -> AsyncIterator[list[Record]]:
        """Batches of records with start <= offset < end; `end` is the end as of now unless given.

        Raises `HistoryTruncated` where `start` lies below the log's start, and `LogReplaced`
        where it lies beyond its end.
        """

    async def read_key(self, partition: int, key: bytes, start: int = 0) -> list[Record]:
        """The records of one key from `start` to the end as of now, in order.

        A start below the log's start is no error here: the records that are left are returned.
        """

    def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        """Like `read`, but goes on for ever, waiting for what is appended, by anybody."""

    async def offset_at(self, partition: int, timestamp_ms: int) -> int:
        """An offset at or before the first record that is stamped at this time or later."""

    async def starts(self) -> Mapping[int, int]:
        """Partition to the offset of its first record (its end where it is empty)."""

    async def ends(self) -> Mapping[int, int]:
        """Partition to the offset that the next record gets at the earliest."""

    async def truncate(self, partition: int, before: int) -> None:
        """Delete every record with offset < before, for ever."""

    async def close(self) -> None:
        """Settle what was queued, release everything. Safe to call twice."""


@runtime_checkable
class Monitored(Protocol):
    """What a log can do besides, where others watch how far its readers have come (Kafka)."""

    async def report(self, reader: str, positions: Mapping[int, int]) -> None:
        """Make known that `reader` goes on at these offsets, by partition. Nobody reads them back.

        Raises `LogUnavailable`, within seconds.
        """


@runtime_checkable
class Checked(Protocol):
    """A log whose settings somebody can change while it is open (Kafka)."""

    async def check(self) -> None:
        """Raise `LogMisconfigured` where they would break a promise by now.

        Raises `LogNotFound` and `LogUnavailable`, too.
        """


def changed_partitions(url: str, now: int, before: int) -> LogMisconfigured:
    """What is wrong with a log of another partition count than it was made with."""
    return LogMisconfigured(
        f"{url} has {now} partitions and was created with {before}; tasks would be looked for in "
        f"the wrong ones: copy the first {before}, as they are, into a new log of {before}"
    )


OnScan = Callable[[int, int], None]
"""Told how far a scan is: offsets passed, offsets in all. Once, at its end, both are the same."""


@runtime_checkable
class Scanned(Protocol):
    """A log without an index, whose `read_key` reads the partition from `start` to its end."""

    on_scan: OnScan | None


class _Waiting(Append):
    __slots__ = ("future",)

    future: asyncio.Future[int]

    def written(self, offset: int) -> None:
        if not self.future.done():
            self.future.set_result(offset)

    def failed(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


async def append_and_wait(
    log: Log,
    partition: int,
    key: bytes,
    value: bytes,
    timestamp_ms: int,
    *,
    expect: Cursor | None = None,
    headers: tuple[tuple[str, bytes], ...] = (),
) -> int:
    """Append one record and return its offset, for callers that are in no hurry."""
    append = _Waiting(key, value, timestamp_ms, expect=expect, headers=headers)
    append.future = asyncio.get_running_loop().create_future()
    log.append(partition, append)
    return await append.future
