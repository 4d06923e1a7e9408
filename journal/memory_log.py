"""The log in memory: for tests, as long as the process lives and nowhere else.

`Memory` holds the records; any number of handles, `MemoryLog`, share one. A handle belongs to the
`Process` that its context names, so that a test can let one die and another go on with what the
first has written (`journal.testing`). Knows keys, values and offsets; knows no events.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import weakref
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from typing import cast

from journal.blobs import MemoryBlobs
from journal.errors import (
    AppendRefused,
    HistoryTruncated,
    LogNotFound,
    LogReplaced,
    LogUnavailable,
    UsageError,
)
from journal.log import NONE, Append, Record

SCHEME = "memory://"
BATCH_RECORDS = 1_000


class Process:
    """What the handles of one life share. Once `dead` is set, nothing of it reaches the log, and
    that is what its every call raises. Subclasses decide when that is."""

    dead: BaseException | None = None

    def submitted(self, append: Append) -> None:
        """`append` was called."""

    def before(self, append: Append) -> None:
        """It is about to be written."""

    def after(self, append: Append) -> None:
        """It was written, and whoever appended it has not been told."""


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
"""Whose life the running code is."""


_numbers = itertools.count(1)
_open: weakref.WeakValueDictionary[str, Memory] = weakref.WeakValueDictionary()
_kept: dict[str, Memory] = {}
_blobs: weakref.WeakValueDictionary[str, MemoryBlobs] = weakref.WeakValueDictionary()


class Memory:
    """Records in memory, under the URL `memory://NAME`, with the payloads that are kept apart.

    `journal.connect` takes the object itself in place of a URL. The records last as long as the
    object; those of a name that was opened by its URL alone last as long as the process.
    """

    def __init__(self, name: str | None = None) -> None:
        """Raises `UsageError` where the name is taken."""
        self.url = SCHEME + (f"log-{next(_numbers)}" if name is None else name)
        if self.url == SCHEME:
            raise UsageError("a log in memory has a name: memory://NAME")
        if _open.setdefault(self.url, self) is not self:
            raise UsageError(f"{self.url} is there already; give another name, or open it")
        self.blobs = blobs_of(self.url)
        self.first = 0
        self._records: list[Record] = []
        self._by_key: defaultdict[bytes, list[Record]] = defaultdict(list)
        self._lock = threading.Lock()
        self._handles: weakref.WeakSet[MemoryLog] = weakref.WeakSet()

    def __fspath__(self) -> str:
        return self.url

    @classmethod
    def at(cls, url: str, *, create: bool) -> Memory:
        """What is under this URL. Raises `LogNotFound`, `UsageError`."""
        memory = _open.get(url)
        if memory is None:
            if not create:
                raise LogNotFound(f"{url} is not there; this process has not made it")
            memory = _kept[url] = cls(url.removeprefix(SCHEME))
        return memory

    @property
    def end(self) -> int:
        return self.first + len(self._records)

    def handle(self) -> MemoryLog:
        """Another handle, on the running loop and for the process that the context names."""
        handle = MemoryLog(self, PROCESS.get() or Process())
        with self._lock:
            self._handles.add(handle)
        return handle

    def write(self, append: Append) -> int | AppendRefused:
        """The offset of the new record, or why there is none."""
        with self._lock:
            cursor = append.expect
            of_key = self._by_key[append.key]
            head = of_key[-1].offset if of_key else NONE
            if cursor is not None and (cursor.broken or cursor.offset != head):
                cursor.broken = True
                return AppendRefused(
                    f"{self.url}: others have appended to the key; read that first"
                )
            record = Record(self.end, append.key, append.value, append.timestamp_ms)
            self._records.append(record)
            of_key.append(record)
            if cursor is not None:
                cursor.offset = record.offset
            handles = list(self._handles)
        for handle in handles:
            handle.wake()
        return record.offset

    def batch(self, start: int, end: int | None) -> tuple[list[Record], int]:
        """The next records from `start`, and where reading ends: at `end`, or the end as of now.

        Raises `HistoryTruncated` and `LogReplaced` where `start` is outside the log.
        """
        with self._lock:
            if start < self.first:
                raise HistoryTruncated(
                    f"{self.url}: the records from 0:{start} on were deleted; the log starts at "
                    f"0:{self.first}"
                )
            if start > self.end:
                raise LogReplaced(
                    f"{self.url}: ends at 0:{self.end}, before 0:{start}, where reading was to "
                    f"start; it is not the log that was read before"
                )
            end = self.end if end is None else min(end, self.end)
            until = min(end, start + BATCH_RECORDS)
            return self._records[start - self.first : max(start, until) - self.first], end

    def of_key(self, key: bytes, start: int) -> list[Record]:
        """The key's records from `start` on."""
        with self._lock:
            return [r for r in self._by_key.get(key, ()) if r.offset >= start]

    def first_at(self, timestamp_ms: int) -> int:
        """The offset of the first record that is stamped at this time or later, or the end."""
        with self._lock:
            found = (r.offset for r in self._records if r.timestamp_ms >= timestamp_ms)
            return next(found, self.end)

    def truncate(self, before: int) -> None:
        """Delete every record with offset < before."""
        with self._lock:
            count = max(0, min(before, self.end) - self.first)
            for record in self._records[:count]:
                del self._by_key[cast(bytes, record.key)][0]
            del self._records[:count]
            self.first += count


def blobs_of(url: str) -> MemoryBlobs:
    """Where the large payloads of the log at this URL are, whether it is there yet or not."""
    return _blobs.setdefault(url, MemoryBlobs())


class MemoryLog:
    """A handle on a `Memory`. Its appends are written in the next turn of the loop."""

    conditional = True
    partitions = 1

    def __init__(self, memory: Memory, process: Process) -> None:
        """For `Memory.handle` only."""
        self.url = memory.url
        self._memory = memory
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._pending: list[Append] = []
        self._news: set[asyncio.Future[None]] = set()
        self._closed = False

    # --- appending ------------------------------------------------------------------------------

    def append(self, partition: int, append: Append) -> None:
        """See `Log.append`."""
        _only_partition(partition)
        if type(append.key) is not bytes or type(append.value) is not bytes:
            raise TypeError("a record's key and value are bytes")
        if self._closed:
            self._loop.call_soon(self._tell, append, self._process.dead or self._unavailable())
            return
        self._process.submitted(append)
        self._pending.append(append)
        if len(self._pending) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        for append in pending:
            self._tell(append, self._outcome(append))

    def _outcome(self, append: Append) -> int | BaseException:
        process = self._process
        if process.dead is None:
            process.before(append)
        if process.dead is not None:
            return process.dead
        outcome = self._memory.write(append)
        if isinstance(outcome, int):
            process.after(append)
        return process.dead or outcome

    def _tell(self, append: Append, outcome: int | BaseException) -> None:
        try:
            if isinstance(outcome, int):
                append.written(outcome)
            else:
                # No `Exception` where the process is dead: nobody is to handle it.
                append.failed(cast(Exception, outcome))
        except Exception as error:
            # One caller's mistake must not cost the others their outcome.
            message = "telling an append's outcome failed"
            self._loop.call_exception_handler({"message": message, "exception": error})

    # --- reading --------------------------------------------------------------------------------

    async def read(
        self, partition: int, start: int, end: int | None = None
    ) -> AsyncIterator[list[Record]]:
        """See `Log.read`."""
        _only_partition(partition)
        while True:
            batch, end = (await self._memory_now()).batch(start, end)
            if not batch:
                return
            yield batch
            start = batch[-1].offset + 1

    async def read_key(self, partition: int, key: bytes, start: int = 0) -> list[Record]:
        """See `Log.read_key`."""
        _only_partition(partition)
        return (await self._memory_now()).of_key(key, start)

    async def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        """See `Log.tail`."""
        _only_partition(partition)
        while True:
            batch, _ = (await self._memory_now()).batch(start, None)
            if batch:
                yield batch
                start = batch[-1].offset + 1
            else:
                await self._wait_for_news(start)

    async def offset_at(self, partition: int, timestamp_ms: int) -> int:
        """See `Log.offset_at`."""
        _only_partition(partition)
        return (await self._memory_now()).first_at(timestamp_ms)

    async def starts(self) -> Mapping[int, int]:
        """See `Log.starts`."""
        return {0: (await self._memory_now()).first}

    async def ends(self) -> Mapping[int, int]:
        """See `Log.ends`."""
        return {0: (await self._memory_now()).end}

    async def _memory_now(self) -> Memory:
        # Whoever reads in a loop must leave the others their turns.
        await asyncio.sleep(0)
        if self._process.dead is not None:
            raise self._process.dead
        if self._closed:
            raise self._unavailable()
        return self._memory

    def _unavailable(self) -> LogUnavailable:
        return LogUnavailable(f"{self.url}: the log is closed; open it again")

    async def _wait_for_news(self, start: int) -> None:
        news: asyncio.Future[None] = self._loop.create_future()
        self._news.add(news)
        if self._memory.end > start:
            # Another thread's, between the look and the wait.
            news.set_result(None)
        try:
            await news
        finally:
            self._news.discard(news)

    def wake(self) -> None:
        """Something was written. May be called on any thread."""
        if self._news:
            # A loop that is closed has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for news in self._news:
            if not news.done():
                news.set_result(None)

    # --- the rest -------------------------------------------------------------------------------

    async def truncate(self, partition: int, before: int) -> None:
        """See `Log.truncate`."""
        _only_partition(partition)
        (await self._memory_now()).truncate(before)

    async def close(self) -> None:
        """See `Log.close`."""
        self._closed = True
        self._flush()
        self._wake()


def _only_partition(partition: int) -> None:
    if partition:
        raise UsageError(f"a log in memory has one partition, 0, and no {partition}")
