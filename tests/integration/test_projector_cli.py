"""The command `projector`, and its socket, as their users meet them."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from journal.errors import ProjectionError
from projector import connect
from projector.arrow import table
from projector.client import query
from projector.folding import Changes
from projector.frames import socket_path
from projector.health import Health, ask
from projector.serve import Server
from projector.store import Store
from tests.make_events import Writer
from tests.projecting import new_log, project, put_events


def projector(*args: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """The command, in a folder of its own with no settings around."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("JOURNAL_")}
    env["PYTHONPATH"] = os.getcwd()
    command = [sys.executable, "-m", "projector.cli", *args]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, timeout=60, check=False)


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """journal.db with one task, projected into runs.duckdb."""
    log, identity = await new_log(str(tmp_path / "journal.db"))
    w = Writer("t1")
    await put_events(log, [w.start(), *w.step(0), w.own("TaskCompleted", final_answer="42")])
    await project(log, identity, tmp_path / "runs.duckdb")
    await log.close()
    return tmp_path


def test_formats(folder: Path) -> None:
    sql = "SELECT task_id, steps, final_answer, NULL AS nothing FROM runs"
    assert b"t1" in projector("sql", sql, cwd=folder).stdout
    found = projector("sql", sql, "--format", "json", cwd=folder)
    row = {"task_id": "t1", "steps": 1, "final_answer": "42", "nothing": None}
    assert json.loads(found.stdout) == [row]
    found = projector("sql", sql, "--format", "csv", cwd=folder)
    assert found.stdout == b"task_id,steps,final_answer,nothing\nt1,1,42,\n"
    found = projector("sql", sql, "--format", "parquet", cwd=folder)
    assert pq.read_table(io.BytesIO(found.stdout)).to_pylist() == [row]
    found = projector("sql", "SELECT sum(steps) AS n FROM runs", "--format", "json", cwd=folder)
    assert json.loads(found.stdout) == [{"n": 1}]
    found = projector("sql", "SELECT 1 AS n WHERE false", "--format", "json", cwd=folder)
    assert json.loads(found.stdout) == []
    found = projector("status", "--format", "json", cwd=folder)
    assert json.loads(found.stdout) == [{"partition": 0, "next_offset": 7, "end": 7, "lag": 0}]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["sql", "SELECT nope"], 1, "Binder Error"),
        (["sql", "SELECT 1; SELECT 2"], 1, "one SELECT at a time"),
        (["sql", "SELECT 1", "--db", "none.duckdb"], 1, "no projection there"),
        (["sql", "SELECT 1", "--db", "journal.db"], 1, "is an SQLite file"),
        (["run", "--once", "--log", "none.db"], 1, "journal init"),
        (["run", "--once", "--log", "http://x"], 2, "no log speaks"),
        (["run", "--db", "nowhere/runs.duckdb"], 1, "there is no folder"),
        (["run", "--kafka-config", "none.properties"], 2, "none.properties"),
        (["nonsense"], 2, "invalid choice"),
    ],
)
def test_what_goes_wrong(folder: Path, args: list[str], code: int, words: str) -> None:
    found = projector(*args, cwd=folder)
    assert (found.returncode, found.stdout) == (code, b"")
    assert words in found.stderr.decode()
    assert b"Traceback" not in found.stderr
    if args != ["nonsense"]:
        assert found.stderr.count(b"\n") == 1


def test_help_names_the_exit_codes(folder: Path) -> None:
    for args in (["--help"], ["run", "--help"]):
        found = projector(*args, cwd=folder)
        assert found.returncode == 0
        assert b"exit status: 0 done" in found.stdout


def test_heavy_modules_are_not_loaded_for_help() -> None:
    code = "import projector.cli, sys; print([m for m in sys.modules if m in %r])"
    heavy = ("rich", "duckdb", "pyarrow", "aiokafka", "apsw")
    found = subprocess.run(
        [sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_answers_while_it_runs_and_stops_cleanly(folder: Path, number: int) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "projector.cli", "run",
        "--log", str(folder / "journal.db"), "--db", str(folder / "runs.duckdb"),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert child.stderr is not None
    try:
        line = await asyncio.wait_for(child.stderr.readline(), 30)
        assert b"following" in line
        db = str(folder / "runs.duckdb")
        assert stat.S_IMODE(os.stat(socket_path(db)).st_mode) == 0o600
        found = projector("sql", "SELECT task_id FROM tasks", "--format", "csv", cwd=folder)
        assert found.stdout == b"task_id\nt1\n"
        found = projector("run", "--once", cwd=folder)
        assert (found.returncode, b"another process holds it" in found.stderr) == (1, True)
        child.send_signal(number)
        await asyncio.wait_for(child.wait(), 30)
        assert child.returncode == 0
        assert not os.path.exists(socket_path(db))
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    found = projector("sql", "SELECT task_id FROM tasks", "--format", "csv", cwd=folder)
    assert found.stdout == b"task_id\nt1\n"


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE tasks",
        "WITH d AS (DELETE FROM tasks RETURNING *) SELECT * FROM d",
        "SELECT * FROM read_csv('/etc/hostname')",
        "COPY tasks TO 'out.csv'",
        "ATTACH 'other.duckdb'",
        "SET threads = 4",
        "SELECT * FROM store",
        "INSTALL httpfs",
    ],
)
def test_only_reading_is_answered(folder: Path, sql: str) -> None:
    db = str(folder / "runs.duckdb")
    store = Store.open(db)
    server = Server(db, lambda: store)
    try:
        with pytest.raises(ProjectionError), query(db, sql) as reader:
            reader.read_all()
        with query(db, "SELECT count(*) AS n FROM tasks") as reader:
            assert reader.read_all().to_pylist() == [{"n": 1}]
    finally:
        server.close()
        store.close()


async def test_long_answers_and_checkpoints_through_the_socket(folder: Path) -> None:
    db = str(folder / "runs.duckdb")
    store = Store.open(db)
    (offset,) = store.offsets().values()
    assert offset.journal_id is not None
    server = Server(db, lambda: store)
    try:
        with query(db, "SELECT i, repeat('x', 100) AS s FROM range(50_000) AS r(i)") as reader:
            assert sum(batch.num_rows for batch in reader) == 50_000
        through = await connect(db).checkpoint("t1", offset.journal_id)
    finally:
        server.close()
        store.close()
    assert through is not None
    assert through.state.final_answer is not None
    assert bytes(through.state.final_answer) == b'"42"'
    assert through == await connect(db).checkpoint("t1", offset.journal_id)


def test_a_stale_socket_and_a_rude_client(folder: Path) -> None:
    db = str(folder / "runs.duckdb")
    left = socket.socket(socket.AF_UNIX)
    left.bind(socket_path(db))
    left.close()
    store = Store.open(db)
    server = Server(db, lambda: store)
    try:
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(socket_path(db))
            rude.sendall(b"\xff" * 4)
            # Refused without an answer.
            assert rude.recv(1) == b""
        with query(db, "SELECT 1 AS n") as reader:
            assert reader.read_all().to_pylist() == [{"n": 1}]
    finally:
        server.close()
        store.close()


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90) / "runs.duckdb"
    deep.parent.mkdir()
    Store.open(str(deep)).close()
    store = Store.open(str(deep))
    server = Server(str(deep), lambda: store)
    try:
        with query(str(deep), "SELECT count(*) AS n FROM tasks") as reader:
            assert reader.read_all().to_pylist() == [{"n": 0}]
    finally:
        server.close()
        store.close()


async def test_status_of_a_log_that_ends_before_what_was_read(folder: Path) -> None:
    (folder / "journal.db").rename(folder / "longer.db")
    log, identity = await new_log(str(folder / "journal.db"))
    await log.close()
    db = folder / "other.duckdb"
    rows = [(0, 9, None, None, identity.journal_id)]
    with closing(Store.open(str(db), identity.journal_id)) as store:
        store.write(Changes({"offsets": rows}), {"offsets": table("offsets", rows)})
    found = projector("status", "--db", str(db), cwd=folder)
    assert found.returncode == 1
    assert b"partition 0 ends at 1, and 9 was to be read next" in found.stderr
    assert found.stdout == b""


LATE = "SELECT CASE WHEN range = 250000 THEN error('too late') ELSE range END n FROM range(300000)"


@pytest.mark.parametrize("format", ["table", "csv", "json", "parquet"])
def test_an_error_behind_the_first_rows_is_heard_through_the_socket(
    folder: Path, format: str
) -> None:
    db = str(folder / "runs.duckdb")
    Store.open(db).close()
    store = Store.open(db)
    server = Server(db, lambda: store)
    try:
        with query(db, LATE) as reader, pytest.raises(ProjectionError, match="too late"):
            for _ in reader:
                pass
        done = projector("sql", LATE, "--format", format, cwd=folder)
        assert done.returncode == 1
        assert b"too late" in done.stderr
    finally:
        server.close()
        store.close()


def test_probes_that_come_at_once_are_all_answered(folder: Path) -> None:
    db = str(folder / "runs.duckdb")
    server = Server(db, lambda: None)
    try:
        with ThreadPoolExecutor(64) as pool:
            assert list(pool.map(lambda _: ask(db), range(64))) == [Health()] * 64
    finally:
        server.close()
