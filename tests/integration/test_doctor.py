"""`journal doctor` on an embedded log, as its users meet it, and that it changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import multiprocessing
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import duckdb
import pytest

from journal.backends import open_log
from journal.cli.main import main
from journal.sqlite_file import PAGE_BYTES
from journal.sqlite_look import look
from tests.commands import ENTRY, doctor, run, wrong
from tests.make_events import Writer
from tests.projecting import new_log, put_events

OF_A_FILE = ["log folder", "log disk", "mount", "log", "wal", "integrity", "genesis", "partitions"]


def snapshot(folder: Path) -> dict[str, Any]:
    """Everything in a folder: bytes and times, but for the index of a WAL that is in use."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.iterdir()
        if not path.name.endswith("-shm")
    } | {"names": sorted(path.name for path in folder.iterdir())}


def life(task_id: str, steps: int = 3) -> list[Any]:
    w = Writer(task_id)
    return [w.start(), *(w.recorded(n) for n in range(steps))]


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A journal in a file, with one task, closed."""
    path = tmp_path / "logs" / "journal.db"
    path.parent.mkdir()
    log, _ = await new_log(str(path))
    await put_events(log, life("t"))
    await log.close()
    return path


# --- an embedded log ----------------------------------------------------------------------------


def test_a_journal_that_is_in_order(file: Path) -> None:
    before = snapshot(file.parent)
    code, checks = doctor(file)
    assert (code, wrong(checks)) == (0, [])
    for name in ("python", "step-journal", "aiokafka", "duckdb", "pyarrow", "apsw", "sqlite"):
        assert checks[name]["status"] == "ok"
        assert checks[name]["detail"][0].isdigit()
    for name in [name for name in OF_A_FILE if name != "log disk"]:
        assert checks[name]["status"] == "ok", name
    assert "5 records" in checks["log"]["detail"]
    assert checks["blobs folder"]["detail"].startswith(f"{file}.blobs, to be made")
    assert snapshot(file.parent) == before


def test_a_blob_store_at_a_url_is_named(file: Path) -> None:
    done = run("doctor", "--log", str(file), JOURNAL_BLOBS="memory://key:secret@bucket/x")
    assert "memory://bucket/x, not looked at" in done.stdout
    assert done.returncode == 0


def test_the_table_has_a_line_for_each_check(file: Path) -> None:
    _, checks = doctor(file.with_name("none.db"))
    done = run("doctor", "--log", str(file.with_name("none.db")))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [c["status"] for c in checks.values()]
    (line,) = [line for line in lines if line.startswith("wrong")]
    assert line.endswith(f"; mend it with: journal init --log {file.with_name('none.db')}")
    assert file.with_name("none.db").exists() is False


async def test_a_journal_in_use_is_looked_at_and_left_alone(file: Path) -> None:
    log = await open_log(str(file))
    await put_events(log, life("u"))
    before = snapshot(file.parent)
    code, checks = await asyncio.to_thread(doctor, file)
    assert (code, checks["integrity"]["status"]) == (0, "ok")
    # What is still in the WAL counts.
    assert "9 records" in checks["log"]["detail"]
    assert checks["wal"]["detail"] != "0 bytes"
    assert snapshot(file.parent) == before
    await put_events(log, life("v"))
    await log.close()


async def test_a_wal_that_was_left_behind_is_not_recovered_here(file: Path) -> None:
    log = await open_log(str(file))
    await put_events(log, life("u"))
    left = file.parent / "left"
    left.mkdir()
    for name in ("journal.db", "journal.db-wal"):
        shutil.copy2(file.with_name(name), left / name)
    await log.close()
    before = snapshot(left)
    code, checks = await asyncio.to_thread(doctor, left / "journal.db")
    assert (code, checks["log"]["status"]) == (0, "ok")
    assert [checks[name]["status"] for name in OF_A_FILE[-3:]] == ["skipped"] * 3
    assert "recovers it" in checks["integrity"]["detail"]
    assert snapshot(left) == before


def text_file(path: Path) -> None:
    path.write_text("dear diary\n" * 100)


def sqlite_file(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE records (offset, key, value)")


def duckdb_file(path: Path) -> None:
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS x")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (None, "no journal at"),
        (Path.touch, "no journal at"),
        (Path.mkdir, "not a regular file"),
        (text_file, "is not a journal"),
        (sqlite_file, "another program's SQLite file"),
        (duckdb_file, "is a DuckDB file"),
    ],
)
def test_a_file_that_is_not_ours_is_wrong_and_left_alone(
    tmp_path: Path, make: Any, words: str
) -> None:
    path = tmp_path / "file"
    if make is not None:
        make(path)
    before = snapshot(tmp_path) if make is not Path.mkdir else None
    code, checks = doctor(path)
    assert (code, wrong(checks)) == (1, ["log"])
    assert words in checks["log"]["detail"]
    assert [checks[name]["status"] for name in OF_A_FILE[4:]] == ["skipped"] * 4
    remedy = f"journal init --log {path}" if words == "no journal at" else None
    assert checks["log"]["remedy"] == remedy
    if before is not None:
        assert snapshot(tmp_path) == before


def test_a_folder_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    code, checks = doctor(tmp_path / "a b" / "c" / "journal.db")
    assert (code, wrong(checks)) == (1, ["log folder", "log"])
    assert checks["log folder"]["remedy"] == f"mkdir -p '{tmp_path}/a b/c'"
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_newer_release_is_wrong(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version = 99")
    code, checks = doctor(file)
    assert (code, wrong(checks)) == (1, ["log"])
    assert "file version 99" in checks["log"]["detail"]
    assert checks["log"]["remedy"] == "pip install --upgrade step-journal"


@pytest.mark.parametrize(
    ("page", "found_by"), [(12, "integrity"), (1, "log")], ids=["a leaf", "the root"]
)
async def test_a_damaged_file_is_found_out(tmp_path: Path, page: int, found_by: str) -> None:
    path = tmp_path / "journal.db"
    log, _ = await new_log(str(path))
    w = Writer("t")
    await put_events(log, [w.start(), *(w.recorded(n, 2_000) for n in range(100))])
    await log.close()
    with path.open("r+b") as damaged:
        damaged.seek(page * PAGE_BYTES)
        damaged.write(b"\x07" * PAGE_BYTES)
    code, checks = await asyncio.to_thread(doctor, path)
    assert (code, wrong(checks)) == (1, [found_by])
    assert "restore it from a backup" in checks[found_by]["detail"]


async def test_a_quick_check_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.db")
    log, _ = await new_log(path)
    w = Writer("t")
    await put_events(log, [w.start(), *(w.recorded(n) for n in range(2_000))])
    await log.close()
    late, early = look(path, 0), look(path, 60)
    assert late is not None
    assert early is not None
    assert late.faults is None
    assert early.faults == ()
    assert late._replace(faults=()) == early


def test_a_file_that_opens_with_something_else_is_wrong(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("UPDATE records SET value = ? WHERE offset = 0", (b"x",))
        db.commit()
    code, checks = doctor(file)
    assert (code, wrong(checks)) == (1, ["genesis"])
    assert checks["partitions"]["status"] == "skipped"


async def test_an_empty_file_of_ours_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    log = await open_log(str(path), create=True)
    await log.close()
    code, checks = await asyncio.to_thread(doctor, path)
    assert (code, wrong(checks)) == (1, ["genesis"])
    assert checks["genesis"]["remedy"] == f"journal init --log {path}"


# --- permissions --------------------------------------------------------------------------------


@pytest.fixture
def readable_folder() -> Iterator[Path]:
    """A folder that others may look into; the way to the test's own is barred to them."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def as_somebody_else(path: Path, pipe: Connection) -> None:
    """Run the command without any privilege, and send what came of it."""
    if os.geteuid() == 0:
        os.setuid(65534)
    else:
        path.chmod(0o400)
        path.parent.chmod(0o500)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(["doctor", "--log", str(path), "--format", "json"])
    pipe.send((code, out.getvalue()))


def test_what_is_read_only_is_wrong(
    readable_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("JOURNAL_")]:
        monkeypatch.delenv(name)
    path = readable_folder / "journal.db"
    assert main(["init", "--log", str(path)]) == 0
    path.chmod(0o644)
    # Here as well, so that the child finds everything imported that it could not read itself.
    assert main(["doctor", "--log", str(path)]) == 0
    before = snapshot(readable_folder)
    context = multiprocessing.get_context("fork")
    here, pipe = context.Pipe(duplex=False)
    child = context.Process(target=as_somebody_else, args=(path, pipe))
    child.start()
    code, out = here.recv()
    child.join()
    readable_folder.chmod(0o755)
    checks = {check["check"]: check for check in json.loads(out)}
    assert code == 1
    assert [name for name in wrong(checks) if name in {*OF_A_FILE, "blobs folder"}] == [
        "log folder",
        "log",
        "blobs folder",
    ]
    assert "cannot be written" in checks["log folder"]["detail"]
    assert "cannot be written" in checks["log"]["detail"]
    # It can be read all the same.
    assert [checks[name]["status"] for name in OF_A_FILE[-3:]] == ["ok"] * 3
    assert snapshot(readable_folder) == before


# --- blobs, URLs, modules -----------------------------------------------------------------------


def test_the_blob_store_is_where_it_is_said_to_be(file: Path, tmp_path: Path) -> None:
    code, checks = doctor(file, JOURNAL_BLOBS=str(tmp_path / "deep" / "blobs"))
    assert code == 0
    assert checks["blobs folder"]["detail"].startswith(f"{tmp_path}/deep/blobs, to be made")
    assert not (tmp_path / "deep").exists()
    (tmp_path / "blobs").mkdir()
    _, checks = doctor(file, JOURNAL_BLOBS=str(tmp_path / "blobs"))
    assert checks["blobs folder"]["detail"] == f"{tmp_path}/blobs"
    for inside in (file, file / "blobs"):
        code, checks = doctor(file, JOURNAL_BLOBS=str(inside))
        assert (code, wrong(checks)) == (1, ["blobs folder"])


def test_a_url_that_nothing_speaks_is_wrong_usage() -> None:
    for url in ("http://x", "kafka://a:1"):
        done = run("doctor", "--log", url)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("module", "url", "first"),
    [("apsw", "none.db", "log"), ("aiokafka", "kafka://a:1/t", "broker")],
)
def test_a_client_that_is_missing_is_wrong(
    tmp_path: Path, module: str, url: str, first: str
) -> None:
    target = url if "://" in url else str(tmp_path / url)
    code, checks = doctor(target, entry=f"import sys; sys.modules[{module!r}] = None; {ENTRY}")
    assert code == 1
    assert first in wrong(checks)
    assert module in checks[first]["detail"]
    assert checks["genesis"]["status"] == "skipped"
