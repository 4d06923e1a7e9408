"""What a Kafka log leaves when it is closed, or a caller is cancelled, in the middle of something.

Fakes stand for the client; whoever has one waits for the test to let it go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import NodeNotReadyError

from journal.errors import LogUnavailable
from journal.kafka_client import Clients, Outage, parse_url
from journal.kafka_config import client_options
from journal.kafka_landmark import Landmark
from journal.kafka_reader import Reader
from journal.kafka_tails import Tails
from journal.kafka_writer import Writer
from journal.log import Append, Record

PARTITION = TopicPartition("t", 0)


class Consumer:
    """A started client; each of its `questions` for offsets is answered by the test. Of tails it
    has one record, and then nothing."""

    def __init__(self) -> None:
        self.questions: list[asyncio.Future[dict[TopicPartition, int]]] = []
        self.stopped = False
        self._given = False

    async def beginning_offsets(self, _: object) -> dict[TopicPartition, int]:
        self.questions.append(asyncio.get_running_loop().create_future())
        return await self.questions[-1]

    def partitions_for_topic(self, _: str) -> set[int]:
        return {0}

    def assign(self, _: object) -> None: ...

    def seek(self, *_: object) -> None: ...

    def pause(self, *_: object) -> None: ...

    def last_poll_timestamp(self, _: object) -> int:
        return 0

    async def getmany(self, *partitions: TopicPartition, **_: int) -> dict[TopicPartition, Any]:
        if self._given:
            await asyncio.Event().wait()
        self._given = True
        return {partitions[0]: [Got(0, b"key", b"value", 0)]}

    async def stop(self) -> None:
        self.stopped = True


class Got(NamedTuple):
    """A record as the client has it."""

    offset: int
    key: bytes
    value: bytes
    timestamp: int


class Slow(Clients):
    """Its clients start once `connects` is set."""

    def __init__(self) -> None:
        super().__init__(parse_url("kafka://nowhere:1/t"), client_options(None))
        self.made: list[Consumer] = []
        self.begun = asyncio.Event()
        self.connects = asyncio.Event()
        self.open = 0
        """Connections that are being made."""

    async def consumer(self, max_wait_ms: int = 500, *, group: str | None = None) -> Any:
        await self._connected()
        self.made.append(Consumer())
        return self.made[-1]

    async def producer(self, batch_bytes: int) -> Any:
        await self._connected()
        raise AssertionError("nothing is to be sent")

    async def _connected(self) -> None:
        self.open += 1
        self.begun.set()
        try:
            await self.connects.wait()
        finally:
            # Closing what was half made takes its time, too.
            await asyncio.sleep(0)
            self.open -= 1


def reader(clients: Clients) -> Reader:
    return Reader(clients, Outage("nowhere"), partitions=1, patience_s=60)


async def test_a_read_that_is_cancelled_just_before_its_log_is_closed() -> None:
    clients = Slow()
    reading = reader(clients)

    async def impatient() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit:
                asyncio.get_running_loop().call_soon(limit.reschedule, 0)
                await reading.consumer(5)
        # In the turn in which it gave up.
        await reading.close()

    await impatient()
    assert clients.open == 0


async def test_a_log_that_is_closed_while_it_connects_to_ask() -> None:
    clients = Slow()
    reading = reader(clients)
    asking = asyncio.ensure_future(reading.starts())
    await clients.begun.wait()
    await reading.close()
    assert clients.open == 0
    with pytest.raises(LogUnavailable, match="was closed"):
        await asking


async def test_a_log_that_is_closed_while_it_connects_to_read() -> None:
    clients = Slow()
    reading = reader(clients)
    connecting = asyncio.ensure_future(reading.consumer(5))
    await clients.begun.wait()
    await reading.close()
    assert clients.open == 0
    with pytest.raises(LogUnavailable, match="was closed"):
        await connecting


async def test_a_connection_that_is_there_as_its_reader_is_cancelled_is_closed() -> None:
    clients = Slow()
    reading = reader(clients)
    task = asyncio.ensure_future(reading.consumer(5))
    await clients.begun.wait()
    clients.connects.set()
    while not clients.made:  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    async with asyncio.timeout(60):
        while not clients.made[0].stopped:  # noqa: ASYNC110
            await asyncio.sleep(0)
    await reading.close()


async def test_an_old_question_that_fails_leaves_the_new_ones_connection() -> None:
    clients = Slow()
    clients.connects.set()
    reading = reader(clients)
    asking = [asyncio.ensure_future(reading.starts()) for _ in range(2)]

    async def asked(consumer: int, questions: int) -> Consumer:
        def there() -> bool:
            made = clients.made[consumer:]
            return bool(made) and len(made[0].questions) >= questions

        async with asyncio.timeout(60):
            while not there():  # noqa: ASYNC110
                await asyncio.sleep(0)
        return clients.made[consumer]

    old = await asked(0, 2)
    old.questions[0].set_exception(NodeNotReadyError())
    # It asks again, through another connection; then the second hears of the end of the old one.
    new = await asked(1, 1)
    old.questions[1].set_exception(NodeNotReadyError())
    await asked(1, 2)
    assert (old.stopped, new.stopped) == (True, False)
    for question in new.questions:
        question.set_result({PARTITION: 7})
    assert await asyncio.gather(*asking) == [{0: 7}] * 2
    await reading.close()


async def test_a_writer_is_closed_when_its_connection_is() -> None:
    clients = Slow()
    writer = Writer(clients, Outage("nowhere"), partitions=1, batch_bytes=1_000, deadline_s=0.1)

    class Told(Append):
        __slots__ = ()

        def failed(self, error: Exception) -> None:
            pass

    writer.append(0, Told(b"key", b"value", 0))
    await clients.begun.wait()
    await writer.close()
    assert clients.open == 0


class Unread(Reader):
    """A topic of which nothing can be read again: whether it is the same is not to be seen."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients, Outage("nowhere"), partitions=2, patience_s=60)
        self.reads = asyncio.Event()

    async def read(
        self, partition: int, start: int, end: int | None
    ) -> AsyncIterator[list[Record]]:
        self.reads.set()
        await asyncio.Event().wait()
        yield []


async def test_tails_are_closed_while_it_is_made_sure_that_the_topic_is_the_same() -> None:
    clients = Slow()
    clients.connects.set()
    reading = Unread(clients)
    landmark = Landmark(clients, reading)
    tails = Tails(clients, Outage("nowhere"), reading, landmark)
    first, second = tails.tail(0, 0), tails.tail(1, 0)
    # Whoever has the first is busy with what it got, for as long as the test lasts.
    assert await anext(first)
    landmark.note(0, Record(0, b"key", b"value", 0))
    landmark.doubt()
    waiting = asyncio.ensure_future(anext(second))
    await reading.reads.wait()
    while landmark._looking is None or len(clients.made) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    # As a log does it.
    landmark.close()
    await asyncio.wait_for(tails.close(), 60)
    with pytest.raises(LogUnavailable, match="was closed"):
        await waiting
    await reading.close()
    assert all(consumer.stopped for consumer in clients.made)
