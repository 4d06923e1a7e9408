"""The embedded log and the projector on a disk that is really full, and on one that does not sync.

A limit on the size of files stands in for the disk in `test_full_disk` and `test_projector_disk`,
and SQLite's own layer in `test_sqlite_log`; here the system itself says no.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import journal
from journal.backends import open_log
from journal.errors import DiskFailed, JournalError, LogUnavailable
from journal.genesis import identify
from journal.log import Cursor, append_and_wait
from journal.sqlite_log import SqliteLog
from projector.store import Store
from tests.bad_disk import SmallDisk, fail_syncs, needs_failing_syncs, small_disk
from tests.contract.probe import everything
from tests.integration.sqlite_children import SPAWN, chains, received, started
from tests.projecting import filled, new_log, project, tables
from tests.projector_child import running

STEPS = 6


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 8 << 20) as disk:
        yield disk


# --- the embedded log -----------------------------------------------------------------------


def append_until_full(path: str, pipe: Connection) -> None:
    """Append until there is no room, as often as asked; send each offset that is acknowledged, and
    the error."""

    async def main() -> None:
        log = await SqliteLog.open(path)
        cursor, number = Cursor(), 0
        while await asyncio.to_thread(pipe.recv) == "go on":
            cursor = Cursor(cursor.offset)
            while not cursor.broken:
                value = b"%d " % number + b"x" * 10_000
                try:
                    offset = await append_and_wait(log, 0, b"key", value, 0, expect=cursor)
                except LogUnavailable as error:
                    pipe.send(str(error))
                else:
                    pipe.send((offset, number))
                number += 1
        await log.close()

    asyncio.run(main())


async def test_a_log_on_a_full_disk_keeps_what_it_acknowledged(disk: SmallDisk) -> None:
    path = str(disk.path / "journal.db")
    await (await SqliteLog.open(path, create=True)).close()
    disk.fill(2 << 20)
    child, pipe = started(SPAWN, append_until_full, path)
    told: list[Any] = []

    async def until_full() -> None:
        pipe.send("go on")
        while not isinstance(said := await received(pipe), str):
            told.append(said)
        assert said == f"{path}: the disk is full; free some space and try again"
        # Another process finds what was acknowledged, and nothing else.
        reader = await SqliteLog.open(path)
        held = {record.offset: record.value or b"" for record in await everything(reader)}
        assert {offset: int(value.split()[0]) for offset, value in held.items()} == dict(told)
        await reader.close()

    await until_full()
    first = len(told)
    assert first > 10
    await until_full()
    assert len(told) == first
    disk.make_room()
    await until_full()
    assert len(told) > 2 * first
    pipe.send("stop")
    await asyncio.to_thread(child.join)
    assert child.exitcode == 0
    assert chains(path) == {b"key": [offset for offset, _ in told]}


async def worked(url: str, upto: int) -> list[int]:
    """Record the steps that are missing, and return those that were there."""
    async with journal.connect(url, create=True) as j, j.task("t", "fill a disk") as task:
        there = [n for n in range(STEPS) if task.completed(n)]
        for n in range(upto):
            await task.record_step(n, f"{n} " * 30_000)
        return there


async def test_an_agent_on_a_full_disk_goes_on_where_it_was(disk: SmallDisk) -> None:
    url = str(disk.path / "journal.db")
    assert await worked(url, 2) == []
    disk.fill(150_000)
    with pytest.raises(JournalError) as caught:
        await worked(url, STEPS)
    text = str(caught.value)
    assert text.startswith(f"{url}: ")
    assert "full" in text
    assert "\n" not in text
    disk.make_room()
    assert (await worked(url, STEPS))[:2] == [0, 1]
    assert await worked(url, 0) == list(range(STEPS))


def work_until_it_does_not_sync(url: str, pipe: Connection) -> None:
    """Record steps while the disk syncs, and one when it does not; send what that was told."""

    async def main() -> None:
        async with journal.connect(url, create=True) as j, j.task("t", "sync") as task:
            for n in range(STEPS):
                if n == 2:
                    fail_syncs()
                await task.record_step(n, str(n))
                pipe.send(n)

    try:
        asyncio.run(main())
    except JournalError as error:
        pipe.send((type(error).__name__, str(error)))
    # A log that cannot sync could not be closed either.
    os._exit(0)


@needs_failing_syncs
async def test_an_agent_is_not_told_of_a_step_that_was_not_synced(tmp_path: Path) -> None:
    url = str(tmp_path / "journal.db")
    child, pipe = started(SPAWN, work_until_it_does_not_sync, url)
    said: list[Any] = []
    while not said or isinstance(said[-1], int):
        said.append(await received(pipe))
    await asyncio.to_thread(child.join)
    assert child.exitcode == 0
    assert said[:-1] == [0, 1]
    kind, text = said[-1]
    assert kind == "OutcomeUnknown"
    assert text.startswith(f"{url}: the disk reports an error (SQLITE_IOERR_")
    assert "\n" not in text
    # Whether the third is there is unknown; those that were acknowledged are.
    async with journal.connect(url, create=False) as j:
        state = await j.state("t")
        assert sorted(state.steps)[:2] == [0, 1]
        async with j.task("t") as task:
            for n in range(STEPS):
                await task.record_step(n, str(n))
        assert sorted((await j.state("t")).steps) == list(range(STEPS))


# --- the projector --------------------------------------------------------------------------


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """journal.db, and in calm.duckdb what a projection of it has to be."""
    await (await filled(str(tmp_path / "journal.db"), tmp_path, 300)).close()
    return tmp_path


@pytest.mark.parametrize("spare", [0, 4_096, 1 << 20])
async def test_a_projector_waits_for_room_from_the_first_byte_on(
    disk: SmallDisk, folder: Path, spare: int
) -> None:
    db = disk.path / "r.duckdb"
    disk.fill(spare)
    async with running(str(folder / "journal.db"), db) as child:
        told = await child.until("full")
        assert told.endswith("the disk is full (No space left on device); free some space; "
                             "waiting\n")  # fmt: skip
        disk.make_room()
        await child.until("there is room again")
        await child.has("SELECT count(*) AS n FROM tasks", 300)
        assert await child.ended() == 0
    assert len(child.said) <= 4, child.said
    assert tables(db) == tables(folder / "calm.duckdb")


def project_until_it_does_not_sync(url: str, db: str, pipe: Connection) -> None:
    """Fold in small batches, on a disk that syncs twice; send the error."""

    async def main() -> None:
        log = await open_log(url)
        identity = await identify(log)
        commits = 0

        def commit(con: Any) -> None:
            nonlocal commits
            commits += 1
            if commits == 3:
                fail_syncs()
            con.execute("COMMIT")

        try:
            await project(
                log, identity, Path(db), batch_records=500,
                open_store=lambda: Store.open(db, identity.journal_id, commit=commit),
            )  # fmt: skip
        except JournalError as error:
            pipe.send((type(error).__name__, str(error), commits))

    asyncio.run(main())


@needs_failing_syncs
def test_no_command_leaves_anything_on_such_a_disk(folder: Path) -> None:
    db, before = folder / "calm.duckdb", (folder / "calm.duckdb").read_bytes()
    command = [sys.executable, "-m", "projector.cli", "rebuild"]
    done = subprocess.run(
        [*command, "--log", str(folder / "journal.db"), "--db", str(db)],
        preexec_fn=fail_syncs, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"projector: {db}.rebuild: the disk reports an error (fsync failed); "
        f"check it, then run this again\n"
    )
    assert {path.name for path in folder.glob("*.duckdb*")} == {"calm.duckdb"}
    assert db.read_bytes() == before


@needs_failing_syncs
async def test_a_projector_stops_at_a_disk_that_does_not_sync(folder: Path) -> None:
    db = folder / "r.duckdb"
    child, pipe = started(
        SPAWN, project_until_it_does_not_sync, str(folder / "journal.db"), str(db)
    )
    kind, text, commits = await received(pipe)  # type: ignore[misc]
    await asyncio.to_thread(child.join)
    assert (kind, commits) == (DiskFailed.__name__, 3)
    assert text == f"{db}: the disk reports an error (fsync failed); check it, then run this again"
    log, identity = await new_log(str(folder / "journal.db"))
    await project(log, identity, db)
    await log.close()
    assert tables(db) == tables(folder / "calm.duckdb")
