"""A DuckDB file that was cut short, scribbled on or never finished: told in one line, made anew."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from journal.errors import DiskFailed, DiskFull, ProjectionDamaged, ProjectionError
from projector.store import Store
from projector.store_file import explained
from projector.store_schema import HEAD_BYTES, SIDES
from tests.damaging import DAMAGE, Projector, contents, cut, scribbled
from tests.make_events import Writer, pair
from tests.projecting import new_log, project, put, rows, tables

LINE = re.compile(r"projector: \S+: is damaged \([^)]+\); .* projector rebuild\n")


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=[name.replace(" ", "_") for name in DAMAGE])
def test_a_damaged_file_is_one_line_and_is_made_anew(
    projected: Path, projector: Projector, damage: Callable[[Path], None]
) -> None:
    db, url = projected / "r.duckdb", projected / "journal.db"
    damage(db)
    before = contents(projected)
    for args in (["sql", "SELECT * FROM events"], ["run", "--once", "--log", url]):
        found = projector(*args, "--db", db)
        if args[0] == "run" and found.status == 0:
            # Nothing new was in the log, so nothing of the block was needed.
            assert damage is DAMAGE["a block"]
            continue
        assert found[:2] == (1, "")
        assert LINE.fullmatch(found.err), found.err
    assert contents(projected) == before
    found = projector("rebuild", "--log", url, "--db", db)
    assert found[:2] == (0, "")
    assert found.err.endswith(f" records read from {url} into {db}; "
                                 f"the file before it is {db}.old\n")  # fmt: skip
    assert found.err.count("\n") == 1
    assert contents(projected).keys() == {*before, "r.duckdb.old"}
    assert (projected / "r.duckdb.old").read_bytes() == before["r.duckdb"]
    assert stat.S_IMODE(db.stat().st_mode) == 0o640
    assert tables(db) == tables(projected / "calm.duckdb")
    assert projector("run", "--once", "--log", url, "--db", db).status == 0
    assert tables(db) == tables(projected / "calm.duckdb")


DAMAGED_WAL: dict[str, Callable[[Path], None]] = {
    "a scribbled WAL": lambda db: scribbled(Path(f"{db}.wal"), 30_000, b"scribble"),
    "another file's WAL": lambda db: db.write_bytes(db.with_name("calm.duckdb").read_bytes()),
    "no file but a WAL": lambda db: cut(db, 0),
    "no head but a WAL": lambda db: scribbled(db, 0, bytes(4_096)),
}


@pytest.mark.parametrize("damage", DAMAGED_WAL.values(),
                         ids=[name.replace(" ", "_") for name in DAMAGED_WAL])  # fmt: skip
def test_a_damaged_wal_goes_along_with_its_file(
    projector_killed: Path, projector: Projector, damage: Callable[[Path], None]
) -> None:
    db, url = projector_killed / "r.duckdb", projector_killed / "journal.db"
    damage(db)
    before = contents(projector_killed)
    found = projector("run", "--once", "--log", url, "--db", db)
    assert found.status == 1
    assert LINE.fullmatch(found.err), found.err
    assert contents(projector_killed) == before
    assert projector("rebuild", "--log", url, "--db", db).status == 0
    after = contents(projector_killed)
    assert after.keys() == {"r.duckdb", "calm.duckdb", "r.duckdb.old", "r.duckdb.old.wal"}
    assert after["r.duckdb.old"] == before["r.duckdb"]
    assert after["r.duckdb.old.wal"] == before["r.duckdb.wal"]
    assert tables(db) == tables(projector_killed / "calm.duckdb")


@pytest.mark.parametrize("side", SIDES)
def test_a_wal_without_its_file_is_kept(
    projector_killed: Path, projector: Projector, side: str
) -> None:
    db, url = projector_killed / "r.duckdb", projector_killed / "journal.db"
    db.rename(projector_killed / "away.duckdb")
    Path(f"{db}.wal").rename(f"{db}{side}")
    before = contents(projector_killed)
    for args in (["sql", "SELECT 1"], ["run", "--once", "--log", url], ["rebuild", "--log", url]):
        found = projector(*args, "--db", db)
        assert found[:2] == (1, "")
        assert found.err == (
            f"projector: {db}{side}: belongs to a file that was moved; "
            "move it back beside it, or away too\n"
        )
        assert contents(projector_killed) == before


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


@pytest.mark.parametrize("size", [0, 4_096, HEAD_BYTES - 1])
def test_a_file_that_was_never_finished_is_begun_again(
    projected: Path, projector: Projector, size: int
) -> None:
    db = projected / "r.duckdb"
    cut(db, size)
    found = projector("sql", "SELECT 1", "--db", db)
    assert "no projection there" in found.err
    assert projector("run", "--once", "--log", projected / "journal.db", "--db", db).status == 0
    assert tables(db) == tables(projected / "calm.duckdb")


async def test_damage_that_is_met_while_it_runs_is_told_at_once(
    projected: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db = projected / "r.duckdb"
    DAMAGE["a block"](db)
    log, identity = await new_log(str(projected / "journal.db"))
    (task_id,) = rows(projected / "calm.duckdb", "SELECT task_id FROM tasks "
                      "WHERE status = 'running' LIMIT 1")[0]  # fmt: skip
    await put(log, [(task_id.encode(), pair(Writer(task_id).start())[1])])
    with pytest.raises(ProjectionDamaged):
        await project(log, identity, db)
    await log.close()
    # It is not read again and again.
    assert caplog.records == []


@pytest.fixture
def held_open(projected: Path) -> Iterator[Path]:
    store = Store.open(str(projected / "r.duckdb"))
    yield projected
    store.close()


def test_who_has_begun_a_file_is_not_disturbed(held_open: Path) -> None:
    """A file that somebody else is making is short, too: it is locked."""
    db = held_open / "r.duckdb"
    os.truncate(db, 0)
    code = f"from projector.store_file import clear; clear({str(db)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "another process holds it" in done.stderr
    assert db.exists()
