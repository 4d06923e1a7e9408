"""What only the embedded log does: full disks, bounds, truncation in steps, its end.

What every log does is in `tests/contract`; which files it may touch, in `test_sqlite_file`; what
other processes do to its file, in `test_sqlite_processes`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from journal.errors import (
    AppendRefused,
    EventTooLarge,
    LogUnavailable,
    OutcomeUnknown,
    UsageError,
)
from journal.log import Cursor, Record, append_and_wait
from journal.sqlite_file import CHECKPOINT_PAGES, certain, explain
from journal.sqlite_log import VALUE_BYTES, SqliteLog
from journal.sqlite_writer import SAVE_HEADS_EVERY, WAL_AFTER_GROUPS, WAL_BYTES
from tests.contract.probe import Probe, everything, put, settled, values
from tests.integration import sqlite_children
from tests.integration.sqlite_children import SPAWN, chains, received, started


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


@pytest.fixture
async def log(path: str) -> AsyncIterator[SqliteLog]:
    log = await SqliteLog.open(path, create=True)
    yield log
    await log.close()


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
