"""A DuckDB file that was cut short or scribbled on, and `projector rebuild`.

What a SIGKILL leaves of a rebuild is in `tests/crash/test_boundaries_kill.py`.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest

from journal.errors import DiskFailed, DiskFull, EventTooNew, ProjectionDamaged, ProjectionError
from projector.cli import main
from projector.rebuild import rebuild
from projector.running import Opened, opened
from projector.store import Store
from projector.store_file import explained
from projector.store_schema import HEAD_BYTES
from tests.make_events import Writer, many, pair
from tests.projecting import new_log, project, put, rows, tables
from tests.projector_child import answers, running
from tests.wrapped_log import WrappedLog

BLOCK_BYTES = 256 << 10
LINE = re.compile(r"projector: \S+: is damaged \([^)]+\); .* projector rebuild\n")


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
async def filled(tmp_path: Path) -> Path:
    """journal.db, a projection of it in r.duckdb, and in calm.duckdb what that has to be."""
    log, identity = await new_log(str(tmp_path / "journal.db"))
    await put(log, many(100))
    for name in ("r.duckdb", "calm.duckdb"):
        await project(log, identity, tmp_path / name)
    await log.close()
    os.chmod(tmp_path / "r.duckdb", 0o640)
    return tmp_path


@pytest.fixture
def killed(filled: Path) -> Path:
    """The same with an r.duckdb that a killed projector has left: all of it is in the WAL."""
    code = """
import asyncio, os, signal, sys
from pathlib import Path
from projector.store import Store
from tests.projecting import new_log, project

async def main(folder):
    log, identity = await new_log(str(folder / "journal.db"))
    open_store = lambda: Store.open(str(folder / "r.duckdb"), identity.journal_id)
    runner = await project(log, identity, folder / "r.duckdb", open_store=open_store,
                           on_written=lambda _: os.kill(os.getpid(), signal.SIGKILL))

asyncio.run(main(Path(sys.argv[1])))
"""
    (filled / "r.duckdb").unlink()
    child = subprocess.run([sys.executable, "-c", code, str(filled)], check=False)
    assert child.returncode == -signal.SIGKILL
    os.chmod(filled / "r.duckdb", 0o640)
    return filled


def opener(folder: Path) -> Callable[[], object]:
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


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=[name.replace(" ", "_") for name in DAMAGE])
def test_a_damaged_file_is_one_line_and_is_made_anew(
    filled: Path, projector: Projector, damage: Callable[[Path], None]
) -> None:
    db, url = filled / "r.duckdb", filled / "journal.db"
    damage(db)
    before = contents(filled)
    for args in (["sql", "SELECT * FROM events"], ["run", "--once", "--log", url]):
        found = projector(*args, "--db", db)
        if args[0] == "run" and found.status == 0:
            # Nothing new was in the log, so nothing of the block was needed.
            assert damage is DAMAGE["a block"]
            continue
        assert found[:2] == (1, "")
        assert LINE.fullmatch(found.err), found.err
    assert contents(filled) == before
    found = projector("rebuild", "--log", url, "--db", db)
    assert found[:2] == (0, "")
    assert found.err.endswith(f" events read from {url} into {db}; "
                                 f"the file before it is {db}.old\n")  # fmt: skip
    assert found.err.count("\n") == 1
    assert contents(filled).keys() == {*before, "r.duckdb.old"}
    assert (filled / "r.duckdb.old").read_bytes() == before["r.duckdb"]
    assert stat.S_IMODE(db.stat().st_mode) == 0o640
    assert tables(db) == tables(filled / "calm.duckdb")
    assert projector("run", "--once", "--log", url, "--db", db).status == 0
    assert tables(db) == tables(filled / "calm.duckdb")


DAMAGED_WAL: dict[str, Callable[[Path], None]] = {
    "a scribbled WAL": lambda db: scribbled(Path(f"{db}.wal"), 30_000, b"scribble"),
    "another file's WAL": lambda db: db.write_bytes(db.with_name("calm.duckdb").read_bytes()),
    "no file but a WAL": lambda db: cut(db, 0),
    "no head but a WAL": lambda db: scribbled(db, 0, bytes(4_096)),
}


@pytest.mark.parametrize("damage", DAMAGED_WAL.values(),
                         ids=[name.replace(" ", "_") for name in DAMAGED_WAL])  # fmt: skip
def test_a_damaged_wal_goes_along_with_its_file(
    killed: Path, projector: Projector, damage: Callable[[Path], None]
) -> None:
    db, url = killed / "r.duckdb", killed / "journal.db"
    damage(db)
    before = contents(killed)
    found = projector("run", "--once", "--log", url, "--db", db)
    assert found.status == 1
    assert LINE.fullmatch(found.err), found.err
    assert contents(killed) == before
    assert projector("rebuild", "--log", url, "--db", db).status == 0
    after = contents(killed)
    assert after.keys() == {"r.duckdb", "calm.duckdb", "r.duckdb.old", "r.duckdb.old.wal"}
    assert after["r.duckdb.old"] == before["r.duckdb"]
    assert after["r.duckdb.old.wal"] == before["r.duckdb.wal"]
    assert tables(db) == tables(killed / "calm.duckdb")


async def test_what_a_killed_projector_left_is_in_the_old_file(killed: Path) -> None:
    db = killed / "r.duckdb"
    await rebuild(str(db), opener(killed))
    assert contents(killed).keys() == {"r.duckdb", "calm.duckdb", "r.duckdb.old"}
    for name in ("r.duckdb", "r.duckdb.old"):
        assert tables(killed / name) == tables(killed / "calm.duckdb")


async def test_no_old_file_is_ever_written_over(filled: Path) -> None:
    db = filled / "r.duckdb"
    (filled / "r.duckdb.old").write_text("kept by hand")
    olds = [(await rebuild(str(db), opener(filled)))[1] for _ in range(2)]
    assert olds == [f"{db}.old.2", f"{db}.old.3"]
    assert (filled / "r.duckdb.old").read_text() == "kept by hand"


async def test_through_a_link_the_file_itself_is_replaced(filled: Path) -> None:
    (filled / "elsewhere").mkdir()
    link = filled / "elsewhere" / "link.duckdb"
    link.symlink_to(filled / "r.duckdb")
    DAMAGE["cut"](filled / "r.duckdb")
    (filled / "elsewhere" / "link.duckdb.wal").write_bytes(b"no DuckDB reads this" * 100)
    assert (await rebuild(str(link), opener(filled)))[1] == str(filled / "r.duckdb.old")
    assert link.is_symlink()
    assert os.listdir(filled / "elsewhere") == ["link.duckdb"]
    assert (filled / "r.duckdb.old.wal").exists()
    assert tables(filled / "r.duckdb") == tables(filled / "calm.duckdb")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            'Failure while replaying WAL file "f": Failed to decode LEB128 integer',
            ProjectionDamaged,
        ),
        (
            'Failure while replaying WAL file "f": Could not write file: No space left on device',
            DiskFull,
        ),
        ('Failure while replaying WAL file "f": Out of Memory Error: no', ProjectionError),
        ('Could not write file "f": No space left on device', DiskFull),
        ('Could not read from file "f": Input/output error', DiskFailed),
    ],
)
def test_what_damage_is(text: str, kind: type[ProjectionError]) -> None:
    assert type(explained("r.duckdb", duckdb.Error(text))) is kind


# --- what is left alone ---------------------------------------------------------------------


def _tables_of_others(path: Path) -> None:
    path.unlink()
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE t (a INTEGER); CREATE VIEW schema_version AS SELECT 2 AS version")


def _another_journals(path: Path) -> None:
    async def main() -> None:
        log, identity = await new_log(f"{path}.journal.db")
        await project(log, identity, path)
        await log.close()

    path.unlink()
    asyncio.run(main())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_tables_of_others, "holds other tables"),
        (_another_journals, "belongs to journal"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(HEAD_BYTES)), "an SQLite file"),
        (lambda path: path.write_text("plain text"), "is no DuckDB file"),
        (lambda path: path.write_bytes(bytes(HEAD_BYTES)), "is no DuckDB file"),
        (lambda path: path.write_bytes(b""), "no projection there"),
        (lambda path: path.unlink(), "no projection there"),
    ],
)
def test_what_is_not_ours_is_left_alone(
    filled: Path, projector: Projector, make: Callable[[Path], None], words: str
) -> None:
    db = filled / "r.duckdb"
    make(db)
    before = contents(filled)
    found = projector("rebuild", "--log", filled / "journal.db", "--db", db)
    assert found[:2] == (1, "")
    assert words in found.err
    assert found.err.count("\n") == 1
    assert contents(filled) == before


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            "CREATE OR REPLACE VIEW schema_version AS SELECT 99 AS version; "
            "COMMENT ON VIEW schema_version IS '{comment}'; DROP TABLE anomalies",
            "has schema version 99",
        ),
        ("DROP TABLE anomalies", "lacks some of the tables"),
    ],
)
async def test_another_release_s_file_is_made_anew(filled: Path, sql: str, words: str) -> None:
    db = filled / "r.duckdb"
    with duckdb.connect(str(db)) as con:
        ((comment,),) = con.execute(
            "SELECT comment FROM duckdb_views() WHERE view_name = 'schema_version'"
        ).fetchall()
        con.execute(sql.format(comment=comment))
    with pytest.raises(ProjectionError, match=words) as caught:
        Store.open(str(db))
    assert str(caught.value).endswith("projector rebuild")
    await rebuild(str(db), opener(filled))
    assert tables(db) == tables(filled / "calm.duckdb")


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_running_projector_keeps_its_file(filled: Path, damaged: bool) -> None:
    db, url = filled / "r.duckdb", str(filled / "journal.db")
    async with running(url, db) as child:
        assert "following" in await child.line()
        if damaged:
            # Nobody but the projector could read it now.
            scribbled(db, 0, bytes(4_096))
        before = contents(filled).keys()
        found = await asyncio.to_thread(apart, "rebuild", "--log", url, "--db", db)
        assert (found.status, found.err.count("\n")) == (1, 1)
        assert "another process holds it" in found.err
        assert contents(filled).keys() == before
        await child.ended()


async def test_it_can_be_read_and_not_written_meanwhile(filled: Path) -> None:
    db, url = filled / "r.duckdb", filled / "journal.db"
    reached, go_on = asyncio.Event(), asyncio.Event()

    class Paused(WrappedLog):
        async def ends(self) -> object:
            reached.set()
            await go_on.wait()
            return await super().ends()

    async def paused() -> Opened:
        log, identity = await opened(str(url), None)
        return Paused(log), identity

    rebuilding = asyncio.create_task(rebuild(str(db), paused))
    waiting = asyncio.create_task(reached.wait())
    await asyncio.wait({rebuilding, waiting}, return_when=asyncio.FIRST_COMPLETED)
    assert reached.is_set()
    found = await asyncio.to_thread(apart, "sql", "SELECT count(*) FROM tasks", "--db", db,
                                    "--format", "csv")  # fmt: skip
    assert found.out.splitlines()[1] == "100"
    for command in (["run", "--once"], ["rebuild"]):
        found = await asyncio.to_thread(apart, *command, "--log", url, "--db", db)
        assert found.status == 1
        assert "another process holds it" in found.err
    go_on.set()
    assert (await rebuilding)[1] == f"{db}.old"
    assert tables(db) == tables(filled / "calm.duckdb")
    assert await answers(str(db), "SELECT count(*) AS n FROM tasks") == [{"n": 100}]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
def test_a_rebuild_that_is_stopped_leaves_nothing(
    filled: Path, number: signal.Signals, status: int
) -> None:
    before = contents(filled)
    code = """
import os, sys
from projector import cli
from projector.runner import Runner

number = int(sys.argv.pop(1))

async def run(self, **options):
    os.kill(os.getpid(), number)
    await real(self, **options)

real, Runner.run = Runner.run, run
sys.exit(cli.main())
"""
    command = [sys.executable, "-c", code, str(int(number)), "rebuild"]
    where = ["--log", str(filled / "journal.db"), "--db", str(filled / "r.duckdb")]
    done = subprocess.run([*command, *where], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    assert contents(filled) == before


async def test_a_rebuild_that_fails_changes_nothing(filled: Path) -> None:
    db, url = filled / "r.duckdb", str(filled / "journal.db")
    log, _ = await new_log(url)
    w = Writer("new")
    await put(log, [pair(w.start()), pair(w.own("ToolCallStarted", 99, step_index=0))])
    await log.close()
    before = contents(filled)
    with pytest.raises(EventTooNew):
        await rebuild(str(db), opener(filled))
    assert contents(filled) == before


# --- found on the way -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 4_096, HEAD_BYTES - 1])
def test_a_file_that_was_never_finished_is_begun_again(
    filled: Path, projector: Projector, size: int
) -> None:
    db = filled / "r.duckdb"
    cut(db, size)
    found = projector("sql", "SELECT 1", "--db", db)
    assert "no projection there" in found.err
    assert projector("run", "--once", "--log", filled / "journal.db", "--db", db).status == 0
    assert tables(db) == tables(filled / "calm.duckdb")


async def test_damage_that_is_met_while_it_runs_is_told_at_once(
    filled: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db = filled / "r.duckdb"
    DAMAGE["a block"](db)
    log, identity = await new_log(str(filled / "journal.db"))
    (task_id,) = rows(filled / "calm.duckdb", "SELECT task_id FROM tasks "
                      "WHERE status = 'running' LIMIT 1")[0]  # fmt: skip
    await put(log, [(task_id.encode(), pair(Writer(task_id).start())[1])])
    with pytest.raises(ProjectionDamaged):
        await project(log, identity, db)
    await log.close()
    # It is not read again and again.
    assert caplog.records == []


@pytest.fixture
def held_open(filled: Path) -> Iterator[Path]:
    store = Store.open(str(filled / "r.duckdb"))
    yield filled
    store.close()


def test_who_has_begun_a_file_is_not_disturbed(held_open: Path) -> None:
    """A file that somebody else is making is short, too: it is locked."""
    db = held_open / "r.duckdb"
    os.truncate(db, 0)
    code = f"from projector.store_file import clear; clear({str(db)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "another process holds it" in done.stderr
    assert db.exists()
