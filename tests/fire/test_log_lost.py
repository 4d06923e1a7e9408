"""A topic that is deleted, made again or truncated while agents work on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import projector
from journal.errors import HistoryTruncated, LogNotFound, LogReplaced
from journal.genesis import GENESIS_KEY
from journal.kafka_log import KafkaLog
from journal.log import Record, append_and_wait
from tests.broker.java import JavaBroker
from tests.fire.checks import hold, project_once, whole_log
from tests.fire.load import Load
from tests.fire.scale import AGENTS, OPTIONS, full_only
from tests.projector_child import running
from tests.topics import T, admin, remake

pytestmark = [pytest.mark.kafka, pytest.mark.fire]


@full_only
async def test_a_topic_that_is_deleted(broker: JavaBroker, tmp_path: Path) -> None:
    url = f"kafka://{broker.address}/t"
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        await load.progress(2)
        async with admin(broker.address) as client:
            await client.delete_topics(["t"])
        await load.lose()
        assert {type(agent.lost) for agent in load.agents} <= {LogNotFound, LogReplaced}
        run = await asyncio.to_thread(project_once, url, tmp_path / "once.duckdb")
        assert run.returncode == 1
        assert run.stderr.startswith(f"projector: no topic t at {broker.address}; make it with")
        assert run.stderr.count("\n") == 1


@full_only
async def test_a_topic_that_is_made_again(broker: JavaBroker, tmp_path: Path) -> None:
    url, db = f"kafka://{broker.address}/t", tmp_path / "once.duckdb"
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        await load.progress(2)
        assert (await asyncio.to_thread(project_once, url, db)).returncode == 0
        await remake(broker.address, "t", 12)
        await load.lose()
        assert {type(agent.lost) for agent in load.agents} <= {LogNotFound, LogReplaced}
        run = await asyncio.to_thread(project_once, url, db)
        assert run.returncode == 1
        assert run.stderr.count("\n") == 1


async def begin_anew(log: KafkaLog) -> dict[int, int]:
    """The genesis record of every partition once more, as before a truncation; where they are."""
    places: dict[int, int] = {}
    for partition in range(log.partitions):
        (first,) = await anext(log.read(partition, 0, 1))
        assert first.value is not None
        places[partition] = await append_and_wait(log, partition, GENESIS_KEY, first.value, T)
    return places


async def truncate(log: KafkaLog, before: dict[int, int]) -> dict[int, list[Record]]:
    """Delete what stands before these offsets; what that was."""
    gone: dict[int, list[Record]] = {}
    for partition, end in before.items():
        gone[partition] = [r async for batch in log.read(partition, 0, end) for r in batch]
        await log.truncate(partition, end)
    return gone


@full_only
async def test_a_topic_truncated_below_its_projection(broker: JavaBroker, tmp_path: Path) -> None:
    """Agents that resume through the projection miss nothing."""
    url, db, old = f"kafka://{broker.address}/t", tmp_path / "r.duckdb", tmp_path / "old.duckdb"
    options = OPTIONS | {"checkpoints": projector.connect(db)}
    async with running(url, db) as child:
        await child.until("waiting")
        async with Load.working(url, tmp_path, agents=AGENTS, **options) as load:
            await load.progress(2)
            assert (await asyncio.to_thread(project_once, url, old)).returncode == 0
            await load.progress(2)
            log = await KafkaLog.open(url)
            starts = await begin_anew(log)
            past = " OR ".join(
                f'"partition" = {p} AND next_offset > {n}' for p, n in starts.items()
            )
            await child.has(f"SELECT count(*) AS n FROM offsets WHERE {past}", len(starts))
            gone = await truncate(log, starts)
            await log.close()
            load.crash(load.agents)
            await load.finish()
            assert await child.ended() == 0
            left = await whole_log(url)
            await hold(load, tmp_path, records={p: gone[p] + left[p] for p in gone}, db=db)
    # One that had not read what is gone cannot go on, and says so.
    run = await asyncio.to_thread(project_once, url, old)
    assert run.returncode == 1
    assert "was to be read next and has been deleted; move the database away" in run.stderr
    assert run.stderr.count("\n") == 1


@full_only
async def test_a_task_that_has_lost_its_beginning(broker: JavaBroker, tmp_path: Path) -> None:
    """Without a projection it is an error, and never a task that starts anew."""
    url = f"kafka://{broker.address}/t"
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        await load.progress(2)
        log = await KafkaLog.open(url)
        await truncate(log, await begin_anew(log))
        await log.close()
        # Whoever has its task open goes on.
        await load.progress(2)
        load.crash(load.agents)
        with pytest.raises(HistoryTruncated, match="its beginning has been deleted"):
            await load.finish()
