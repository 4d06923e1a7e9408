"""What only the embedded log does: many processes on one file, forks, kills, full disks.

What every log does is in `tests/contract`; which files it may touch, in `test_sqlite_file`.
"""

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
    AppendRefused,
    EventTooLarge,
    LogReplaced,
    LogUnavailable,
    OutcomeUnknown,
    UsageError,
)
from journal.log import Cursor, Record, append_and_wait
from journal.sqlite_file import CHECKPOINT_PAGES, certain, explain, prepare
from journal.sqlite_log import VALUE_BYTES, SqliteLog
from journal.sqlite_seat import Seat
from journal.sqlite_writer import SAVE_HEADS_EVERY, WAL_AFTER_GROUPS, WAL_BYTES
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


# --- disks ----------------------------------------------------------------------------------


async def test_a_full_disk_is_one_line_and_not_the_end(path: str) -> None:
    await (await SqliteLog.open(path, create=True)).close()
    child, pipe = started(SPAWN, sqlite_children.fill_the_disk, path, 1 << 20)
    offsets, error, text, again = await received(pipe)  # type: ignore[misc]
    await asyncio.to_thread(child.join)
    assert child.exitcode == 0
    assert error == "LogUnavailable"
    assert "\n" not in text
    assert path in text
    assert len(offsets) > 10
    # Certainly not written means that the very next one takes its place.
    assert again == offsets[-1] + 1
    assert chains(path) == {b"key": [*offsets, again]}


async def test_a_lost_sync_is_an_unknown_outcome(path: str) -> None:
    await (await SqliteLog.open(path, create=True)).close()
    child, pipe = started(SPAWN, sqlite_children.lose_a_sync, path)
    told, held = await received(pipe)  # type: ignore[misc]
    await asyncio.to_thread(child.join)
    assert child.exitcode == 0
    assert [told[0], told[3]] == [0, 1]
    for kind, text in told[1:3]:
        assert kind == "OutcomeUnknown"
        assert "SQLITE_IOERR_FSYNC" in text
        assert "\n" not in text
    assert held == [b"1", b"4"]
    assert chains(path) == {b"key": [0, 1]}


@pytest.mark.parametrize(
    ("code", "sure"),
    [
        (apsw.SQLITE_BUSY, True),
        (apsw.SQLITE_FULL, True),
        (apsw.SQLITE_IOERR_WRITE, True),
        (apsw.SQLITE_IOERR_FSYNC, False),
        (apsw.SQLITE_IOERR_SHMSIZE, False),
        (apsw.SQLITE_NOMEM, False),
        (apsw.SQLITE_INTERNAL, False),
    ],
)
def test_which_errors_are_certain(code: int, sure: bool) -> None:
    error = apsw.exception_for(code)
    assert isinstance(error, apsw.Error)
    assert certain(error) is sure
    text = str(explain("journal.db", error))
    assert text.startswith("journal.db: ")
    assert "\n" not in text


async def test_what_the_writer_cannot_explain_is_an_unknown_outcome(log: SqliteLog) -> None:
    await put(log, b"1")
    probe = Probe(b"2", at=2**70, expect=Cursor(0))
    await settled(log, probe)
    assert isinstance(probe.error, OutcomeUnknown)
    assert probe.expect is not None
    assert probe.expect.broken
    await put(log, b"3")
    assert values(await everything(log)) == [b"1", b"3"]


# --- speed that must not cost the truth -----------------------------------------------------


async def test_heads_are_saved_now_and_then_and_at_close(path: str) -> None:
    def saved() -> tuple[int, int]:
        db = apsw.Connection(path)
        ((to,),) = db.execute("SELECT heads_to FROM meta").fetchall()
        ((count,),) = db.execute("SELECT count(*) FROM heads").fetchall()
        db.close()
        return to, count  # type: ignore[return-value]

    log = await SqliteLog.open(path, create=True)
    reader = await SqliteLog.open(path)
    keys = [b"key-%d" % n for n in range(SAVE_HEADS_EVERY + 500)]
    for key in keys[:SAVE_HEADS_EVERY:500]:
        assert await reader.read_key(0, key) == []
    for start in range(0, len(keys), 250):
        await settled(log, *(Probe(b"1", key=key) for key in keys[start : start + 250]))
    # The group that crosses the line is told before the heads are saved.
    await put(log, b"behind")
    at, count = saved()
    assert at >= SAVE_HEADS_EVERY - 1
    assert count == at + 1
    for handle in (log, reader):
        for key in (keys[0], keys[at], keys[at + 1], keys[-1]):
            assert values(await handle.read_key(0, key)) == [b"1"]
    for key in (keys[1], keys[-1]):
        (last,) = await reader.read_key(0, key)
        await settled(reader, Probe(b"2", key=key, expect=Cursor(last.offset)))
        assert values(await log.read_key(0, key)) == [b"1", b"2"]
    await log.close()
    await reader.close()
    # Every key, "behind", and two second records.
    assert saved() == (len(keys) + 1 + 2 - 1, len(keys) + 1)
    chains(path)


async def test_the_wal_is_lengthened_and_bounded(log: SqliteLog, path: str) -> None:
    wal = Path(path + "-wal")
    await put(log, b"x")
    assert wal.stat().st_size < WAL_BYTES // 10
    for _ in range(WAL_AFTER_GROUPS + 20):
        await put(log, b"x" * 1_000)
    assert wal.stat().st_size == WAL_BYTES
    for _ in range(60):
        await put(log, *([b"x" * 60_000] * 25))
    assert wal.stat().st_size < WAL_BYTES + CHECKPOINT_PAGES * 8_192
    assert len(await everything(log)) == 1 + WAL_AFTER_GROUPS + 20 + 60 * 25


async def test_a_batch_is_bounded_in_bytes(log: SqliteLog) -> None:
    sizes = [300_000, 800_000, 3_000_000, 10, 10, 900_000, 200_000]
    await put(log, *(b"x" * size for size in sizes))
    batches: list[list[Record]] = [batch async for batch in log.read(0, 0)]
    lengths = [[len(record.value or b"") for record in batch] for batch in batches]
    assert lengths == [[300_000], [800_000], [3_000_000], [10, 10, 900_000], [200_000]]


async def test_a_truncation_in_many_steps_lets_others_write(log: SqliteLog, path: str) -> None:
    for n in range(0, 12_000, 500):
        await settled(log, *(Probe(b"x", key=b"%d" % (n % 7)) for _ in range(500)))
    truncating = asyncio.create_task(log.truncate(0, 11_990))
    await put(log, b"meanwhile")
    await truncating
    assert await log.starts() == {0: 11_990}
    assert len(await everything(log)) == 11
    assert values(await log.read_key(0, b"key")) == [b"meanwhile"]


async def test_a_log_that_is_closed_between_two_steps_of_a_truncation(log: SqliteLog) -> None:
    for _ in range(0, 6_000, 500):
        await settled(log, *(Probe(b"x") for _ in range(500)))
    truncating = asyncio.create_task(log.truncate(0, 6_000))
    await asyncio.sleep(0)
    await log.close()
    with pytest.raises(LogUnavailable, match="closed"):
        await asyncio.wait_for(truncating, 60)


async def test_a_truncation_takes_the_heads_along(path: str) -> None:
    log = await SqliteLog.open(path, create=True)
    for n in range(20):
        await put(log, b"x", key=b"key-%d" % n)
    await log.close()
    log = await SqliteLog.open(path)
    await log.truncate(0, 15)
    await log.close()
    db = apsw.Connection(path)
    assert db.execute("SELECT min(offset), count(*) FROM heads").fetchall() == [(15, 5)]
    db.close()


async def test_a_close_that_is_cancelled_goes_on(log: SqliteLog, path: str) -> None:
    probes = [Probe(b"%d" % n) for n in range(200)]
    for probe in probes:
        log.append(0, probe)
    closing = asyncio.create_task(log.close())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await log.close()
    assert [probe.offset for probe in probes] == list(range(200))
    assert not os.path.exists(path + "-wal")


async def test_a_value_that_is_too_large_fails_alone(log: SqliteLog) -> None:
    cursor = Cursor()
    probes = [
        Probe(b"1", expect=cursor),
        Probe(bytes(VALUE_BYTES + 1), expect=cursor),
        Probe(b"2", expect=cursor),
        Probe(b"x", key=b"other"),
    ]
    await settled(log, *probes)
    assert (probes[0].offset, probes[3].offset) == (0, 1)
    assert isinstance(probes[1].error, EventTooLarge)
    assert isinstance(probes[2].error, AppendRefused)
    assert values(await everything(log)) == [b"1", b"x"]


async def test_closing_with_a_pipeline_under_way(log: SqliteLog) -> None:
    cursor = Cursor()
    probes = [Probe(b"%d" % n, expect=cursor) for n in range(3)]
    log.append(0, probes[0])
    closing = asyncio.create_task(log.close())
    await asyncio.sleep(0)
    log.append(0, probes[1])
    log.append(0, probes[2])
    await closing
    await asyncio.gather(*(probe.done.wait() for probe in probes))
    assert probes[0].offset == 0
    assert [type(probe.error) for probe in probes[1:]] == [LogUnavailable] * 2


async def test_there_is_one_partition(log: SqliteLog) -> None:
    with pytest.raises(UsageError):
        log.append(1, Probe(b"x"))
    with pytest.raises(UsageError):
        await log.read_key(1, b"key")
    with pytest.raises(UsageError):
        await log.truncate(1, 0)


def test_each_loop_opens_its_own(path: str) -> None:
    async def run(value: bytes) -> list[bytes | None]:
        log = await SqliteLog.open(path, create=True)
        await append_and_wait(log, 0, b"key", value, 0)
        found = values(await everything(log))
        await log.close()
        return found

    assert asyncio.run(run(b"1")) == [b"1"]
    assert asyncio.run(run(b"2")) == [b"1", b"2"]
    assert not os.path.exists(path + "-wal")
