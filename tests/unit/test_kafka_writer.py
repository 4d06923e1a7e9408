"""Who is told that an event is too large: the one that was sent alone, and nobody that the client
has put into one batch with it. What a producer says that was given up reaches nobody."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from aiokafka.errors import MessageSizeTooLargeError, OutOfOrderSequenceNumber

from journal.errors import EventTooLarge, LogUnavailable, OutcomeUnknown
from journal.kafka_client import Clients, Outage, parse_url
from journal.kafka_config import client_options
from journal.kafka_writer import Writer
from journal.log import Append


class Told(Append):
    """Keeps its outcome."""

    __slots__ = ("error",)
    error: Exception

    def failed(self, error: Exception) -> None:
        self.error = error


class Closing:
    """A client's connections, or its sender, at its end."""

    async def close(self) -> None: ...


class Producer:
    """Takes records, and answers when it is told to."""

    def __init__(self) -> None:
        self.sent: list[asyncio.Future[Any]] = []
        self.client = Closing()
        self._sender = self
        self.sender_task = asyncio.ensure_future(asyncio.Event().wait())

    async def send(self, *_: Any, **__: Any) -> asyncio.Future[Any]:
        self.sent.append(asyncio.get_running_loop().create_future())
        return self.sent[-1]


class OneProducer(Clients):
    """Gives out one producer only."""

    def __init__(self, producer: Producer) -> None:
        super().__init__(parse_url("kafka://nowhere:1/t"), client_options(None))
        self._producer = producer

    async def producer(self, batch_bytes: int) -> Any:
        return self._producer


async def in_flight(count: int) -> tuple[Writer, Producer, list[Told]]:
    """So many appends that a producer took one by one."""
    producer = Producer()
    writer = Writer(
        OneProducer(producer), Outage("nowhere"), partitions=1, batch_bytes=1_000, deadline_s=60
    )
    appends = [Told(b"key", b"v" * 70_000, 0) for _ in range(count)]
    for number, append in enumerate(appends, 1):
        writer.append(0, append)
        while len(producer.sent) < number:  # noqa: ASYNC110
            await asyncio.sleep(0)
    return writer, producer, appends


async def refused(count: int, *errors: Exception) -> list[Exception]:
    """What `count` appends are told that a producer refused."""
    writer, producer, appends = await in_flight(count)
    for future, error in zip(producer.sent, errors, strict=True):
        future.set_exception(error)
    await writer.close()
    return [append.error for append in appends]


async def test_an_event_that_was_sent_alone_is_too_large() -> None:
    (error,) = await refused(1, MessageSizeTooLargeError())
    assert type(error) is EventTooLarge
    assert "70,000 bytes is more than topic t takes" in str(error)


async def test_of_events_in_one_batch_nobody_knows_which_is_too_large() -> None:
    together = MessageSizeTooLargeError()
    told = await refused(3, together, together, together)
    assert [type(error) for error in told] == [LogUnavailable] * 3


async def test_two_that_are_too_large_each_alone_are_told_so() -> None:
    told = await refused(2, MessageSizeTooLargeError(), MessageSizeTooLargeError())
    assert [type(error) for error in told] == [EventTooLarge] * 2


async def test_what_comes_of_a_producer_that_was_given_up_is_no_complaint() -> None:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    writer, producer, appends = await in_flight(2)
    producer.sent[0].set_exception(MessageSizeTooLargeError())
    await asyncio.sleep(0)
    assert type(appends[1].error) is OutcomeUnknown
    producer.sent[1].set_exception(OutOfOrderSequenceNumber())
    await asyncio.sleep(0)
    producer.sent.clear()
    gc.collect()
    assert complaints == []
    await writer.close()
