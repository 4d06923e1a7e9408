"""What follows a partition for its watchers: one comes late, or gives up; what reads fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from journal.errors import JournalError, LogUnavailable
from journal.log import Log, Record, append_and_wait
from journal.memory_log import Memory
from journal.readback import Readback
from tests.wrapped_log import WrappedLog


class Watching:
    """A watcher that keeps what it is told."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.offsets: list[int] = []
        self.error: JournalError | None = None
        self.told = asyncio.Event()

    def seen(self, record: Record) -> None:
        self.offsets.append(record.offset)
        self.told.set()

    def lost(self, error: JournalError) -> None:
        self.error = error
        self.told.set()


class Slow(WrappedLog):
    """It never answers who reads a key; `asked` tells of that."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.asked = asyncio.Event()

    async def read_key(self, partition: int, key: bytes, start: int = 0) -> list[Record]:
        self.asked.set()
        await asyncio.Event().wait()
        return []


@pytest.fixture
async def log() -> AsyncIterator[Slow]:
    log = Memory().handle()
    yield Slow(log)
    await log.close()


async def test_whoever_gives_up_while_it_catches_up_leaves_nothing(log: Slow) -> None:
    readback, first, second = Readback(log, 0), Watching(b"first"), Watching(b"second")
    await readback.watch(first, -1)
    with readback.held():
        await append_and_wait(log, 0, b"first", b"0", 0)
        await first.told.wait()
        late = asyncio.ensure_future(readback.watch(second, -1))
        await log.asked.wait()
        late.cancel()
        await asyncio.wait([late])
    readback.unwatch(first)
    # Nobody watches any more: whoever comes next begins with what it knows itself.
    for n in (1, 2):
        await append_and_wait(log, 0, b"third", str(n).encode(), 0)
    await log.truncate(0, 2)
    third = Watching(b"third")
    await readback.watch(third, 1)
    with readback.held():
        await asyncio.wait_for(third.told.wait(), 60)
    assert (third.offsets, third.error) == ([2], None)


async def test_whoever_comes_late_is_told_what_it_has_missed() -> None:
    log = Memory().handle()
    readback, first, second = Readback(log, 0), Watching(b"first"), Watching(b"second")
    await readback.watch(first, -1)
    with readback.held():
        for key in (b"second", b"first"):
            await append_and_wait(log, 0, key, b"missed", 0)
        await first.told.wait()
        await readback.watch(second, -1)
        assert second.offsets == [0]
        second.told.clear()
        await append_and_wait(log, 0, b"second", b"new", 0)
        await asyncio.wait_for(second.told.wait(), 60)
    assert second.offsets == [0, 2]
    await log.close()


class Broken(WrappedLog):
    """Its tail fails as no log should."""

    async def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        raise ValueError("a mistake")
        yield []


async def test_whoever_watches_is_told_of_a_mistake(log: Slow) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    readback, watching = Readback(Broken(log), 0), Watching(b"key")
    await readback.watch(watching, -1)
    with readback.held():
        await asyncio.wait_for(watching.told.wait(), 60)
    assert type(watching.error) is LogUnavailable
    assert "cannot be followed: ValueError: a mistake" in str(watching.error)
