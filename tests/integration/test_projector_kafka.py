"""The projector on a real Kafka topic: partitions, restarts, misplaced records."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.log import append_and_wait
from journal.partition import partition_of
from projector import connect
from projector.store import Store
from tests.make_events import Writer, many, pair
from tests.projecting import failing_commit, new_log, project, put, rows, tables

pytestmark = pytest.mark.kafka


async def test_however_often_it_is_begun(kafka_url: str, tmp_path: Path) -> None:
    log, identity = await new_log(kafka_url, 3)
    whole, cut = tmp_path / "whole.duckdb", tmp_path / "cut.duckdb"
    pairs = many(90)
    for part in (pairs[:300], pairs[300:301], pairs[301:]):
        await put(log, part)
        await project(log, identity, cut, memory_bytes=0, batch_records=100)
    await project(log, identity, whole)
    assert tables(cut) == tables(whole)
    assert len(tables(whole)["offsets"]) == 3
    ends = await log.ends()
    assert dict(rows(whole, 'SELECT "partition", next_offset FROM offsets')) == ends
    checkpoint = await connect(cut).checkpoint("task-00003", identity.journal_id)
    assert checkpoint is not None
    assert checkpoint.next_offset == ends[partition_of("task-00003", 3)]
    await log.close()


async def test_failed_commits_lose_nothing(kafka_url: str, tmp_path: Path) -> None:
    log, identity = await new_log(kafka_url, 2)
    await put(log, many(90))
    calm, shaken = tmp_path / "calm.duckdb", tmp_path / "shaken.duckdb"
    await project(log, identity, calm)
    commit = failing_commit(lambda number: {2: "before", 3: "after"}.get(number))

    def open_store() -> Store:
        return Store.open(str(shaken), identity.journal_id, commit=commit)

    await project(log, identity, shaken, batch_records=200, open_store=open_store)
    assert tables(shaken) == tables(calm)
    await log.close()


async def test_a_record_in_a_wrong_partition(kafka_url: str, tmp_path: Path) -> None:
    log, identity = await new_log(kafka_url, 2)
    start = Writer("t1").start()
    right = partition_of("t1", 2)
    for partition in (1 - right, right):
        await append_and_wait(log, partition, *pair(start), 1)
    db = tmp_path / "r.duckdb"
    await project(log, identity, db)
    assert rows(db, 'SELECT "partition", label FROM anomalies') == [(1 - right, "misplaced")]
    assert rows(db, 'SELECT "partition" FROM tasks') == [(right,)]
    await log.close()
