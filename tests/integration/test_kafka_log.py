"""What only a Kafka topic does: settings, brokers that die, offsets.

What every log does is in `tests/contract`; topics that are replaced are in `test_kafka_replaced`.
"""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.admin import NewTopic

from journal.errors import (
    EventTooLarge,
    HistoryTruncated,
    LogMisconfigured,
    LogNotFound,
    LogUnavailable,
    UsageError,
)
from journal.kafka_admin import check_topic, settings_for
from journal.kafka_log import KafkaLog
from journal.log import NONE, Append
from tests.broker.base import free_ports
from tests.topics import T, admin, everything, opened, put

pytestmark = pytest.mark.kafka


# --- opening ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "kafka://",
        "kafka://localhost:9092",
        "kafka://localhost:9092/",
        "kafka://localhost:9092/a/b",
        "kafka://localhost:9092/a?b=c",
        "kafka://localhost:port/topic",
        "kafka://localhost:9092,/topic",
        "kafka://localhost:9092/..",
        "http://localhost:9092/topic",
    ],
)
async def test_a_url_that_names_no_topic_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="kafka://host:port"):
        await KafkaLog.open(url)


async def test_a_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        await KafkaLog.open("kafka://me:hunter2@localhost:9092/topic")
    assert "hunter2" not in str(caught.value)


async def test_a_missing_topic_names_the_command_and_is_not_made(
    kafka_broker: str, kafka_topic: str, kafka_url: str
) -> None:
    with pytest.raises(LogNotFound, match=f"journal init --log {kafka_url}"):
        await KafkaLog.open(kafka_url)
    async with admin(kafka_broker) as client:
        assert kafka_topic not in await client.list_topics()


async def test_a_topic_that_we_make_passes_the_check(kafka_url: str) -> None:
    async with opened(kafka_url, create=True, partitions=3) as log:
        assert log.partitions == 3
    assert await check_topic(kafka_url) == []
    # Made a second time it is used as it is, whatever the call says about partitions.
    async with opened(kafka_url, create=True, partitions=5) as log:
        assert log.partitions == 3


async def test_many_may_make_a_topic_at_once(kafka_url: str) -> None:
    logs = await asyncio.gather(
        *(KafkaLog.open(kafka_url, create=True, partitions=2) for _ in range(5))
    )
    assert [log.partitions for log in logs] == [2] * 5
    await asyncio.gather(*(log.close() for log in logs))


async def test_more_replicas_than_brokers_are_refused(kafka_url: str) -> None:
    with pytest.raises(UsageError, match="--replication-factor"):
        await KafkaLog.open(kafka_url, create=True, replication_factor=7)


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("cleanup.policy", "compact", "delete"),
        ("cleanup.policy", "compact,delete", "delete"),
        ("retention.ms", "604800000", "-1"),
        ("retention.bytes", "1000000", "-1"),
        ("message.timestamp.type", "LogAppendTime", "CreateTime"),
        ("message.timestamp.after.max.ms", "3600000", "9223372036854775807"),
        ("unclean.leader.election.enable", "true", "false"),
        ("min.insync.replicas", "2", "1"),
    ],
)
async def test_a_wrong_setting_is_an_error_with_its_remedy(
    kafka_broker: str, kafka_topic: str, kafka_url: str, setting: str, value: str, wanted: str
) -> None:
    settings = settings_for(1) | {setting: value}
    async with admin(kafka_broker) as client:
        await client.create_topics([NewTopic(kafka_topic, 1, 1, topic_configs=settings)])
    with pytest.raises(LogMisconfigured) as caught:
        await KafkaLog.open(kafka_url, create=True)
    message = str(caught.value)
    assert f"{setting} is {value}, must be {wanted}" in message
    assert f"--entity-name {kafka_topic} --add-config {setting}={wanted}" in message
    assert "\n" not in message
    (found,) = await check_topic(kafka_url)
    assert (found.setting, found.value, found.wanted) == (setting, value, wanted)


async def test_a_broker_that_is_away_is_one_line_that_names_it() -> None:
    (port,) = free_ports(1)
    async with asyncio.timeout(10):
        with pytest.raises(LogUnavailable, match=f"127.0.0.1:{port}: .*refused") as caught:
            await KafkaLog.open(f"kafka://127.0.0.1:{port}/topic")
    assert "\n" not in str(caught.value)


async def test_a_port_that_does_not_answer_is_given_up() -> None:
    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    silent = asyncio.Event()
    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = {"request.timeout.ms": "300"}
    with pytest.raises(LogUnavailable, match=f"127.0.0.1:{port}: it does not answer"):
        await KafkaLog.open(f"kafka://127.0.0.1:{port}/topic", config=config)
    silent.set()
    server.close()


async def test_tls_against_a_plain_port_asks_about_the_protocol(kafka_url: str) -> None:
    with pytest.raises(LogUnavailable, match=r"security\.protocol"):
        await KafkaLog.open(kafka_url, config={"security.protocol": "SSL"})


# --- appending ----------------------------------------------------------------------------------


class Noted(Append):
    """Notes its outcome and calls back."""

    __slots__ = ("outcomes", "then")

    def __init__(self, value: bytes) -> None:
        super().__init__(b"key", value, T)
        self.outcomes: list[int | Exception] = []
        self.then: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def written(self, offset: int) -> None:
        self.outcomes.append(offset)
        if not self.then.done():
            self.then.set_result(None)

    def failed(self, error: Exception) -> None:
        self.outcomes.append(error)
        if not self.then.done():
            self.then.set_result(None)


async def test_an_event_that_is_too_large_fails_by_name_and_the_log_goes_on(
    kafka_url: str,
) -> None:
    import random

    incompressible = random.Random(1).randbytes(1_200_000)
    async with opened(kafka_url, create=True, partitions=1) as log:
        assert await put(log, b"before") == 0
        with pytest.raises(EventTooLarge, match=r"1,200,000 bytes .* nothing was written; store"):
            await put(log, incompressible)
        assert await put(log, b"after") == 1
        # A large one that compresses is nothing special.
        assert await put(log, b"x" * 3_000_000) == 2
        assert [len(r.value or b"") for r in await everything(log)] == [6, 5, 3_000_000]


async def test_a_record_that_cannot_be_encoded_fails_and_the_log_goes_on(kafka_url: str) -> None:
    async with opened(kafka_url, create=True, partitions=1) as log:
        wrong = [Noted(b"1"), Noted(b"2")]
        for append in wrong:
            append.headers = (("type", "text"),)  # type: ignore[assignment]
        for append in wrong:
            log.append(0, append)
        async with asyncio.timeout(10):
            await asyncio.gather(*(append.then for append in wrong))
        assert all(isinstance(a.outcomes[0], LogUnavailable) for a in wrong)
        assert await put(log, b"right") == 0


async def test_after_close_nothing_is_written_and_what_was_queued_is(kafka_url: str) -> None:
    log = await KafkaLog.open(kafka_url, create=True, partitions=2)
    queued = [Noted(b"%d" % n) for n in range(200)]
    for n, append in enumerate(queued):
        log.append(n % 2, append)
    await log.close()
    assert [append.outcomes for append in queued] == [[n // 2] for n in range(200)]
    late = Noted(b"late")
    log.append(0, late)
    await late.then
    assert isinstance(late.outcomes[0], LogUnavailable)
    await log.close()


# --- reading ------------------------------------------------------------------------------------


async def test_a_tail_that_nobody_reads_holds_up_no_other(kafka_url: str) -> None:
    count = 7_000
    async with opened(kafka_url, create=True, partitions=2) as log:
        many = [Noted(b"%d" % n) for n in range(count)]
        for append in many:
            log.append(0, append)
        await many[-1].then
        slow, quick = log.tail(0, 0), log.tail(1, 0)
        seen = await anext(slow)
        for n in range(20):
            await put(log, b"%d" % n, partition=1)
            assert [r.value for r in await anext(quick)] == [b"%d" % n]
        while len(seen) < count:
            seen += await anext(slow)
        assert [r.value for r in seen] == [append.value for append in many]


async def test_tails_come_and_go_and_the_others_go_on(kafka_url: str) -> None:
    async with opened(kafka_url, create=True, partitions=3) as log:
        tails = [log.tail(0, 0)]
        for n in range(8):
            for partition, tail in enumerate(tails):
                await put(log, b"%d" % n, partition=partition)
                assert [r.value for r in await anext(tail)] == [b"%d" % n]
            if len(tails) < 3:
                start = (await log.ends())[len(tails)]
                tails.append(log.tail(len(tails), start))
            else:
                await tails.pop().aclose()  # type: ignore[attr-defined]
        # Two of the same partition, at different places.
        first, second = log.tail(0, 0), log.tail(0, 5)
        assert (await anext(second))[0].offset == 5
        assert (await anext(first))[0].offset == 0


async def test_truncated_records_are_gone_and_named(kafka_url: str) -> None:
    async with opened(kafka_url, create=True, partitions=2) as log:
        for n in range(10):
            await put(log, b"%d" % n)
        await log.truncate(0, 4)
        assert await log.starts() == {0: 4, 1: 0}
        assert [r.offset for r in await everything(log)] == [4, 5, 6, 7, 8, 9]
        with pytest.raises(HistoryTruncated, match="begins at 0:4"):
            await anext(log.read(0, 3))
        with pytest.raises(HistoryTruncated, match="begins at 0:4"):
            await anext(log.tail(0, 3))
        assert [r.offset for r in await log.read_key(0, b"key", 0)] == [4, 5, 6, 7, 8, 9]
        # For Kafka, -1 would mean all of them.
        await log.truncate(0, NONE)
        await log.truncate(0, 2)
        assert (await log.starts())[0] == 4
        await log.truncate(0, 99)
        assert (await log.starts())[0] == (await log.ends())[0] == 10
        assert await everything(log) == []
        assert await put(log, b"on") == 10


async def test_a_tail_overtaken_by_a_truncation_says_so(kafka_url: str) -> None:
    async with opened(kafka_url, create=True, partitions=1) as log:
        await put(log, b"0")
        tail = log.tail(0, 0)
        await anext(tail)
        for n in range(1, 5):
            await put(log, b"%d" % n)
        await tail.aclose()  # type: ignore[attr-defined]
        await log.truncate(0, 3)
        with pytest.raises(HistoryTruncated, match="0:1 has been deleted"):
            await anext(log.tail(0, 1))


async def test_an_offset_is_found_by_the_records_own_time(kafka_url: str) -> None:
    async with opened(kafka_url, create=True, partitions=1) as log:
        # Clocks that run backwards, and a time far ahead of the broker's.
        for at in (T, T + 10, T + 5, T + 20, T * 2):
            await put(log, b"x", at=at)
        assert await log.offset_at(0, 0) == 0
        assert await log.offset_at(0, T) == 0
        assert await log.offset_at(0, T + 3) == 1
        assert await log.offset_at(0, T + 11) == 3
        assert await log.offset_at(0, T + 21) == 4
        assert await log.offset_at(0, T * 2 + 1) == 5
        assert [r.timestamp_ms for r in await everything(log)] == [T, T + 10, T + 5, T + 20, T * 2]


async def test_offsets_may_be_sparse(kafka_broker: str, kafka_topic: str, kafka_url: str) -> None:
    """Markers of a transaction take offsets that no reader ever sees, even the last one."""
    from aiokafka import AIOKafkaProducer

    async with opened(kafka_url, create=True, partitions=1) as log:
        producer = AIOKafkaProducer(bootstrap_servers=kafka_broker, transactional_id=kafka_topic)
        await producer.start()
        for n in range(2):
            async with producer.transaction():
                await producer.send(kafka_topic, b"%d" % n, key=b"key", partition=0)
        await producer.stop()
        assert await log.ends() == {0: 4}
        assert [r.offset for r in await everything(log)] == [0, 2]
        assert [r.offset for r in await log.read_key(0, b"key")] == [0, 2]
        assert [b async for b in log.read(0, 3)] == []
        assert [r.offset async for b in log.read(0, 1, 3) for r in b] == [2]


async def test_cancelled_readers_leave_the_log_usable(kafka_url: str) -> None:
    async with opened(kafka_url, create=True, partitions=1) as log:
        for n in range(3):
            await put(log, b"%d" % n)
        for _ in range(5):
            waiting = [
                asyncio.ensure_future(anext(log.tail(0, 3))),
                asyncio.ensure_future(anext(log.read(0, 0))),
                asyncio.ensure_future(log.read_key(0, b"key")),
                asyncio.ensure_future(log.ends()),
            ]
            await asyncio.sleep(0)
            for task in waiting:
                task.cancel()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert len(await everything(log)) == 3
        assert await put(log, b"3") == 3


async def test_closing_ends_a_waiting_tail(kafka_url: str) -> None:
    log = await KafkaLog.open(kafka_url, create=True, partitions=1)
    await put(log, b"0")
    tail = log.tail(0, 0)
    await anext(tail)
    waiting = asyncio.ensure_future(anext(tail))
    await asyncio.sleep(0)
    await log.close()
    with pytest.raises(LogUnavailable, match="closed"):
        await waiting
