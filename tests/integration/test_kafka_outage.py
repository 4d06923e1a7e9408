"""A Kafka broker that is away, killed, or back again, under appends and tails."""

from __future__ import annotations

import asyncio
import logging

import pytest

from journal.errors import (
    LogUnavailable,
    OutcomeUnknown,
)
from journal.kafka_client import Clients, parse_url
from journal.kafka_config import client_options
from journal.log import NONE
from tests.broker import Broker
from tests.topics import everything, opened, put

pytestmark = pytest.mark.kafka


async def test_while_the_broker_is_away_an_append_fails_in_time_and_certainly(
    own_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"kafka://{own_broker.address}/t"
    async with opened(url, create=True, partitions=1, append_deadline_s=0.5) as log:
        await asyncio.to_thread(own_broker.kill)
        # Nothing was in flight: there is no producer yet.
        with (
            caplog.at_level(logging.WARNING, "journal"),
            pytest.raises(LogUnavailable, match=own_broker.address),
        ):
            await put(log, b"never")
        ours = [r.getMessage() for r in caplog.records if r.name == "journal"]
        assert ["is away" in message for message in ours] == [True]
        await asyncio.to_thread(own_broker.start)
        while True:
            # Kafka may need a moment more, and half a second is short on a busy machine.
            try:
                await put(log, b"again")
                break
            except (LogUnavailable, OutcomeUnknown):
                continue
        assert {r.value for r in await everything(log)} == {b"again"}


@pytest.mark.parametrize("deadline_s", [3.0, 60.0])
async def test_a_broker_killed_under_appends_loses_and_doubles_nothing(
    own_broker: Broker, deadline_s: float
) -> None:
    """With a short deadline the outage outlasts it, with a long one it does not."""
    url = f"kafka://{own_broker.address}/t"
    partitions, writers, each = 2, 12, 40
    outcomes: dict[bytes, tuple[int, int | Exception]] = {}
    acknowledged = 0
    kill, failed, back = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async with opened(url, create=True, partitions=partitions, append_deadline_s=deadline_s) as log:

        async def write(writer: int) -> None:
            nonlocal acknowledged
            partition = writer % partitions
            n = 0
            while n < each or not back.is_set():
                n += 1
                value = b"%d:%d" % (writer, n)
                try:
                    outcomes[value] = partition, await put(log, value, partition=partition)
                    acknowledged += 1
                except (OutcomeUnknown, LogUnavailable) as error:
                    outcomes[value] = partition, error
                    failed.set()
                    kill.set()
                    await back.wait()
                if acknowledged >= writers * each:
                    kill.set()

        async def chaos() -> None:
            await kill.wait()
            assert not failed.is_set()
            await asyncio.to_thread(own_broker.kill)
            if deadline_s < 10:
                await failed.wait()
            await asyncio.to_thread(own_broker.start)
            back.set()

        await asyncio.gather(chaos(), *(write(w) for w in range(writers)))

        assert failed.is_set() == (deadline_s < 10)
        found = {p: await everything(log, p) for p in range(partitions)}
        assert (await log.ends()) == {p: len(found[p]) for p in found}

    values = [r.value for p in found for r in found[p]]
    assert len(values) == len(set(values)), "doubled"
    for value, (partition, outcome) in outcomes.items():
        at = [r.offset for r in found[partition] if r.value == value]
        if isinstance(outcome, LogUnavailable):
            assert at == [], "written though it was certain that it was not"
        elif not isinstance(outcome, OutcomeUnknown):
            assert outcome == NONE or at == [outcome], "lost, or acknowledged elsewhere"
    for partition in found:
        for writer in range(writers):
            mine = [
                int(v[1]) for r in found[partition] if int((v := r.value.split(b":"))[0]) == writer
            ]
            assert mine == sorted(mine)


async def test_a_tail_outlives_its_broker(
    own_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"kafka://{own_broker.address}/t"
    async with opened(url, create=True, partitions=1) as log:
        seen: list[bytes | None] = []
        grown = asyncio.Condition()

        async def follow() -> None:
            async for batch in log.tail(0, 0):
                async with grown:
                    seen.extend(record.value for record in batch)
                    grown.notify_all()

        async def until(count: int) -> None:
            async with grown:
                await grown.wait_for(lambda: len(seen) >= count)

        following = asyncio.create_task(follow())
        await put(log, b"1")
        await until(1)
        with caplog.at_level(logging.WARNING, "journal"):
            await asyncio.to_thread(own_broker.kill)
            third = asyncio.create_task(put(log, b"2"))
            await asyncio.to_thread(own_broker.start)
            await third
            await put(log, b"3")
            await until(3)
        assert seen == [b"1", b"2", b"3"]
        assert sum("is away" in r.getMessage() for r in caplog.records) <= 1
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following


async def test_a_tail_begun_while_the_broker_is_away_begins_when_it_is_back(
    own_broker: Broker,
) -> None:
    url = f"kafka://{own_broker.address}/t"
    async with opened(url, create=True, partitions=1) as log:
        await put(log, b"1")
        await asyncio.to_thread(own_broker.kill)
        first = asyncio.create_task(anext(log.tail(0, 0)))
        await asyncio.to_thread(own_broker.start)
        assert [r.value for r in await first] == [b"1"]


async def test_a_connection_that_comes_after_its_clients_end_is_closed(kafka_url: str) -> None:
    clients = Clients(parse_url(kafka_url), client_options(None))
    consumer = await clients.consumer()
    client = consumer._client
    broker = next(iter(client.cluster.brokers()))
    late = asyncio.ensure_future(client._get_conn(broker.nodeId))
    await asyncio.sleep(0)
    await consumer.stop()
    assert not (await late).connected()
