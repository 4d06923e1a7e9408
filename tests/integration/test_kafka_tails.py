"""Tails of several partitions through one consumer: what serves them ends with the last."""

from __future__ import annotations

import asyncio
import gc
from contextlib import aclosing
from typing import Any

import pytest

from tests.topics import opened, put

pytestmark = pytest.mark.kafka


def pumps() -> list[asyncio.Task[Any]]:
    """What is running for tails."""
    return [t for t in asyncio.all_tasks() if "_Hub._run" in repr(t.get_coro())]


async def test_a_tail_that_begins_as_the_last_one_ends(kafka_url: str) -> None:
    async with opened(kafka_url, create=True, partitions=2) as log:
        for partition in (0, 1):
            await put(log, b"there", partition=partition)
        first = log.tail(0, 0)
        await anext(first)
        (ending,) = pumps()
        async with aclosing(log.tail(1, 0)) as second:
            # The second begins when the pump of the first is cancelled and has not heard of it.
            begun = asyncio.ensure_future(anext(second))
            await first.aclose()  # type: ignore[attr-defined]
            await begun
            # A pump that went on would serve the second, too, and nothing could end it any more.
            assert ending.done()
            assert len(pumps()) == 1
        left = pumps()
        await asyncio.wait_for(asyncio.wait(left), 10)
        assert pumps() == []


async def test_a_tail_may_end_at_any_moment_of_its_beginning(kafka_url: str) -> None:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    async with opened(kafka_url, create=True) as log:
        await put(log, b"there")
        turns, early = 0, True
        while early:
            tail = log.tail(0, 0)
            begun = asyncio.ensure_future(anext(tail))
            for _ in range(turns):
                await asyncio.sleep(0)
            early = not begun.done()
            begun.cancel()
            await asyncio.wait([begun])
            await tail.aclose()  # type: ignore[attr-defined]
            turns += 1 + turns // 8
    gc.collect()
    # What the client leaves open, it complains of when it is collected.
    assert complaints == []
