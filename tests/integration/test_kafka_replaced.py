"""A topic that is deleted, or made again under the same name: whoever knew the old one is told.

The new one is mostly longer than the old one was, so that no offset is out of range: what is read
then is believed only while something that was read before is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

import journal
import projector
from journal.errors import LogNotFound, LogReplaced, OutcomeUnknown, ProjectionError
from journal.genesis import GENESIS_KEY
from journal.log import Record, append_and_wait
from projector.runner import Runner
from projector.running import Projection, opened
from projector.store import Store
from tests import topics
from tests.make_events import Writer
from tests.projecting import new_log, project, put_events, rows
from tests.projector_child import PATIENCE_S
from tests.topics import T, admin, everything, put, remake

pytestmark = pytest.mark.kafka

LONGER = 40
"""Records; none of the first topics has as many."""

IMPATIENT = {"request.timeout.ms": "1000"}
"""For as long the client waits for a partition that is not there."""


async def replace(url: str, first: Record | None = None, partitions: int = 1) -> None:
    """Another, longer topic under the same name; a journal of its own unless `first` is to be its
    first record."""
    broker, topic = url.removeprefix("kafka://").split("/")
    await remake(broker, topic, partitions)
    # Not every part of the broker knows it at once: opening waits for that where it may make it.
    async with topics.opened(url, create=True) as log:
        if first is None:
            other, _ = await new_log(url)
            await other.close()
        else:
            assert first.key is not None
            assert first.value is not None
            await append_and_wait(log, 0, first.key, first.value, T)
        for _ in range(LONGER):
            await put(log, b"new")


# --- longer than the old one ---------------------------------------------------------------------


async def test_tails_give_nothing_of_the_new_topic(kafka_url: str) -> None:
    async with topics.opened(kafka_url, create=True, partitions=2) as log:
        for _ in range(3):
            await put(log, b"old")
        await put(log, b"old", partition=1)
        first, second = log.tail(0, 0), log.tail(1, 0)
        assert len(await anext(second)) == 1
        seen: list[Record] = []
        while len(seen) < 3:
            seen += await anext(first)
        await replace(kafka_url, partitions=2)
        with pytest.raises(LogReplaced, match=r"made again.*is not the record that was read"):
            await anext(first)
        for reading in (log.tail(0, 3), log.read(0, 3), second):
            with pytest.raises(LogReplaced):
                await asyncio.wait_for(anext(reading), PATIENCE_S)
        with pytest.raises(LogReplaced):
            await log.read_key(0, b"key")
        with pytest.raises(LogReplaced):
            await put(log, b"mine")


async def test_a_topic_with_the_same_beginning(kafka_url: str) -> None:
    async with topics.opened(kafka_url, create=True, partitions=1, doubt_s=0) as log:
        for value in (b"same", b"old"):
            await put(log, value)
        (same,) = await anext(log.read(0, 0, 1))
        # The youngest record that is known to be of this topic is the one that tells.
        for _ in range(2):
            assert len(await everything(log)) == 2
        await replace(kafka_url, same)
        with pytest.raises(LogReplaced, match="0:1 is not the record"):
            await everything(log)


async def test_a_tail_that_has_given_nothing_yet(kafka_url: str) -> None:
    log, _ = await new_log(kafka_url, 1)
    tail = asyncio.ensure_future(anext(log.tail(0, 1)))
    # Long enough to have asked: this one goes the same way.
    assert (await anext(log.tail(0, 0)))[0].key == GENESIS_KEY
    await replace(kafka_url)
    with pytest.raises(LogReplaced):
        await asyncio.wait_for(tail, PATIENCE_S)
    await log.close()


async def test_whoever_only_reads(kafka_url: str) -> None:
    async with topics.opened(kafka_url, create=True, partitions=1, doubt_s=0) as log:
        await put(log, b"old")
        assert len(await everything(log)) == 1
        await replace(kafka_url)
        with pytest.raises(LogReplaced):
            await log.read_key(0, b"key", 1)


async def test_whoever_only_appends(kafka_url: str) -> None:
    async with topics.opened(kafka_url, create=True, partitions=1, doubt_s=0) as log:
        await put(log, b"old")
        assert len(await everything(log)) == 1
        await replace(kafka_url)

        async def append_on() -> None:
            while True:
                # The producer that knew the old topic may fail; the next one knows the new one.
                with contextlib.suppress(OutcomeUnknown):
                    assert await put(log, b"mine") > LONGER

        with pytest.raises(LogReplaced, match="is not the record that was read"):
            await asyncio.wait_for(append_on(), PATIENCE_S)


@pytest.mark.parametrize("partitions", [1, 12])
@pytest.mark.parametrize("confirm", ["always", "once"])
async def test_a_task_that_is_open(kafka_url: str, confirm: str, partitions: int) -> None:
    log, _ = await new_log(kafka_url, partitions)
    await log.close()
    async with journal.connect(kafka_url, confirm=confirm, kafka_config=IMPATIENT) as j:

        async def work() -> None:
            async with j.task("t", "d") as task:
                await task.record_step(0, "old")
                await replace(kafka_url)
                # Where only claims are read back, the first ones may be acknowledged.
                for index in itertools.count(1):
                    with contextlib.suppress(OutcomeUnknown):
                        await task.record_step(index, "mine")

        with pytest.raises(LogReplaced):
            await asyncio.wait_for(work(), PATIENCE_S)
    async with journal.connect(kafka_url) as j:
        assert await j.tasks() == []


async def test_resuming_through_a_projection(kafka_url: str, tmp_path: Path) -> None:
    db = tmp_path / "r.duckdb"
    log, _ = await new_log(kafka_url, 1)
    await log.close()
    async with journal.connect(kafka_url, checkpoints=projector.connect(db)) as j:
        async with j.task("t", "d") as task:
            await task.record_step(0, "old")
        await project(j.log, j.identity, db)
        (genesis,) = [b[0] async for b in j.log.read(0, 0, 1)]
        await replace(kafka_url)
        with pytest.raises(LogReplaced):
            await j.state("t")
        with pytest.raises(LogReplaced):
            async with j.task("t"):
                pass
    async with journal.connect(kafka_url, checkpoints=projector.connect(db)) as k:
        with pytest.raises(ProjectionError, match=f"belongs to journal {j.identity.journal_id}"):
            await k.state("t")
    # Even where its genesis record says that it is the same.
    await replace(kafka_url, genesis)
    async with journal.connect(kafka_url, checkpoints=projector.connect(db)) as k:
        assert k.identity == j.identity
        with pytest.raises(LogReplaced, match="not the one that the projection has read"):
            await k.state("t")
        with pytest.raises(LogReplaced, match="is not the one that was read before"):
            await project(k.log, k.identity, db)


async def test_a_projector_that_follows(kafka_url: str, tmp_path: Path) -> None:
    db = tmp_path / "r.duckdb"
    log, identity = await new_log(kafka_url, 1)
    await put_events(log, [Writer("t").start()])

    def open_store() -> Store:
        return Store.open(str(db), identity.journal_id)

    read = asyncio.Event()
    runner = Runner(log, identity, open_store, on_written=lambda _: read.set())
    following = asyncio.create_task(runner.run(follow=True))
    await asyncio.wait_for(read.wait(), PATIENCE_S)
    await replace(kafka_url)
    with pytest.raises(LogReplaced):
        await asyncio.wait_for(following, PATIENCE_S)
    await runner.close()
    await log.close()
    assert rows(db, "SELECT next_offset FROM offsets") == [(2,)]
    with pytest.raises(ProjectionError, match=f"belongs to journal {identity.journal_id}"):
        await follow(kafka_url, db)


async def test_a_projector_to_which_nothing_has_come(kafka_url: str, tmp_path: Path) -> None:
    db = tmp_path / "r.duckdb"
    log, identity = await new_log(kafka_url, 1)
    await project(log, identity, db)
    await log.close()
    begun = asyncio.Event()
    following = asyncio.create_task(follow(kafka_url, db, lambda _: begun.set()))
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    await replace(kafka_url)
    with pytest.raises(LogReplaced):
        await asyncio.wait_for(following, PATIENCE_S)
    assert rows(db, "SELECT next_offset FROM offsets") == [(1,)]


async def follow(url: str, db: Path, say: Callable[[str], None] = print) -> None:
    projection = Projection(str(db), url, lambda: opened(url, None), say)
    try:
        await projection.follow()
    finally:
        await projection.close()


async def test_what_is_deleted_from_the_start_is_no_other_topic(kafka_url: str) -> None:
    async with topics.opened(kafka_url, create=True, partitions=1, doubt_s=0) as log:
        for _ in range(3):
            await put(log, b"old")
        assert len(await everything(log)) == 3
        tail = log.tail(0, 3)
        for end in (4, 5):
            await put(log, b"on")
            await log.truncate(0, end)
            assert await everything(log) == []
        await put(log, b"on")
        await tail.aclose()  # type: ignore[attr-defined]
        assert [r.offset for r in await anext(log.tail(0, 5))] == [5]


async def test_a_topic_with_fewer_partitions_is_another_one(kafka_url: str) -> None:
    async with topics.opened(kafka_url, create=True, partitions=2, config=IMPATIENT) as log:
        tail = log.tail(1, 0)
        await put(log, b"old", partition=1)
        assert len(await anext(tail)) == 1
        await replace(kafka_url)
        with pytest.raises(LogReplaced, match="has 1 partitions and had 2"):
            await log.ends()
        with pytest.raises(LogReplaced):
            await asyncio.wait_for(anext(tail), PATIENCE_S)


# --- not longer, or gone --------------------------------------------------------------------------


async def test_an_append_to_a_topic_made_again_is_found_out(
    kafka_broker: str, kafka_topic: str, kafka_url: str
) -> None:
    async with topics.opened(kafka_url, create=True, partitions=1) as log:
        for n in range(3):
            assert await put(log, b"old") == n
        await remake(kafka_broker, kafka_topic)
        with pytest.raises(LogReplaced, match=kafka_topic):
            await put(log, b"new")
        # And from then on nothing more is written there.
        with pytest.raises(LogReplaced):
            await put(log, b"newer")
        assert len(await everything(log)) == 1


async def test_a_tail_of_a_topic_made_again_is_found_out(
    kafka_broker: str, kafka_topic: str, kafka_url: str
) -> None:
    async with topics.opened(kafka_url, create=True, partitions=1) as log:
        for _ in range(3):
            await put(log, b"old")
        tail = log.tail(0, 0)
        seen: list[Record] = []
        while len(seen) < 3:
            seen += await anext(tail)
        await remake(kafka_broker, kafka_topic)
        with pytest.raises(LogReplaced, match=r"0:[23] "):
            await anext(tail)
        with pytest.raises(LogReplaced, match=r"0:[23] "):
            await anext(log.read(0, 3))


async def test_a_tail_of_a_deleted_topic_ends(
    kafka_broker: str, kafka_topic: str, kafka_url: str
) -> None:
    async with topics.opened(kafka_url, create=True, partitions=1) as log:
        await put(log, b"old")
        tail = log.tail(0, 0)
        await anext(tail)
        async with admin(kafka_broker) as client:
            await client.delete_topics([kafka_topic])
        with pytest.raises(LogNotFound):
            await anext(tail)
