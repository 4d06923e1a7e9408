"""How far a projector has read, as Kafka's group offsets: for monitors, and never in the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from journal.errors import LogUnavailable, ProjectionError
from journal.kafka_log import KafkaLog
from journal.log import Log, Monitored
from journal.sqlite_log import SqliteLog
from projector.reporting import Reporter, reader_name
from projector.running import Projection, opened
from tests.broker import Broker
from tests.make_events import Writer, many
from tests.projecting import new_log, put, put_events, rows
from tests.projector_child import PATIENCE_S, running

OFFSETS = 'SELECT "partition", next_offset FROM offsets'


async def committed(broker: str, group: str) -> dict[TopicPartition, int]:
    client = AIOKafkaAdminClient(bootstrap_servers=broker)
    await client.start()
    try:
        found = await client.list_consumer_group_offsets(group)
    finally:
        await client.close()
    return {tp: offset.offset for tp, offset in found.items()}


async def reported(log: Log, reader: str, positions: Mapping[int, int]) -> None:
    """Report once Kafka is ready for it: a broker that has just started may need more than the
    5 s for which a report waits."""
    assert isinstance(log, Monitored)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await log.report(reader, positions)
            except LogUnavailable:
                continue


@pytest.mark.kafka
async def test_the_group_ends_where_the_file_ends(
    kafka_broker: str, kafka_topic: str, kafka_url: str, tmp_path: Path
) -> None:
    db = tmp_path / "r.duckdb"
    log, identity = await new_log(kafka_url, 3)
    group = reader_name(identity.journal_id)
    await reported(log, "somebody", {0: 0})
    await put(log, many(90))
    projection = Projection(str(db), kafka_url, lambda: opened(kafka_url, None), lambda _: None)
    await projection.once()
    await projection.close()
    ends = {TopicPartition(kafka_topic, p): end for p, end in (await log.ends()).items()}
    assert await committed(kafka_broker, group) == ends
    # Followed, with what comes meanwhile; the last batch is younger than the last report.
    async with running(kafka_url, db) as child:
        await child.until("following")
        for name in ("x", "y"):
            await put_events(log, [Writer(name).start()])
            await child.has(f"SELECT count(*) AS n FROM tasks WHERE task_id = '{name}'", 1)
        assert await child.ended() == 0
    held = {TopicPartition(kafka_topic, p): at for p, at in rows(db, OFFSETS)}
    assert sum(held.values()) == sum(ends.values()) + 2
    assert await committed(kafka_broker, group) == held
    assert [line for line in child.said if "monitors" in line] == []
    await log.close()


@pytest.mark.kafka
async def test_kafka_tells_in_time_that_it_is_away_and_goes_on(own_broker: Broker) -> None:
    log = await KafkaLog.open(f"kafka://{own_broker.address}/t", create=True, partitions=2)
    await reported(log, "g", {0: 5})
    await asyncio.to_thread(own_broker.kill)
    with pytest.raises(LogUnavailable, match="group g was not moved on: no answer"):
        await log.report("g", {0: 6, 1: 1})
    with pytest.raises(LogUnavailable, match=own_broker.address):
        await log.report("g", {0: 6, 1: 1})
    await asyncio.to_thread(own_broker.start)
    await reported(log, "g", {0: 6, 1: 1})
    await reported(log, "other", {0: 1})
    topic = "t"
    found = await committed(own_broker.address, "g")
    assert found == {TopicPartition(topic, 0): 6, TopicPartition(topic, 1): 1}
    assert await committed(own_broker.address, "other") == {TopicPartition(topic, 0): 1}
    await log.close()


async def soon(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), PATIENCE_S)


class Monitor:
    """A log's monitors: they note what they are told, after failing so many times."""

    def __init__(self, failures: int = 0) -> None:
        self.told: list[tuple[str, dict[int, int]]] = []
        self.asked = 0
        self.heard, self.served = asyncio.Event(), asyncio.Event()
        self._failures = failures

    async def report(self, reader: str, positions: Mapping[int, int]) -> None:
        self.asked += 1
        self.heard.set()
        if self.asked <= self._failures:
            raise LogUnavailable("nobody listens")
        self.told.append((reader, dict(positions)))
        self.served.set()


async def test_many_batches_are_two_reports() -> None:
    monitor, at = Monitor(), {0: 1}
    async with Reporter(monitor, "me", lambda: at, every_s=3600) as reporter:
        await soon(monitor.heard)
        for n in range(100):
            at[0] = n
            reporter.written()
            await asyncio.to_thread(int)
    assert monitor.told == [("me", {0: 1}), ("me", {0: 99})]


async def test_a_report_that_failed_is_made_again_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    monitor = Monitor(failures=3)
    with caplog.at_level(logging.WARNING, "projector"):
        async with Reporter(monitor, "me", lambda: {0: 1}, every_s=0):
            await soon(monitor.served)
    assert monitor.told == [("me", {0: 1})]
    (record,) = caplog.records
    assert record.getMessage() == "monitors do not see how far this has read: nobody listens"


async def test_one_that_was_cut_off_is_made_again_at_the_end() -> None:
    class Slow(Monitor):
        async def report(self, reader: str, positions: Mapping[int, int]) -> None:
            if not self.heard.is_set():
                self.heard.set()
                await asyncio.Event().wait()
            await super().report(reader, positions)

    monitor = Slow()
    async with Reporter(monitor, "me", lambda: {0: 1}):
        await soon(monitor.heard)
    assert monitor.told == [("me", {0: 1})]


async def test_a_file_that_is_being_opened_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    def closed() -> Mapping[int, int]:
        raise ProjectionError("is being closed")

    monitor = Monitor()
    async with Reporter(monitor, "me", closed, every_s=0):
        await asyncio.sleep(0)
    async with Reporter(monitor, "me", dict):
        await asyncio.sleep(0)
    assert (monitor.told, caplog.records) == ([], [])


async def test_the_embedded_log_has_no_monitors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = await SqliteLog.open(tmp_path / "journal.db", create=True)
    assert not isinstance(log, Monitored)
    async with Reporter(log, "me", lambda: {0: 1}) as reporter:
        reporter.written()
    assert caplog.records == []
    await log.close()
