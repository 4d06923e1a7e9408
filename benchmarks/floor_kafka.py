"""The Kafka log against what it is built on: bare aiokafka with the same settings.

Run `python -m benchmarks.floor_kafka [HOST:PORT]`; without an address it starts a broker of its
own. Floor and log take turns, and each figure is the median of the rounds. Knows
`journal.kafka_log` only; nothing of events or tasks.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from journal.kafka_log import KafkaLog
from journal.log import Append, append_and_wait
from tests.broker import session_address

ROUNDS = 3
TASKS = (1, 10, 100)
SECONDS = 2.0
PARTITIONS = 12
KEY = b"task"
PAD = b"x" * 1014

One = Callable[[int, bytes], Awaitable[object]]
"""Append one value to a partition and wait for it, in some way."""

Headers = list[tuple[str, bytes]]


class Waiting(Append):
    """The least that an awaiting caller needs."""

    __slots__ = ("future",)
    future: asyncio.Future[int]

    def written(self, offset: int) -> None:
        """Wake the caller."""
        if not self.future.done():
            self.future.set_result(offset)

    def failed(self, error: Exception) -> None:
        """Wake the caller."""
        self.future.set_exception(error)


class ByBytes:
    """Callers that wait until a tail shows their own bytes, oldest first in each partition."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, asyncio.Future[None]] = {}

    def expect(self, value: bytes) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        self.waiting[value] = future
        return future

    def seen(self, value: bytes | None) -> None:
        if value is not None and (future := self.waiting.pop(value, None)) is not None:
            future.set_result(None)


class Unheard(Append):
    """An append whose caller waits for the tail, and for the append only if it fails."""

    __slots__ = ()

    def written(self, offset: int) -> None:
        """The tail tells."""

    def failed(self, error: Exception) -> None:
        raise error


@asynccontextmanager
async def floor_once(
    broker: str, topic: str, key: bytes = KEY, headers: Headers | None = None
) -> AsyncIterator[One]:
    producer = await started_producer(broker)

    async def one(partition: int, value: bytes) -> None:
        await producer.send_and_wait(topic, value, key, partition=partition, headers=headers)

    yield one
    await producer.stop()


@asynccontextmanager
async def log_once(broker: str, topic: str) -> AsyncIterator[One]:
    log = await KafkaLog.open(f"kafka://{broker}/{topic}")
    loop = asyncio.get_running_loop()

    async def one(partition: int, value: bytes) -> None:
        append = Waiting(KEY, value, 1)
        append.future = loop.create_future()
        log.append(partition, append)
        await append.future

    yield one
    await log.close()


@asynccontextmanager
async def floor_always(
    broker: str, topic: str, key: bytes = KEY, headers: Headers | None = None
) -> AsyncIterator[One]:
    producer = await started_producer(broker)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker, auto_offset_reset="none", enable_auto_commit=False
    )
    await consumer.start()
    tps = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    ends = await consumer.end_offsets(tps)
    consumer.assign(tps)
    for tp in tps:
        consumer.seek(tp, ends[tp])
    mine = ByBytes()

    async def follow() -> None:
        while True:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    mine.seen(record.value)

    async def one(partition: int, value: bytes) -> None:
        seen = mine.expect(value)
        await producer.send(topic, value, key, partition=partition, headers=headers)
        await seen

    following = asyncio.create_task(follow())
    yield one
    following.cancel()
    await consumer.stop()
    await producer.stop()


@asynccontextmanager
async def log_always(broker: str, topic: str) -> AsyncIterator[One]:
    log = await KafkaLog.open(f"kafka://{broker}/{topic}")
    mine = ByBytes()
    following: dict[int, asyncio.Task[None]] = {}

    async def follow(partition: int, start: int) -> None:
        async for batch in log.tail(partition, start):
            for record in batch:
                mine.seen(record.value)

    for partition, end in (await log.ends()).items():
        following[partition] = asyncio.create_task(follow(partition, end))
    # A first record through each: its tail is connected from then on.

    async def one(partition: int, value: bytes) -> None:
        seen = mine.expect(value)
        log.append(partition, Unheard(KEY, value, 1))
        await seen

    yield one
    for task in following.values():
        task.cancel()
    await log.close()


async def started_producer(broker: str) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(
        bootstrap_servers=broker,
        enable_idempotence=True,
        compression_type="zstd",
        max_batch_size=512 * 1024,
    )
    await producer.start()
    return producer


def made(number: int) -> Iterator[bytes]:
    """The values of one task."""
    return (b"%04d%06d" % (number, n) + PAD for n in itertools.count())


async def rate(
    one: One, tasks: int, partitions: int, values: Sequence[bytes] = ()
) -> tuple[float, float]:
    """Appends a second of so many tasks, and the median time of one, in ms. Each task sends its
    own share of `values` in turn, or about 1 KB of its own."""
    for partition in range(partitions):
        await one(partition, b"first %d" % partition + PAD)
    times: list[float] = []
    begin = time.perf_counter()

    async def task(number: int) -> None:
        mine = itertools.cycle(values[number::tasks]) if values else made(number)
        while (start := time.perf_counter()) < begin + SECONDS:
            await one(number % partitions, next(mine))
            times.append(time.perf_counter() - start)

    await asyncio.gather(*(task(number) for number in range(tasks)))
    return len(times) / (time.perf_counter() - begin), statistics.median(times) * 1000


async def main(broker: str) -> None:
    for name, floor, ours in (
        ("acknowledged", floor_once, log_once),
        ("read back", floor_always, log_always),
    ):
        for partitions in (1, PARTITIONS):
            for tasks in TASKS:
                figures: dict[str, list[tuple[float, float]]] = {"floor": [], "log": []}
                for _ in range(ROUNDS):
                    for which, make in (("floor", floor), ("log", ours)):
                        topic = f"bench-{uuid.uuid4().hex}"
                        url = f"kafka://{broker}/{topic}"
                        log = await KafkaLog.open(url, create=True, partitions=PARTITIONS)
                        await append_and_wait(log, 0, KEY, b"warm", 1)
                        await log.close()
                        async with make(broker, topic) as one:
                            figures[which].append(await rate(one, tasks, partitions))
                ratio = statistics.median(
                    log[0] / bare[0]
                    for bare, log in zip(figures["floor"], figures["log"], strict=True)
                )
                bare_s, bare_ms = map(statistics.median, zip(*figures["floor"], strict=True))
                log_s, log_ms = map(statistics.median, zip(*figures["log"], strict=True))
                print(
                    f"{name:12} {partitions:2} partitions {tasks:3} tasks: "
                    f"bare {bare_s:6.0f}/s p50 {bare_ms:5.2f} ms, "
                    f"log {log_s:6.0f}/s p50 {log_ms:5.2f} ms, ratio {ratio:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with session_address() as address:
            asyncio.run(main(address))
