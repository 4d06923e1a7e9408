"""One tail per partition, shared by every open task of the process that lives there.

It hands each record to the watchers of its key, in log order, and runs only while somebody
holds it. Knows keys and offsets; decodes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Protocol

from journal.errors import JournalError, LogUnavailable
from journal.log import Log, Record


class Watcher(Protocol):
    """What is told of the records of one key."""

    key: bytes

    def seen(self, record: Record) -> None:
        """A record with this key, in order; it may have been seen before."""

    def lost(self, error: JournalError) -> None:
        """Nothing more will come: the log cannot be followed."""


class Readback:
    """The tail of one partition."""

    def __init__(self, log: Log, partition: int) -> None:
        self._log = log
        self._partition = partition
        self._watchers: dict[bytes, list[Watcher]] = {}
        self._holders = 0
        self._task: asyncio.Task[None] | None = None
        self._position: int | None = None

    @property
    def position(self) -> int:
        """The offset that it hands out next; 0 while nobody watches."""
        return self._position or 0

    async def watch(self, watcher: Watcher, known: int) -> None:
        """Tell `watcher` of every record of its key past the offset `known`. Where this raises, it
        is not told."""
        watchers = self._watchers.setdefault(watcher.key, [])
        watchers.append(watcher)
        if self._position is None:
            self._position = known + 1
        elif self._position > known + 1:
            # The tail has passed some that this watcher has not seen. What it hands on while
            # they are read is past all of them, so it has to wait.
            watchers.remove(watcher)
            missed = _Late(watcher)
            watchers.append(missed)
            try:
                for record in await self._log.read_key(self._partition, watcher.key, known + 1):
                    watcher.seen(record)
            except BaseException:
                self.unwatch(missed)
                raise
            watchers[watchers.index(missed)] = watcher
            for record in missed.kept:
                watcher.seen(record)

    def unwatch(self, watcher: Watcher) -> None:
        """The opposite of `watch`."""
        watchers = self._watchers.get(watcher.key, [])
        if watcher in watchers:
            watchers.remove(watcher)
        if not watchers:
            self._watchers.pop(watcher.key, None)
        if not self._watchers:
            self._position = None
            self._stop()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Follow the log while inside."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def hold(self) -> None:
        self._holders += 1
        if self._task is None:
            self._task = asyncio.ensure_future(self._follow())

    def release(self) -> None:
        self._holders -= 1
        if self._holders == 0:
            self._stop()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _follow(self) -> None:
        try:
            watchers = self._watchers
            async for batch in self._log.tail(self._partition, self._position or 0):
                for record in batch:
                    for watcher in watchers.get(record.key or b"", ()):
                        watcher.seen(record)
                if batch and self._position is not None:
                    self._position = batch[-1].offset + 1
        except JournalError as error:
            self._lost(error)
        except Exception as error:
            # Not foreseen; whoever waits here would wait for ever.
            why = f"{self._log.url} cannot be followed: {type(error).__name__}: {error}"
            self._lost(LogUnavailable(why))
            raise

    def _lost(self, error: JournalError) -> None:
        self._task = None
        for watching in list(self._watchers.values()):
            for watcher in list(watching):
                watcher.lost(error)


class _Late:
    """Stands in for a watcher that is still catching up."""

    def __init__(self, watcher: Watcher) -> None:
        self.key = watcher.key
        self.kept: list[Record] = []
        self._watcher = watcher

    def seen(self, record: Record) -> None:
        self.kept.append(record)

    def lost(self, error: JournalError) -> None:
        self._watcher.lost(error)
