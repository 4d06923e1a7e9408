"""A parent that ends, is cancelled or fenced in the very moment in which its children begin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import journal
from journal.errors import OutcomeUnknown, TaskEnded, TaskFenced
from journal.log import Append, Log, Record
from tests.held_log import HeldLog
from tests.wrapped_log import WrappedLog


class Crash(BaseException):
    """What stands for the end of a process."""


class Forever:
    """A child's work that has no end of its own."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.crashes = False

    async def __call__(self, child: journal.Task) -> None:
        self.began.set()
        if self.crashes:
            raise Crash
        await asyncio.Event().wait()


@pytest.fixture
async def j(tmp_path: Path) -> AsyncIterator[journal.Journal]:
    async with journal.connect(f"memory://{tmp_path}") as j:
        yield j


def held(j: journal.Journal) -> HeldLog:
    j.log = held = HeldLog(j.log)
    return held


async def statuses(j: journal.Journal) -> dict[str, str]:
    return {state.task_id: state.status for state in await j.tasks()}


async def ended(*running: asyncio.Task[Any]) -> list[type[BaseException]]:
    """What they raise."""
    async with asyncio.timeout(60):
        return [type(e) for e in await asyncio.gather(*running, return_exceptions=True)]


async def test_a_child_whose_start_comes_while_others_are_cancelled(j: journal.Journal) -> None:
    log, first = held(j), Forever()
    async with j.task("p", "d") as task:
        a = asyncio.ensure_future(task.subtask("a", first))
        await first.began.wait()
        log.hold("SubtaskStarted", of="p")
        b = asyncio.ensure_future(task.subtask("b", Forever()))
        await log.came.wait()
        starts, log.held = log.held, []
        log.came.clear()
        log.hold("TaskCancelled", of="p:a")
        await j.cancel("p", "too dear")
        look = asyncio.ensure_future(task.look())
        await log.came.wait()
        log.held = [*starts, *log.held]
        log.go()
        assert await ended(look, a, b) == [TaskEnded] * 3
    assert await statuses(j) == dict.fromkeys(("p", "p:a", "p:b"), "cancelled")


async def test_a_child_that_begins_as_its_parent_is_cancelled(j: journal.Journal) -> None:
    log, work = held(j), Forever()
    async with j.task("p", "d") as task:
        log.hold("TaskStarted", of="p:c")
        running = asyncio.ensure_future(task.subtask("c", work))
        await log.came.wait()
        await j.cancel("p", "too dear")
        with pytest.raises(TaskEnded, match="too dear"):
            await task.look()
        log.go()
        assert await ended(running) == [TaskEnded]
    assert not work.began.is_set()
    assert await statuses(j) == {"p": "cancelled", "p:c": "cancelled"}


async def test_a_child_that_is_resumed_as_its_parent_is_cancelled(j: journal.Journal) -> None:
    work = Forever()
    work.crashes = True
    with pytest.raises(Crash):
        async with j.task("p", "d") as task:
            await task.subtask("c", work)
    work.crashes = False
    log = held(j)
    async with j.task("p") as task:
        log.hold("TaskClaimed", of="p:c")
        running = asyncio.ensure_future(task.subtask("c", work))
        await log.came.wait()
        await j.cancel("p", "too dear")
        look = asyncio.ensure_future(task.look())
        # Both claim it: who is to run it, and who is to cancel it.
        while len(log.held) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        log.go()
        assert await ended(look, running) == [TaskEnded] * 2
    assert await statuses(j) == {"p": "cancelled", "p:c": "cancelled"}


async def test_a_parent_that_is_fenced_as_its_child_begins(j: journal.Journal) -> None:
    async with j.task("p", "d") as task:
        owner = task.owner
        running = asyncio.ensure_future(task.subtask("c", Forever()))
        while not task._children._running:  # noqa: ASYNC110
            await asyncio.sleep(0)
        owner.lost(TaskFenced("another worker claimed it"))
        assert await ended(running) == [TaskFenced]


async def test_a_child_that_begins_while_another_is_being_stopped(j: journal.Journal) -> None:
    cleaning, cleaned = asyncio.Event(), asyncio.Event()

    async def slow_to_stop(child: journal.Task) -> None:
        work.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await cleaned.wait()

    log, work = held(j), Forever()
    async with j.task("p", "d") as task:
        owner = task.owner
        a = asyncio.ensure_future(task.subtask("a", slow_to_stop))
        await work.began.wait()
        log.hold("TaskStarted", of="p:b")
        b = asyncio.ensure_future(task.subtask("b", Forever()))
        await log.came.wait()
        owner.lost(TaskFenced("another worker claimed it"))
        await cleaning.wait()
        log.go()
        assert await ended(b) == [TaskFenced]
        cleaned.set()
        assert await ended(a) == [TaskFenced]


async def test_a_parent_that_ends_while_its_child_runs_says_so(j: journal.Journal) -> None:
    work = Forever()
    async with j.task("p", "d") as task:
        running = asyncio.ensure_future(task.subtask("c", work))
        await work.began.wait()
        await task.complete("enough")
        with pytest.raises(TaskEnded, match="completed"):
            await running


class Behind(WrappedLog):
    """Its tail shows nothing while `shows` is not set. `came` is set by a `TaskCancelled`."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.came, self.shows = asyncio.Event(), asyncio.Event()
        self.shows.set()

    def append(self, partition: int, append: Append) -> None:
        if dict(append.headers).get("type") == b"TaskCancelled":
            self.came.set()
        super().append(partition, append)

    async def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        async for batch in super().tail(partition, start):
            await self.shows.wait()
            yield batch


@pytest.mark.kafka
async def test_a_childs_child_is_not_left_before_it_is_cancelled(kafka_url: str) -> None:
    work = Forever()

    async def parent(task: journal.Task) -> None:
        await task.subtask("g", work)

    async with (
        journal.connect(kafka_url, create=True) as j,
        journal.connect(kafka_url) as other,
    ):
        j.log = log = Behind(j.log)
        async with j.task("p", "d") as task:
            running = asyncio.ensure_future(task.subtask("c", parent))
            await work.began.wait()
            # That the parent is to end is seen by who looks, before what watches it sees it.
            log.shows.clear()
            await other.cancel("p", "too dear")
            look = asyncio.ensure_future(task.look())
            await log.came.wait()
            # Enough for all that are told to stop to have done so.
            for _ in range(100):
                await asyncio.sleep(0)
            log.shows.set()
            assert await ended(look, running) == [TaskEnded] * 2
        assert await statuses(other) == dict.fromkeys(("p", "p:c", "p:c:g"), "cancelled")


class Loses(WrappedLog):
    """It loses the first `TaskCancelled`."""

    lost = False

    def append(self, partition: int, append: Append) -> None:
        if dict(append.headers).get("type") == b"TaskCancelled" and not self.lost:
            self.lost = True
            error = OutcomeUnknown("the append was lost")
            asyncio.get_running_loop().call_soon(append.failed, error)
        else:
            super().append(partition, append)


async def test_a_cancellation_that_failed_is_made_again(j: journal.Journal) -> None:
    j.log = Loses(j.log)
    async with j.task("t", "d") as task:
        await j.cancel("t", "too dear")
        with pytest.raises(OutcomeUnknown):
            await task.look()
        with pytest.raises(TaskEnded, match="too dear"):
            await task.look()
    assert await statuses(j) == {"t": "cancelled"}
