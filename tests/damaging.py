"""A journal with projections of it, what damages a DuckDB file, and the command `projector`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest

from projector.cli import main
from projector.running import Opened, opened
from projector.store_schema import HEAD_BYTES
from tests.make_events import many
from tests.projecting import new_log, project, put

BLOCK_BYTES = 256 << 10


class Ran(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def projector(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """The command, in this process."""

    def run(*args: object) -> Ran:
        capsys.readouterr()
        return Ran(main(list(map(str, args))), *capsys.readouterr())

    return run


def apart(*args: object) -> Ran:
    """The command as a process of its own: locks hold between processes."""
    command = [sys.executable, "-m", "projector.cli", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


Projector = Callable[..., Ran]


@pytest.fixture
async def projected(tmp_path: Path) -> Path:
    """journal.db, a projection of it in r.duckdb, and in calm.duckdb what that has to be."""
    log, identity = await new_log(str(tmp_path / "journal.db"))
    await put(log, many(100))
    for name in ("r.duckdb", "calm.duckdb"):
        await project(log, identity, tmp_path / name)
    await log.close()
    os.chmod(tmp_path / "r.duckdb", 0o640)
    return tmp_path


@pytest.fixture
def projector_killed(projected: Path) -> Path:
    """The same with an r.duckdb that a killed projector has left: all of it is in the WAL."""
    (projected / "r.duckdb").unlink()
    killed(projected, "r.duckdb")
    os.chmod(projected / "r.duckdb", 0o640)
    return projected


def killed(folder: Path, name: str) -> None:
    """Project journal.db into a file, and be killed once all of it is in the WAL."""
    code = """
import asyncio, os, signal, sys
from pathlib import Path
from projector.store import Store
from tests.projecting import new_log, project

async def main(folder, name):
    log, identity = await new_log(str(folder / "journal.db"))
    open_store = lambda: Store.open(str(folder / name), identity.journal_id)
    runner = await project(log, identity, folder / name, open_store=open_store,
                           on_written=lambda _: os.kill(os.getpid(), signal.SIGKILL))

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""
    child = subprocess.run([sys.executable, "-c", code, str(folder), name], check=False)
    assert child.returncode == -signal.SIGKILL


def opener(folder: Path) -> Callable[[], Awaitable[Opened]]:
    return lambda: opened(str(folder / "journal.db"), None)


def contents(folder: Path) -> dict[str, bytes]:
    """The files around the projection, but for the log's."""
    files = (p for p in folder.iterdir() if p.is_file() and not p.name.startswith("journal.db"))
    return {p.name: p.read_bytes() for p in files}


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def scribbled(path: Path, at: int, scribble: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(scribble)


def of_events(path: Path) -> int:
    """A place in a block of `events.task_id`, which no opening reads."""
    with duckdb.connect(str(path), read_only=True) as con:
        sql = (
            "SELECT max(block_id) FROM pragma_storage_info('events') WHERE column_name = 'task_id'"
        )
        ((block,),) = con.execute(sql).fetchall()
    return HEAD_BYTES + int(block) * BLOCK_BYTES + 100


DAMAGE: dict[str, Callable[[Path], None]] = {
    "cut": lambda path: cut(path, 100_000),
    "cut in its first block": lambda path: cut(path, HEAD_BYTES + 1),
    "a scribbled head": lambda path: scribbled(path, 20, b"scribble"),
    "no head": lambda path: scribbled(path, 0, bytes(4_096)),
    "scribbled headers": lambda path: scribbled(path, 4_096, os.urandom(8_192)),
    "a block": lambda path: scribbled(path, of_events(path), b"scribble"),
}
