"""A task that waits is woken by what ends its waiting, whatever else happens at that moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import journal
from journal.errors import OutcomeUnknown, TaskEnded
from journal.log import Append, Log, Record
from tests.wrapped_log import WrappedLog


@pytest.fixture
async def j(tmp_path: Path) -> AsyncIterator[journal.Journal]:
    async with journal.connect(f"memory://{tmp_path}") as j:
        yield j


class Loses(WrappedLog):
    """It loses results, and then holds back what is read of a key until `go`."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.reads, self.go = asyncio.Event(), asyncio.Event()
        self._lost = False

    def append(self, partition: int, append: Append) -> None:
        if dict(append.headers).get("type") == b"ResultRecorded":
            self._lost = True
            error = OutcomeUnknown("the append was lost")
            asyncio.get_running_loop().call_soon(append.failed, error)
        else:
            super().append(partition, append)

    async def read_key(self, partition: int, key: bytes, start: int = 0) -> list[Record]:
        if self._lost:
            self.reads.set()
            await self.go.wait()
        return await super().read_key(partition, key, start)


async def test_an_answer_that_comes_while_an_outcome_is_settled(j: journal.Journal) -> None:
    log = Loses(j.log)
    async with journal.connect(j.url) as other:
        j.log = log
        async with j.task("t", "d") as task:
            asking = asyncio.ensure_future(task.ask("may I?"))
            while not task.state.pending:  # noqa: ASYNC110
                await asyncio.sleep(0)
            with pytest.raises(OutcomeUnknown):
                await task.set_result("x", 1)
            # Who asks is woken, and settles what became of that before it goes on waiting.
            await log.reads.wait()
            await other.answer("t", "yes")
            while task.state.pending:  # noqa: ASYNC110
                await asyncio.sleep(0)
            log.go.set()
            # Else it looks at the clock after 60 s, and sees it then.
            assert await asyncio.wait_for(asking, 40) == "yes"


async def test_who_waits_for_a_message_hears_that_the_task_is_to_end(j: journal.Journal) -> None:
    async with j.task("t", "d") as task:
        waiting = asyncio.ensure_future(task.next_message())
        await asyncio.sleep(0)
        await j.cancel("t", "too dear")
        with pytest.raises(TaskEnded, match="too dear"):
            await asyncio.wait_for(waiting, 40)
    assert (await j.state("t")).status == "cancelled"


async def test_who_asks_hears_that_the_task_has_ended(j: journal.Journal) -> None:
    async with j.task("t", "d") as task:
        asking = asyncio.ensure_future(task.ask("may I?"))
        while not task.state.pending:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await task.complete("without")
        with pytest.raises(TaskEnded, match="completed"):
            await asyncio.wait_for(asking, 20)
