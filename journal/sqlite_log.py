"""The embedded log: one SQLite file, for any number of processes of one machine.

This is the side of the event loop: it puts appends together, hands them to the writer thread,
tells outcomes, and reads on a thread of its own. Knows keys, values and offsets; knows no
events, tasks or ownership. How the file is laid out stands in `sqlite_file`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from journal.errors import EventTooLarge, LogUnavailable, UsageError
from journal.log import Append, Record
from journal.sqlite_file import BUSY_SECONDS, check, explain, prepare
from journal.sqlite_read import Heads, bounds, first_at, read_batch, read_key
from journal.sqlite_seat import Seat, no_fork
from journal.sqlite_writer import Writer

FLUSH_RECORDS = 50
VALUE_BYTES = 64 << 20
POLL_SECONDS = 0.02
POLL_SECONDS_AT_MOST = 0.1

P = ParamSpec("P")
T = TypeVar("T")

_logs: weakref.WeakSet[SqliteLog] = weakref.WeakSet()


class SqliteLog:
    """A log in the SQLite file at `url`. Open it with `open`, on the loop that will use it."""

    conditional = True
    partitions = 1

    def __init__(self, url: str, seat: Seat, writer_seat: Seat) -> None:
        """For `open` only."""
        self.url = url
        self._seat = seat
        self._writer_seat = writer_seat
        self._closed = False
        self._begin()
        _logs.add(self)

    def _begin(self) -> None:
        """The state that belongs to one process and one event loop."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer = Writer(self._writer_seat, self._settle_soon)
        self._reader = ThreadPoolExecutor(1, "journal-reader")
        self._heads = Heads()
        self._pending: list[Append] = []
        self._news: set[asyncio.Future[None]] = set()
        self._last = -1
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        create: bool = False,
        *,
        patience_s: float = BUSY_SECONDS,
        mounts: str | None = None,
    ) -> SqliteLog:
        """Open the file, or make it if `create` says so.

        What another process holds locked for more than `patience_s` seconds is
        `LogUnavailable`. `mounts` stands in for the system's own mount table.

        Raises `LogNotFound`, `NotAJournal`, `LogMisconfigured` (a network mount, a newer
        release) or `LogUnavailable`.
        """
        url = os.fspath(path)
        absolute = os.path.abspath(url)

        def opened() -> Seat:
            with no_fork():
                prepare(absolute, create, mounts)
            seat = Seat(absolute, patience_s)
            try:
                with seat.taken() as db:
                    check(absolute, db)
            except BaseException as error:
                seat.close()
                if isinstance(error, apsw.Error):
                    raise explain(absolute, error) from error
                raise
            return seat

        loop = asyncio.get_running_loop()
        # Not the loop's own threads: the caller's tools may hold all of them.
        thread = ThreadPoolExecutor(1)
        try:
            seat = await loop.run_in_executor(thread, opened)
        finally:
            # Whoever is cancelled while others hold the file must not hold up the loop.
            thread.shutdown(wait=False)
        log = cls(url, seat, Seat(absolute, patience_s, seat.known))
        log._loop = loop
        return log

    # --- appending ------------------------------------------------------------------------------

    def append(self, partition: int, append: Append) -> None:
        """See `Log.append`. A value of over 64 MiB is `EventTooLarge`."""
        if partition:
            _only_partition(partition)
        value = append.value
        if type(append.key) is not bytes or type(value) is not bytes:
            raise TypeError("a record's key and value are bytes")
        if self._closed:
            error = LogUnavailable(f"{self.url}: the log is closed; open it again")
            self._running_loop().call_soon(append.failed, error)
            return
        if len(value) > VALUE_BYTES:
            self._refuse(append)
            return
        pending = self._pending
        pending.append(append)
        if len(pending) == 1:
            self._running_loop().call_soon(self._flush, pending)
        elif len(pending) == FLUSH_RECORDS:
            # The first of a long turn can be committed during the rest of it.
            self._flush(pending)

    def _flush(self, pending: list[Append]) -> None:
        # A full list went ahead of its turn; its call comes all the same, and finds another.
        if pending is self._pending:
            self._pending = []
            self._writer.submit(pending)

    def _refuse(self, append: Append) -> None:
        def refuse() -> None:
            # On the writer's thread: what came before is decided, what comes behind is not yet.
            if append.expect is not None:
                append.expect.broken = True
            size = f"{len(append.value):,} bytes, over the limit of {VALUE_BYTES:,}"
            error = EventTooLarge(f"{self.url}: the record has {size}; write it to a file")
            self._settle_soon([], 0, [(append, error)])

        self._running_loop()
        if self._pending:
            self._flush(self._pending)
        self._writer.submit(refuse)

    def _settle_soon(
        self, written: list[Append], first: int, failed: list[tuple[Append, Exception]]
    ) -> None:
        # Without a loop there is nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self._running_loop().call_soon_threadsafe(self._settle, written, first, failed)

    def _settle(
        self, written: list[Append], first: int, failed: list[tuple[Append, Exception]]
    ) -> None:
        for offset, append in enumerate(written, first):
            try:
                append.written(offset)
            except Exception as error:
                self._mistake(error)
        for append, reason in failed:
            try:
                append.failed(reason)
            except Exception as error:
                self._mistake(error)
        if written:
            self._last = first + len(written) - 1
            self._wake()

    def _mistake(self, error: Exception) -> None:
        # One caller's mistake must not cost the others their outcome.
        message = "telling an append's outcome failed"
        self._running_loop().call_exception_handler({"message": message, "exception": error})

    # --- reading --------------------------------------------------------------------------------

    async def read(
        self, partition: int, start: int, end: int | None = None
    ) -> AsyncIterator[list[Record]]:
        """See `Log.read`. A batch is about 1 MiB at most, or one record."""
        _only_partition(partition)
        while True:
            batch, end = await self._call(read_batch, self.url, start, end)
            if not batch:
                return
            yield batch
            start = batch[-1].offset + 1

    async def read_key(self, partition: int, key: bytes, start: int = 0) -> list[Record]:
        """See `Log.read_key`."""
        _only_partition(partition)
        return await self._call(read_key, self._heads, key, start)

    async def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        """See `Log.tail`. Records of this handle come at once, others' within 100 ms."""
        _only_partition(partition)
        pause = POLL_SECONDS
        while True:
            batch, _ = await self._call(read_batch, self.url, start, None)
            if batch:
                yield batch
                start = batch[-1].offset + 1
                pause = POLL_SECONDS
            elif self._last < start:
                await self._wait_for_news(pause)
                pause = min(pause * 1.25, POLL_SECONDS_AT_MOST)

    async def offset_at(self, partition: int, timestamp_ms: int) -> int:
        """See `Log.offset_at`. Looks through the whole log: stamps need not rise."""
        _only_partition(partition)
        return await self._call(first_at, timestamp_ms)

    async def starts(self) -> Mapping[int, int]:
        """See `Log.starts`."""
        return {0: (await self._call(bounds))[0]}

    async def ends(self) -> Mapping[int, int]:
        """See `Log.ends`."""
        return {0: (await self._call(bounds))[1]}

    async def _call(
        self,
        function: Callable[Concatenate[apsw.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        if self._closed:
            raise LogUnavailable(f"{self.url}: the log is closed; open it again")

        def on_thread() -> T:
            try:
                with self._seat.taken() as db:
                    return function(db, *args, **kwargs)
            except apsw.Error as error:
                self._heads.forget()
                raise explain(self.url, error) from error

        return await self._running_loop().run_in_executor(self._reader, on_thread)

    async def _wait_for_news(self, seconds: float) -> None:
        loop = self._running_loop()
        news: asyncio.Future[None] = loop.create_future()
        self._news.add(news)
        alarm = loop.call_later(seconds, self._wake)
        try:
            await news
        finally:
            self._news.discard(news)
            alarm.cancel()

    def _wake(self) -> None:
        for news in self._news:
            if not news.done():
                news.set_result(None)

    # --- the rest -------------------------------------------------------------------------------

    async def truncate(self, partition: int, before: int) -> None:
        """See `Log.truncate`. Goes in steps, so that appends get their turn in between."""
        _only_partition(partition)
        more = True
        while more:
            # Asked before each step: what comes behind the writer's last job is never run.
            if self._closed:
                raise LogUnavailable(f"{self.url}: the log is closed; open it again")
            step = self._writer.call(lambda: self._writer.truncate_some(before))
            more = await asyncio.wrap_future(step)

    async def close(self) -> None:
        """See `Log.close`."""
        if self._closing is None:
            self._closed = True
            self._closing = self._running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        # What was appended before is with the writer: its flush was called for before this task.
        self._wake()
        await asyncio.wrap_future(self._writer.call(self._writer.finish))
        loop = self._running_loop()
        await loop.run_in_executor(self._reader, self._seat.close)
        self._reader.shutdown(wait=False)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            # A forked child: its own loop, whichever it runs.
            self._loop = asyncio.get_running_loop()
        return self._loop


def _only_partition(partition: int) -> None:
    if partition:
        raise UsageError(f"an embedded log has one partition, 0, and no {partition}")


def _after_fork_in_child() -> None:
    # The threads, the loop and what was queued are the parent's.
    for log in list(_logs):
        log._begin()


os.register_at_fork(after_in_child=_after_fork_in_child)
