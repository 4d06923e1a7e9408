"""Many processes on the file of an embedded log: writing at once, killed, forked, held up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import apsw
import pytest

from journal import sqlite_seat
from journal.errors import (
    LogReplaced,
    LogUnavailable,
)
from journal.log import Cursor
from journal.sqlite_file import prepare
from journal.sqlite_log import SqliteLog
from journal.sqlite_seat import Seat
from tests.contract.probe import Probe, everything, put, settled, take, values
from tests.integration import sqlite_children
from tests.integration.sqlite_children import FORK, SPAWN, chains, received, started


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


@pytest.fixture
async def log(path: str) -> AsyncIterator[SqliteLog]:
    log = await SqliteLog.open(path, create=True)
    yield log
    await log.close()


# --- many processes -------------------------------------------------------------------------


async def test_two_processes_hammer_one_file(log: SqliteLog, path: str) -> None:
    count = 400
    children = [
        started(SPAWN, sqlite_children.hammer, path, name, count) for name in ("one", "two")
    ]
    told = [await received(pipe) for _, pipe in children]
    for child, _ in children:
        await asyncio.to_thread(child.join)
        assert child.exitcode == 0
    found = chains(path)
    (own_one, shared_one), (own_two, shared_two) = told  # type: ignore[misc]
    assert found == {
        b"one": own_one,
        b"two": own_two,
        b"shared": sorted(shared_one + shared_two),
    }
    assert len(found[b"shared"]) == 2 * count
    assert len(values(await log.read_key(0, b"shared"))) == 2 * count


@pytest.mark.parametrize("acknowledged", [1, 60, 3_000, 20_000])
async def test_a_kill_loses_nothing_that_was_acknowledged(path: str, acknowledged: int) -> None:
    await (await SqliteLog.open(path, create=True)).close()
    child, pipe = started(SPAWN, sqlite_children.append_for_ever, path)
    told = [await received(pipe) for _ in range(acknowledged)]
    child.kill()
    with contextlib.suppress(EOFError):
        while True:
            told.append(await received(pipe))
    await asyncio.to_thread(child.join)
    assert child.exitcode == -signal.SIGKILL
    log = await SqliteLog.open(path)
    held = {record.offset: record.value for record in await everything(log)}
    assert all(held[offset] == value for offset, value in told)  # type: ignore[misc]
    assert list(held) == list(range(len(held)))
    for task in range(10):
        key = b"task-%d" % task
        records = await log.read_key(0, key)
        (probe,) = await settled(
            log, Probe(b"more", key=key, expect=Cursor(records[-1].offset if records else -1))
        )
        assert probe.offset >= len(held)
    await log.close()
    chains(path)


async def test_somebody_who_holds_the_lock_too_long_is_named(path: str) -> None:
    log = await SqliteLog.open(path, create=True, patience_s=0.05)
    await put(log, b"1")
    other = apsw.Connection(path)
    other.execute("BEGIN IMMEDIATE")
    cursor = Cursor(0)
    probes = await settled(log, Probe(b"2", expect=cursor), Probe(b"x", key=b"other"))
    assert [type(probe.error) for probe in probes] == [LogUnavailable] * 2
    assert "locked" in str(probes[0].error)
    other.execute("ROLLBACK")
    other.close()
    # What came behind a failed append must not overtake it.
    probes = await settled(log, Probe(b"3", expect=cursor), Probe(b"x", key=b"other"))
    assert cursor.broken
    assert probes[1].offset == 1
    await settled(log, Probe(b"2", expect=Cursor(0)))
    assert values(await log.read_key(0, b"key")) == [b"1", b"2"]
    await log.close()


async def test_a_file_that_was_replaced_under_our_hands(log: SqliteLog, path: str) -> None:
    await put(log, b"1")
    tail = log.tail(0, 1)
    coming = asyncio.create_task(take(tail, 1))
    os.rename(path, path + ".away")
    with pytest.raises(LogReplaced):
        await coming
    (probe,) = await settled(log, Probe(b"lost"))
    assert isinstance(probe.error, LogUnavailable)
    Path(path).write_bytes(b"something else")
    with pytest.raises(LogReplaced):
        await everything(log)
    os.rename(path + ".away", path)
    await put(log, b"2")
    assert values(await everything(log)) == [b"1", b"2"]


async def test_an_opening_that_is_cancelled_does_not_hold_up_the_loop(path: str) -> None:
    prepare(path, create=True)
    holder = apsw.Connection(path)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    loop = asyncio.get_running_loop()
    began = loop.time()
    opening = asyncio.create_task(SqliteLog.open(path, patience_s=20))
    await asyncio.wait([opening], timeout=0.1)
    opening.cancel()
    await asyncio.wait([opening])
    assert loop.time() < began + 10
    holder.close()


# --- forks ----------------------------------------------------------------------------------


async def test_a_forked_child_opens_the_file_anew(log: SqliteLog, path: str) -> None:
    await put(log, b"parent")
    async with aclosing(log.tail(0, 0)) as tail:
        assert values(await take(tail, 1)) == [b"parent"]
        coming = asyncio.create_task(take(tail, 1))
        child, pipe = started(FORK, sqlite_children.append_after_fork, log)
        assert await received(pipe) == [b"parent", b"child"]
        assert values(await coming) == [b"child"]
    # The last one to close deletes the WAL: a child that held no lock of its own would lose it.
    await log.close()
    pipe.send("go on")
    assert await received(pipe) == "done"
    later = await SqliteLog.open(path)
    assert values(await everything(later)) == [b"parent", b"child", b"child again"]
    await put(later, b"parent again")
    await later.close()
    pipe.send("close")
    await asyncio.to_thread(child.join)
    assert child.exitcode == 0
    assert chains(path) == {b"key": [0, 1, 2, 3]}


async def test_what_is_pending_at_a_fork_is_the_parents(log: SqliteLog, path: str) -> None:
    await put(log, b"parent")
    probes = [Probe(b"pending %d" % n, key=b"pending") for n in range(120)]
    for probe in probes:
        log.append(0, probe)
    child, pipe = started(FORK, sqlite_children.append_after_fork, log)
    assert await received(pipe) == [b"parent", b"child"]
    await asyncio.gather(*(probe.done.wait() for probe in probes))
    # The child's connection must outlive ours.
    await log.close()
    pipe.send("go on")
    assert await received(pipe) == "done"
    pipe.send("close")
    await asyncio.to_thread(child.join)
    assert child.exitcode == 0
    assert {key: len(offsets) for key, offsets in chains(path).items()} == {
        b"key": 3,
        b"pending": 120,
    }


def test_no_connection_opens_while_the_process_forks(path: str) -> None:
    prepare(path, create=True)
    opened = threading.Event()

    def open_one() -> None:
        with Seat(path, 5.0).taken():
            opened.set()

    opening = threading.Thread(target=open_one)
    # What `os.fork` calls on this thread; between the two it forks.
    sqlite_seat._before_fork()
    try:
        opening.start()
        assert not opened.wait(0.2)
    finally:
        sqlite_seat._after_fork()
    assert opened.wait(60)
    opening.join()


async def test_the_process_does_not_fork_while_a_file_is_made(path: str) -> None:
    with contextlib.closing(apsw.Connection(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        opening = asyncio.create_task(SqliteLog.open(path, create=True))
        async with asyncio.timeout(60):
            # Until it waits, its connection open, for the other one.
            while not sqlite_seat._fork.locked():  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert not opening.done()
        other.execute("ROLLBACK")
    await (await opening).close()
    assert not sqlite_seat._fork.locked()
