"""Whether a topic is still the same, asked by many at once while Kafka does not answer."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from journal.errors import LogUnavailable
from journal.kafka_client import Clients, parse_url
from journal.kafka_config import client_options
from journal.kafka_landmark import Landmark
from journal.kafka_reader import Reader
from journal.log import Record


class Silent(Reader):
    """Answers nothing until it is told to fail."""

    def __init__(self) -> None:
        self.asked = 0
        self.fail = asyncio.Event()

    async def read(
        self, partition: int, start: int, end: int | None
    ) -> AsyncIterator[list[Record]]:
        self.asked += 1
        await self.fail.wait()
        raise LogUnavailable("it does not answer")
        yield []


@pytest.fixture
async def landmark() -> Landmark:
    clients = Clients(parse_url("kafka://nowhere:1/t"), client_options(None))
    landmark = Landmark(clients, Silent())
    landmark.note(0, Record(0, b"key", b"value", 0))
    landmark.doubt()
    return landmark


async def test_all_who_wait_are_told_at_once(landmark: Landmark) -> None:
    reader = landmark._reader
    assert isinstance(reader, Silent)
    waiting = [asyncio.ensure_future(landmark.verify()) for _ in range(3)]
    await asyncio.wait(waiting, timeout=0)
    reader.fail.set()
    told = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(error) for error in told] == ["it does not answer"] * 3
    assert reader.asked == 1


async def test_whoever_is_cancelled_leaves_the_others_waiting(landmark: Landmark) -> None:
    first, second = (asyncio.ensure_future(landmark.verify()) for _ in range(2))
    await asyncio.wait([first, second], timeout=0)
    first.cancel()
    await asyncio.wait([first])
    assert not second.done()
    landmark.close()
    with pytest.raises(LogUnavailable, match="was closed"):
        await second


async def test_whoever_is_cancelled_as_the_log_is_closed_is_cancelled(landmark: Landmark) -> None:
    verifying = asyncio.ensure_future(landmark.verify())
    await asyncio.wait([verifying], timeout=0)
    landmark.close()
    verifying.cancel()
    await asyncio.wait([verifying])
    assert verifying.cancelled()


async def test_nothing_is_believed_while_a_look_is_under_way(landmark: Landmark) -> None:
    verifying = asyncio.ensure_future(landmark.verify())
    await asyncio.wait([verifying], timeout=0.1)
    late = asyncio.ensure_future(landmark.verify())
    await asyncio.wait([late], timeout=0.1)
    assert not late.done()
    landmark.close()
    await asyncio.wait([verifying, late])


class Mistaken(Reader):
    """Has a mistake of its own."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def read(
        self, partition: int, start: int, end: int | None
    ) -> AsyncIterator[list[Record]]:
        self.asked.set()
        raise AssertionError("a mistake")
        yield []


async def test_a_mistake_is_told_to_who_waits_and_else_looked_again() -> None:
    clients = Clients(parse_url("kafka://nowhere:1/t"), client_options(None))
    reader = Mistaken()
    landmark = Landmark(clients, reader)
    landmark.note(0, Record(0, b"key", b"value", 0))
    unheard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: unheard.append(context["message"])
    )
    landmark.doubt()
    await asyncio.wait_for(reader.asked.wait(), 60)
    gc.collect()
    assert unheard == []
    with pytest.raises(AssertionError, match="a mistake"):
        await landmark.verify()
