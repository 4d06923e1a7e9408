"""The projector on a disk that is full, and in a folder that it may not write to."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import duckdb
import pytest

from journal.errors import DiskFull, JournalError
from projector.frames import Request, send, socket_path
from projector.running import Projection, opened
from projector.store import Store
from projector.store_file import explained
from tests.make_events import Writer
from tests.projecting import filled, new_log, put_events, tables
from tests.projector_child import PATIENCE_S, answers, running

FILE_BYTES = 1 << 20
"""An empty projection is smaller than that, and what the tests write is larger."""


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """journal.db, and in calm.duckdb what a projection of it has to be."""
    await (await filled(str(tmp_path / "journal.db"), tmp_path, 600)).close()
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")
async def test_who_follows_waits_for_room_and_goes_on(folder: Path) -> None:
    db = folder / "r.duckdb"
    async with running(str(folder / "journal.db"), db, file_bytes=FILE_BYTES) as child:
        assert "following" in await child.line()
        assert f"{db}: the disk is full (File too large); free some space" in await child.line()
        # What it has can be asked for meanwhile.
        await child.has("SELECT count(*) AS n FROM offsets", 1)
        child.unlimited()
        assert "there is room again" in await child.line()
        await child.has("SELECT count(*) AS n FROM tasks", 600)
        assert await child.ended() == 0
    assert len(child.said) == 4  # With the number of events, at the end.
    assert tables(db) == tables(folder / "calm.duckdb")


async def test_once_is_one_line_and_nothing_half_written(folder: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, resource.RLIM_INFINITY))

    def run(limited: bool) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "projector.cli", "run", "--once", "--log", journal, "--db", db],
            preexec_fn=limit if limited else None,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    journal, db = str(folder / "journal.db"), str(folder / "r.duckdb")
    full = await asyncio.to_thread(run, True)
    assert full.returncode == 1
    assert full.stderr == f"projector: {db}: the disk is full (File too large); free some space\n"
    partial = tables(Path(db))
    assert len(partial["events"]) < len(tables(folder / "calm.duckdb")["events"])
    assert (await asyncio.to_thread(run, False)).returncode == 0
    assert tables(Path(db)) == tables(folder / "calm.duckdb")


def full_disk(path: str, journal_id: str | None, full: Callable[[], bool]) -> Store:
    """A store that has no room for a batch while `full()` says so."""

    def commit(con: Any) -> None:
        if full():
            con.execute("SELECT error('Could not write file: No space left on device')")
        con.execute("COMMIT")

    return Store.open(path, journal_id, commit=commit)


async def test_it_tries_until_there_is_room_and_says_so_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db, url = str(folder / "r.duckdb"), str(folder / "journal.db")
    tries: list[bool] = []
    said: list[str] = []

    def full() -> bool:
        tries.append(len(tries) in (1, 2, 3))
        return tries[-1]

    def say(line: str) -> None:
        said.append(line)
        if "room again" in line:
            projection.stop.set()

    projection = Projection(
        db,
        url,
        lambda: opened(url, None),
        say,
        open_store=lambda path, journal_id: full_disk(path, journal_id, full),
        full_s=0,
    )
    await asyncio.wait_for(projection.follow(), PATIENCE_S)
    await projection.close()
    assert [line.split()[0] for line in said] == ["following", f"{db}:", f"{db}:", said[-1][:5]]
    assert said[1].endswith("the disk is full (No space left on device); free some space; waiting")
    # A store whose transaction failed is never used again; else the runner would have a say.
    assert caplog.records == []
    assert tables(Path(db)) == tables(folder / "calm.duckdb")


async def test_it_answers_while_it_waits_for_room(folder: Path) -> None:
    db, url = str(folder / "r.duckdb"), str(folder / "journal.db")
    waiting = asyncio.Event()
    projection = Projection(
        db,
        url,
        lambda: opened(url, None),
        lambda line: waiting.set() if "full" in line else None,
        open_store=lambda path, journal_id: full_disk(path, journal_id, lambda: True),
        full_s=3600,
    )
    following = asyncio.create_task(projection.follow())
    await asyncio.wait_for(waiting.wait(), PATIENCE_S)
    assert await asyncio.wait_for(answers(db, "SELECT count(*) AS n FROM tasks"), 10) == [{"n": 0}]
    projection.stop.set()
    await following
    await projection.close()


async def test_a_reader_that_stands_still_keeps_nobody_from_waiting_for_room(folder: Path) -> None:
    db, url = str(folder / "r.duckdb"), str(folder / "journal.db")
    is_full = False
    written, waiting, room = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def say(line: str) -> None:
        if "disk is full" in line:
            waiting.set()
        if "room again" in line:
            room.set()

    projection = Projection(
        db,
        url,
        lambda: opened(url, None),
        say,
        open_store=lambda path, journal_id: full_disk(path, journal_id, lambda: is_full),
        full_s=0,
    )
    projection.on_written = lambda _: written.set()
    following = asyncio.create_task(projection.follow())
    await asyncio.wait_for(written.wait(), PATIENCE_S)
    with socket.socket(socket.AF_UNIX) as reader:
        await asyncio.to_thread(reader.connect, socket_path(db))
        # More than a socket takes; nobody reads on.
        send(reader, Request(sql="SELECT repeat('x', 1000) AS x FROM range(100_000)"))
        assert await asyncio.to_thread(reader.recv, 1)
        is_full = True
        log, _ = await opened(url, None)
        await put_events(log, [Writer("another").start()])
        await log.close()
        await asyncio.wait_for(waiting.wait(), PATIENCE_S)
        is_full = False
        await asyncio.wait_for(room.wait(), PATIENCE_S)
    projection.stop.set()
    await following
    await projection.close()


@pytest.mark.parametrize(
    "text",
    [
        'TransactionContext Error: Failed to commit: Could not write file "f": '
        "No space left on device",
        'Checkpoint failed for database "d". The database has been invalidated. '
        'Original error: Could not write file "f": Disk quota exceeded',
    ],
)
def test_what_a_full_disk_is(text: str) -> None:
    error = explained("runs.duckdb", duckdb.Error(text))
    assert isinstance(error, DiskFull)
    assert str(error).startswith("runs.duckdb: the disk is full (")


# --- permissions ----------------------------------------------------------------------------


@pytest.fixture
def readable_folder() -> Iterator[Path]:
    """A folder that others may look into but not change."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)
        os.chmod(name, 0o755)


def as_somebody_else(db: str, url: str, pipe: Connection) -> None:
    """Project `url` into `db` without any privilege, and send the error."""
    if os.geteuid() == 0:
        os.setuid(65534)
    else:
        os.chmod(os.path.dirname(db), 0o500)

    async def main() -> None:
        projection = Projection(db, url, lambda: opened(url, None), lambda _: None)
        try:
            await projection.follow()
        except JournalError as error:
            pipe.send(str(error))
        finally:
            await projection.close()

    asyncio.run(main())


@pytest.mark.parametrize("there", [True, False])
async def test_a_read_only_folder_is_one_line(
    readable_folder: Path, folder: Path, there: bool
) -> None:
    db = readable_folder / "r.duckdb"
    if there:
        db.write_bytes((folder / "calm.duckdb").read_bytes())
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        url = Path(name) / "journal.db"
        log, _ = await new_log(str(url))
        await log.close()
        for file in Path(name).iterdir():
            file.chmod(0o666)
        context = multiprocessing.get_context("fork")
        here, pipe = context.Pipe(duplex=False)
        child = context.Process(target=as_somebody_else, args=(str(db), str(url), pipe))
        child.start()
        text = await asyncio.to_thread(here.recv)
        await asyncio.to_thread(child.join)
    assert text == f"{db}: cannot be written; check the permissions of {readable_folder}"
    assert os.listdir(readable_folder) == (["r.duckdb"] if there else [])
    if there:
        assert tables(db) == tables(folder / "calm.duckdb")


async def test_room_for_a_file_that_has_all_is_told(folder: Path) -> None:
    url, db = str(folder / "journal.db"), str(folder / "calm.duckdb")
    tries = 0

    def open_store(path: str, journal_id: str | None) -> Store:
        nonlocal tries
        tries += 1
        if tries <= 2:
            raise DiskFull("the disk is full; free some space")
        return Store.open(path, journal_id)

    said: list[str] = []
    room = asyncio.Event()

    def say(line: str) -> None:
        said.append(line)
        if "there is room again" in line:
            room.set()

    projection = Projection(
        db, url, lambda: opened(url, None), say, open_store=open_store, full_s=0
    )
    following = asyncio.create_task(projection.follow())
    try:
        await asyncio.wait_for(room.wait(), PATIENCE_S)
        assert (await asyncio.to_thread(projection.figures)).ready
    finally:
        projection.stop.set()
        await following
        await projection.close()
    assert said == [
        "the disk is full; free some space; waiting",
        f"{db}: there is room again",
        f"0 records read from {url} into {db}",
    ]
