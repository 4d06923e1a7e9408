"""Resuming through a projection: the same state as from the log alone, from fewer records.

Knows both packages, as an application that hands one to the other does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import journal
import projector
from journal.blobs import DirectoryBlobs
from journal.errors import HistoryTruncated
from journal.events import Decision, ToolCall
from journal.log import Log, Record, append_and_wait
from journal.messages import messages
from tests.projecting import project

Connect = Callable[..., journal.Journal]


class Counting:
    """Stands before a log and notes from which offset a task's records were asked for."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.starts_asked: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def read_key(self, partition: int, key: bytes, start: int = 0) -> list[Record]:
        self.starts_asked.append(start)
        return await self._log.read_key(partition, key, start)


@pytest.mark.parametrize("backend", ["sqlite", "kafka"])
async def test_resuming_reads_only_what_the_projection_lacks(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = str(tmp_path / "journal.db")
    if backend == "kafka":
        url = request.getfixturevalue("kafka_url")
    blobs = DirectoryBlobs(tmp_path / "blobs")
    db = tmp_path / "runs.duckdb"
    asked = Decision("look", [ToolCall("look", {"at": "it"})])
    async with journal.connect(url, create=True, blobs=blobs) as j:
        async with j.task("t", "d") as task:
            for index in range(5):
                await task.record_step(index, asked, [{"seen": index}])
            await task.receive("and then?", id="m")
        await project(j.log, j.identity, db)
        async with j.task("t") as task:
            await task.record_step(5, "past the projection")
        alone = await j.state("t")
    store = projector.connect(db)
    async with journal.connect(url, blobs=blobs, checkpoints=store) as j:
        j.log = counting = Counting(j.log)  # type: ignore[assignment]
        through = await j.state("t")
        assert messages(through) == messages(alone)
        assert through.head == alone.head
        assert (through.current_step, through.offset) == (6, alone.offset)
        assert counting.starts_asked[0] > 5
        async with j.task("t") as task:
            assert task.resumed is not None
            assert task.resumed.steps_reused == 6
            await task.complete("done")


async def test_a_task_that_has_lost_its_beginning_does_not_start_anew(
    connect: Connect, tmp_path: Path
) -> None:
    db = tmp_path / "runs.duckdb"
    async with connect() as j:
        async with j.task("t", "d") as task:
            await task.record_step(0, "zero")
            partition = task.state.partition
        await project(j.log, j.identity, db)
        # As before a truncation: the genesis record once more, where the log will begin.
        start = (await j.log.starts())[partition]
        (first,) = await anext(j.log.read(partition, start, start + 1))
        assert first.key is not None
        assert first.value is not None
        cut = await append_and_wait(j.log, partition, first.key, first.value, first.timestamp_ms)
        async with j.task("t") as task:
            await task.record_step(1, "one")
        await j.log.truncate(partition, cut)
    async with connect() as j:
        for look in (j.state("t"), j.send("t", "hello"), j.task("t", "d").__aenter__()):
            with pytest.raises(HistoryTruncated, match="t: its beginning has been deleted"):
                await look
        async with j.task("another", "d"):
            pass
    async with connect(checkpoints=projector.connect(db)) as j, j.task("t", "d") as task:
        assert task.state.current_step == 2
    young = tmp_path / "young.duckdb"
    async with connect() as j:
        await project(j.log, j.identity, young)
    async with connect(checkpoints=projector.connect(young)) as j:
        with pytest.raises(HistoryTruncated, match="t: its beginning has been deleted"):
            await j.task("t", "d").__aenter__()


@pytest.mark.parametrize("ahead", ["sent", "unread"])
async def test_what_a_projection_did_not_count_is_no_obstacle(
    connect: Connect, tmp_path: Path, ahead: str
) -> None:
    db = tmp_path / "runs.duckdb"
    async with connect() as j:
        async with j.task("t", "d") as task:
            await task.record_step(0, "zero")
            partition, key = task.state.partition, task.owner.key
        if ahead == "sent":
            for _ in range(2):
                await j.send("t", "hello", id="m")
        else:
            await append_and_wait(j.log, partition, key, b"no event", 0)
        await project(j.log, j.identity, db)
    async with connect(checkpoints=projector.connect(db)) as j:
        async with asyncio.timeout(60), j.task("t") as task:
            await task.record_step(1, "one")
        assert (await j.state("t")).current_step == 2
