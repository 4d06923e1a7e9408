"""`projector rebuild`: what it keeps, what it refuses, who may read meanwhile, how it ends.

What damages a file is in `test_projector_damaged`, and what a SIGKILL leaves of a rebuild in
`tests/crash/test_boundaries_kill.py`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from journal.errors import EventTooNew, ProjectionError
from projector.rebuild import hand_over, rebuild
from projector.running import Opened, opened
from projector.store import Store
from projector.store_schema import HEAD_BYTES
from tests.damaging import DAMAGE, Projector, apart, contents, killed, opener, scribbled
from tests.make_events import Writer, many, pair
from tests.projecting import new_log, project, put, tables
from tests.projector_child import answers, running
from tests.wrapped_log import WrappedLog

# --- what it keeps --------------------------------------------------------------------------


async def test_what_a_killed_projector_left_is_in_the_old_file(projector_killed: Path) -> None:
    db = projector_killed / "r.duckdb"
    await rebuild(str(db), opener(projector_killed))
    assert contents(projector_killed).keys() == {"r.duckdb", "calm.duckdb", "r.duckdb.old"}
    for name in ("r.duckdb", "r.duckdb.old"):
        assert tables(projector_killed / name) == tables(projector_killed / "calm.duckdb")


async def test_on_each_log(url: str, tmp_path: Path) -> None:
    log, identity = await new_log(url, 3)
    await put(log, many(60))
    db = tmp_path / "r.duckdb"
    await project(log, identity, db)
    await log.close()
    calm = tables(db)
    DAMAGE["cut"](db)
    records, old = await rebuild(str(db), lambda: opened(url, None))
    assert records > len(calm["events"])
    assert old == f"{db}.old"
    assert tables(db) == calm


async def test_no_old_file_is_ever_written_over(projected: Path) -> None:
    db = projected / "r.duckdb"
    (projected / "r.duckdb.old").write_text("kept by hand")
    olds = [(await rebuild(str(db), opener(projected)))[1] for _ in range(2)]
    assert olds == [f"{db}.old.2", f"{db}.old.3"]
    assert (projected / "r.duckdb.old").read_text() == "kept by hand"


async def test_a_link_to_the_file_is_no_copy_of_it(projected: Path) -> None:
    db = projected / "r.duckdb"
    before = db.read_bytes()
    (projected / "r.duckdb.old").symlink_to(db)
    assert (await rebuild(str(db), opener(projected)))[1] == f"{db}.old.2"
    assert (projected / "r.duckdb.old.2").read_bytes() == before


@pytest.mark.parametrize("damaged", [False, True])
async def test_through_a_link_the_file_itself_is_replaced(projected: Path, damaged: bool) -> None:
    db, link = projected / "r.duckdb", projected / "elsewhere" / "link.duckdb"
    db.unlink()
    Store.open(str(db)).close()
    link.parent.mkdir()
    link.symlink_to(db)
    killed(projected, "elsewhere/link.duckdb")
    if damaged:
        scribbled(Path(f"{db}.wal"), 30_000, b"scribble")
    assert (await rebuild(str(link), opener(projected)))[1] == f"{db}.old"
    assert link.is_symlink()
    assert os.listdir(link.parent) == ["link.duckdb"]
    wal = {"r.duckdb.old.wal"} if damaged else set()
    assert contents(projected).keys() == {"r.duckdb", "calm.duckdb", "r.duckdb.old", *wal}
    for path in (db, link):
        assert tables(path) == tables(projected / "calm.duckdb")


def test_a_file_that_was_never_finished_is_begun_again_through_a_link(projected: Path) -> None:
    db, link = projected / "r.duckdb", projected / "link.duckdb"
    db.write_bytes(b"")
    link.symlink_to(db)
    Store.open(str(link)).close()
    assert link.is_symlink()
    assert db.stat().st_size >= HEAD_BYTES


_OWNER, _GROUP, _OTHER, _OTHERS = 60_001, 60_002, 60_003, 60_004


def _as_another_user(old: Path, groups: list[int]) -> None:
    os.setgroups(groups)
    os.setgid(_OTHERS)
    os.setuid(_OTHER)
    new = old.with_name("new")
    new.touch(0o600)
    hand_over(str(new), old.stat())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("groups", "gid", "mode"),
    [([_GROUP], _GROUP, 0o660), ([], _OTHERS, 0o600)],
    ids=["of the file's group", "of another group"],
)
def test_no_group_gets_a_file_that_was_another_s(groups: list[int], gid: int, mode: int) -> None:
    # Not below pytest's own folder, which is closed to other users.
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        old = Path(name) / "old"
        old.touch()
        old.chmod(0o660)
        os.chown(old, _OWNER, _GROUP)
        context = multiprocessing.get_context("fork")
        child = context.Process(target=_as_another_user, args=(old, groups))
        child.start()
        child.join()
        assert child.exitcode == 0
        new = old.with_name("new").stat()
        assert (new.st_uid, new.st_gid, stat.S_IMODE(new.st_mode)) == (_OTHER, gid, mode)


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
        (_tables_of_others, "holds what is no projection's"),
        (_another_journals, "belongs to journal"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(HEAD_BYTES)), "an SQLite file"),
        (lambda path: path.write_text("plain text"), "is no DuckDB file"),
        (lambda path: path.write_bytes(bytes(HEAD_BYTES)), "is no DuckDB file"),
        (lambda path: path.write_bytes(b""), "no projection there"),
        (lambda path: path.unlink(), "no projection there"),
    ],
)
def test_what_is_not_ours_is_left_alone(
    projected: Path, projector: Projector, make: Callable[[Path], None], words: str
) -> None:
    db = projected / "r.duckdb"
    make(db)
    before = contents(projected)
    found = projector("rebuild", "--log", projected / "journal.db", "--db", db)
    assert found[:2] == (1, "")
    assert words in found.err
    assert found.err.count("\n") == 1
    assert contents(projected) == before


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
async def test_another_release_s_file_is_made_anew(projected: Path, sql: str, words: str) -> None:
    db = projected / "r.duckdb"
    with duckdb.connect(str(db)) as con:
        ((comment,),) = con.execute(
            "SELECT comment FROM duckdb_views() WHERE view_name = 'schema_version'"
        ).fetchall()
        con.execute(sql.format(comment=comment))
    with pytest.raises(ProjectionError, match=words) as caught:
        Store.open(str(db))
    assert str(caught.value).endswith("projector rebuild")
    await rebuild(str(db), opener(projected))
    assert tables(db) == tables(projected / "calm.duckdb")


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_running_projector_keeps_its_file(projected: Path, damaged: bool) -> None:
    db, url = projected / "r.duckdb", str(projected / "journal.db")
    async with running(url, db) as child:
        assert "following" in await child.line()
        if damaged:
            # Nobody but the projector could read it now.
            scribbled(db, 0, bytes(4_096))
        before = contents(projected).keys()
        found = await asyncio.to_thread(apart, "rebuild", "--log", url, "--db", db)
        assert (found.status, found.err.count("\n")) == (1, 1)
        assert "another process holds it" in found.err
        assert contents(projected).keys() == before
        await child.ended()


async def test_it_can_be_read_and_not_written_meanwhile(projected: Path) -> None:
    db, url = projected / "r.duckdb", projected / "journal.db"
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
    assert tables(db) == tables(projected / "calm.duckdb")
    assert await answers(str(db), "SELECT count(*) AS n FROM tasks") == [{"n": 100}]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
def test_a_rebuild_that_is_stopped_leaves_nothing(
    projected: Path, number: signal.Signals, status: int
) -> None:
    before = contents(projected)
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
    where = ["--log", str(projected / "journal.db"), "--db", str(projected / "r.duckdb")]
    done = subprocess.run([*command, *where], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    assert contents(projected) == before


async def test_a_rebuild_that_fails_changes_nothing(projected: Path) -> None:
    db, url = projected / "r.duckdb", str(projected / "journal.db")
    log, _ = await new_log(url)
    w = Writer("new")
    await put(log, [pair(w.start()), pair(w.own("ToolCallStarted", 99, step_index=0))])
    await log.close()
    before = contents(projected)
    with pytest.raises(EventTooNew):
        await rebuild(str(db), opener(projected))
    assert contents(projected) == before
