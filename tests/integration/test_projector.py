"""The projector on an embedded log: tables, anomalies, restarts, failures, refusals."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from msgspec import Raw

from journal.codec import decode_event, encode_event
from journal.errors import EventTooNew, LogReplaced, ProjectionError
from journal.events import Envelope
from journal.fold import fold
from journal.ids import new_id
from journal.log import append_and_wait
from projector import connect
from projector.folding import Folder
from projector.rows import COLUMNS, TABLES
from projector.runner import Runner, _fold
from projector.store import Store
from tests.make_events import Writer, many
from tests.projecting import failing_commit, new_log, project, put, put_events, rows, tables


async def test_one_run(tmp_path: Path) -> None:
    log, identity = await new_log(str(tmp_path / "j.db"))
    w = Writer("t1")
    late = w.own("StepStarted", step_index=9)
    w.seq = 0
    events = [
        w.start("find it"), w.message("hello"), *w.step(0, tools=2), w.recorded(1, 3),
        w.own("ResultRecorded", name="n", value=[1]),
        w.own("TaskCompleted", final_answer="it\x00 is there"),
    ]  # fmt: skip
    await put_events(log, [*events, late])
    await append_and_wait(log, 0, b"t1", b"\xff no event", 1)
    db = tmp_path / "r.duckdb"
    await project(log, identity, db)
    assert rows(
        db,
        "SELECT status, current_step, total_tokens, final_answer, results, epoch, seq FROM tasks",
    ) == [("completed", 2, 230, "it\x00 is there", '{"n":[1]}', 0, 9)]
    assert rows(db, "SELECT step_index, status, thought, request_model FROM steps ORDER BY 1") == [
        (0, "completed", "thinking", "model-a"),
        (1, "completed", "step 1", None),
    ]
    assert rows(
        db, 'SELECT step_index, "position", status, arguments, result FROM tool_calls ORDER BY ALL'
    ) == [
        (0, 0, "completed", '{"path":"f0.txt"}', '{"words":0}'),
        (0, 1, "completed", '{"path":"f1.txt"}', '{"words":1}'),
        (1, 0, "completed", '{"path":"1.txt"}', '"xxx"'),
    ]
    assert rows(db, 'SELECT id FROM events ORDER BY "offset"') == [(e.id,) for e in events]
    assert rows(db, 'SELECT label, id, raw FROM anomalies ORDER BY "offset"') == [
        ("stale", late.id, encode_event(late)),
        ("undecodable", None, b"\xff no event"),
    ]
    assert rows(db, "SELECT next_offset, last_id, journal_id FROM offsets") == [
        (len(events) + 3, None, identity.journal_id)
    ]
    assert rows(db, "SELECT steps, tool_calls, seconds > 0 FROM runs") == [(2, 3, True)]
    await log.close()


async def test_however_batches_fall(tmp_path: Path) -> None:
    log, identity = await new_log(str(tmp_path / "j.db"))
    await put(log, many(60))
    whole, cut = tmp_path / "whole.duckdb", tmp_path / "cut.duckdb"
    await project(log, identity, whole)
    # The log's own reads bound a part from above; every record is a batch of its own here.
    store = Store.open(str(cut), identity.journal_id)
    runner = Runner(log, identity, lambda: store, store=store)
    await runner._starts(store)
    folder = Folder(identity, store.load, memory_bytes=0)
    number = 0
    async for batch in log.read(0, 0):
        for start in range(0, len(batch), 7):
            changes, written, _ = _fold(folder, [(0, batch[start : start + 7])], number)
            store.write(changes, written)
            number += 1
    await runner.close()
    assert tables(cut) == tables(whole)
    assert len(tables(whole)["anomalies"]) > 20
    await log.close()


async def test_failed_commits_lose_nothing(tmp_path: Path) -> None:
    log, identity = await new_log(str(tmp_path / "j.db"))
    await put(log, many(200))
    calm, shaken = tmp_path / "calm.duckdb", tmp_path / "shaken.duckdb"
    await project(log, identity, calm)
    tried: list[int] = []

    def fail(number: int) -> str | None:
        tried.append(number)
        return {2: "before", 4: "after", 5: "before"}.get(number)

    commit = failing_commit(fail)
    runner = await project(
        log,
        identity,
        shaken,
        batch_records=1_000,
        open_store=lambda: Store.open(str(shaken), identity.journal_id, commit=commit),
    )
    assert max(tried) > 5
    assert runner.written < (await log.ends())[0]
    assert tables(shaken) == tables(calm)
    await log.close()


async def test_a_file_that_cannot_be_written_ends_it(tmp_path: Path) -> None:
    log, identity = await new_log(str(tmp_path / "j.db"))
    await put(log, many(2))
    db = tmp_path / "r.duckdb"
    commit = failing_commit(lambda number: "before" if number > 1 else None)
    with pytest.raises(ProjectionError, match="disk was pulled out"):
        await project(
            log,
            identity,
            db,
            open_store=lambda: Store.open(str(db), identity.journal_id, commit=commit),
        )
    assert tables(db)["events"] == []
    await log.close()


async def test_an_event_of_a_newer_release_stops_it(tmp_path: Path) -> None:
    log, identity = await new_log(str(tmp_path / "j.db"))
    w = Writer("t1")
    await put_events(log, [w.start(), w.recorded(0)])
    await put_events(log, [w.own("StepCompleted", 99, step_index=1), w.recorded(2)])
    # Batches that wait behind it when it is met.
    await put(log, many(300))
    db = tmp_path / "r.duckdb"
    for _ in range(2):
        with pytest.raises(EventTooNew, match="0:3: event StepCompleted version 99"):
            await project(log, identity, db, batch_records=1)
        assert rows(db, "SELECT next_offset FROM offsets") == [(3,)]
        assert rows(db, "SELECT count(*) FROM events") == [(2,)]
    await log.close()


async def test_another_log_in_its_place(tmp_path: Path) -> None:
    log, identity = await new_log(str(tmp_path / "a.db"))
    await put_events(log, [Writer("t1").start("one")])
    db = tmp_path / "r.duckdb"
    await project(log, identity, db)
    before = db.read_bytes()
    other, its = await new_log(str(tmp_path / "b.db"))
    with pytest.raises(ProjectionError, match=f"belongs to journal {identity.journal_id}"):
        await project(other, its, db)
    # The same journal's id, and yet another last record.
    await put_events(other, [Writer("t1").start("two")])
    with pytest.raises(LogReplaced, match="0:1 is not the one that was read before"):
        await project(other, identity, db)
    assert db.read_bytes() == before
    await log.close()
    await other.close()


def _sqlite(path: Path) -> None:
    with sqlite3.connect(path) as con:
        con.execute("CREATE TABLE t (a)")
    con.close()


def _tables_of_others(path: Path) -> None:
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE t (a INTEGER)")


def _holds(sql: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with duckdb.connect(str(path)) as con:
            con.execute(sql)

    return make


def _schema_of_others(path: Path) -> None:
    Store.open(str(path)).close()
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE OR REPLACE VIEW schema_version AS SELECT 99 AS version")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_sqlite, "is an SQLite file"),
        (lambda path: path.write_text("plain text, long enough"), "is no DuckDB file"),
        (_tables_of_others, "holds what is no projection's"),
        (_holds("CREATE MACRO m(a) AS a"), "holds what is no projection's"),
        (_holds("CREATE SEQUENCE s"), "holds what is no projection's"),
        (_holds("CREATE TYPE mood AS ENUM ('good')"), "holds what is no projection's"),
        (_holds("CREATE SCHEMA other"), "holds what is no projection's"),
        (_schema_of_others, "has schema version 99"),
    ],
)
def test_files_that_are_not_ours(tmp_path: Path, make, words: str) -> None:  # type: ignore[no-untyped-def]
    db = tmp_path / "r.duckdb"
    make(db)
    before = db.read_bytes()
    with pytest.raises(ProjectionError, match=words) as caught:
        Store.open(str(db), "id")
    assert "\n" not in str(caught.value)
    assert db.read_bytes() == before
    assert os.listdir(tmp_path) == ["r.duckdb"]


def test_tables_and_comments(tmp_path: Path) -> None:
    db = tmp_path / "r.duckdb"
    Store.open(str(db)).close()
    for table in TABLES:
        found = rows(
            db,
            "SELECT column_name, comment FROM duckdb_columns() "
            f"WHERE database_name = 'd' AND table_name = '{table}' ORDER BY column_index",
        )
        assert [name for name, _ in found] == list(COLUMNS[table])
        assert all(comment for _, comment in found)
    assert rows(
        db,
        "SELECT count(*) FROM duckdb_tables() WHERE comment IS NULL OR has_primary_key "
        "OR index_count > 0",
    ) == [(0,)]


async def test_checkpoints_are_what_the_log_gives(tmp_path: Path) -> None:
    log, identity = await new_log(str(tmp_path / "j.db"))
    await put(log, many(40))
    db = tmp_path / "r.duckdb"
    assert await connect(db).checkpoint("task-00001", identity.journal_id) is None
    await project(log, identity, db)
    (end,) = (await log.ends()).values()
    for n in range(40):
        task_id = f"task-{n:05d}"
        records = await log.read_key(0, task_id.encode())
        events = [(r.offset, decode_event(r.value)) for r in records if r.value != b"no event"]
        checkpoint = await connect(db).checkpoint(task_id, identity.journal_id)
        assert checkpoint is not None
        assert checkpoint.next_offset == end
        assert checkpoint.state == fold(events, task_id)
    unknown = await connect(db).checkpoint("nobody", identity.journal_id)
    assert unknown is not None
    assert (unknown.state.exists, unknown.next_offset) == (False, end)
    with pytest.raises(ProjectionError, match="belongs to journal"):
        await connect(db).checkpoint("nobody", "other")
    await log.close()


async def test_a_sub_task_survives_its_rows(tmp_path: Path) -> None:
    log, identity = await new_log(str(tmp_path / "j.db"))
    body = Raw(b'{"description":"d","parent_task_id":"p"}')
    claims = [
        Envelope("TaskStarted", 1, "a", "p:c", 0, "o0", None, "ref", 3, "x", body=body),
        Envelope("TaskClaimed", 1, "b", "p:c", 1, "o1", None, "ref", 5, "x"),
    ]
    await put_events(log, claims)
    db = tmp_path / "r.duckdb"
    await project(log, identity, db)
    checkpoint = await connect(db).checkpoint("p:c", identity.journal_id)
    assert checkpoint is not None
    assert checkpoint.state == fold(enumerate(claims, 1), "p:c")
    await log.close()


async def test_a_number_that_no_column_can_hold(tmp_path: Path) -> None:
    log, identity = await new_log(str(tmp_path / "j.db"))
    w = Writer("t1")
    start, big = w.start(), w.message("hi")
    big.seq = 10**30
    await put_events(log, [start, big])
    db = tmp_path / "r.duckdb"
    await project(log, identity, db)
    assert rows(db, 'SELECT id, seq, body FROM events WHERE "offset" > 1 ORDER BY "offset"') == [
        (big.id, None, bytes(big.body).decode()),
    ]
    await log.close()


async def test_follows_and_answers_until_stopped(tmp_path: Path) -> None:
    log, identity = await new_log(str(tmp_path / "j.db"))
    db = tmp_path / "r.duckdb"
    heard = asyncio.Event()
    runner = Runner(
        log,
        identity,
        lambda: Store.open(str(db), identity.journal_id),
        on_written=lambda _: heard.set(),
    )
    stop = asyncio.Event()
    running = asyncio.create_task(runner.run(follow=True, stop=stop))
    w = Writer("t1")
    async with asyncio.timeout(30):
        for events in ([w.start()], [w.recorded(0)], list(w.step(1))):
            await heard.wait()
            heard.clear()
            await put_events(log, events)
            while runner.written < (await log.ends())[0]:
                await heard.wait()
                heard.clear()
            heard.set()
            assert runner.store is not None
            assert runner.store.offsets()[0].next_offset == (await log.ends())[0]
    stop.set()
    await running
    await runner.close()
    assert rows(db, "SELECT current_step FROM tasks") == [(2,)]
    await log.close()


async def test_a_task_in_the_wrong_partition_and_another_genesis(tmp_path: Path) -> None:
    log, identity = await new_log(str(tmp_path / "j.db"))
    body = {"journal_id": new_id(), "partitions": 1, "acceptance": 1}
    event = {"type": "JournalCreated", "v": 1, "id": "g", "body": body}
    await append_and_wait(log, 0, b"\x00journal", json.dumps(event).encode(), 1)
    db = tmp_path / "r.duckdb"
    await project(log, identity, db)
    assert rows(db, "SELECT label, task_id FROM anomalies") == [("foreign", None)]
    await log.close()
