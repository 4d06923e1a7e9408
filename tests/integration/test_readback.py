"""What is acknowledged by Kafka is not accepted yet: it may stand behind another worker's claim.

A log whose tail shows nothing for a while stands between the agent and Kafka.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import journal
from journal.errors import OutcomeUnknown, TaskFenced
from journal.log import Append, Log, Record
from tests.wrapped_log import WrappedLog


class Answered(Append):
    """An append that says when it was acknowledged."""

    __slots__ = ("acknowledged", "inner")
    inner: Append
    acknowledged: asyncio.Event

    def written(self, offset: int) -> None:
        self.inner.written(offset)
        self.acknowledged.set()

    def failed(self, error: Exception) -> None:
        self.inner.failed(error)


class Blind(WrappedLog):
    """Its tail shows nothing unless `shown`; `acknowledged` tells of appends of `awaited`."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.shown, self.acknowledged = asyncio.Event(), asyncio.Event()
        self.shown.set()
        self.awaited = b""

    def append(self, partition: int, append: Append) -> None:
        if dict(append.headers).get("type") == self.awaited:
            answered = Answered(
                append.key,
                append.value,
                append.timestamp_ms,
                expect=append.expect,
                headers=append.headers,
            )
            answered.inner, answered.acknowledged = append, self.acknowledged
            append = answered
        super().append(partition, append)

    async def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        async for batch in super().tail(partition, start):
            await self.shown.wait()
            yield batch

    def hide(self, awaited: bytes) -> None:
        self.awaited = awaited
        self.shown.clear()


def blinded(j: journal.Journal) -> Blind:
    j.log = blind = Blind(j.log)
    return blind


async def test_a_step_returns_when_it_is_accepted(kafka_url: str) -> None:
    async with (
        journal.connect(kafka_url, create=True) as j,
        journal.connect(kafka_url) as other,
    ):
        blind = blinded(j)
        async with j.task("t", "d") as task:
            blind.hide(b"StepCompleted")
            async with other.task("t"):
                going = asyncio.ensure_future(task.record_step(0, "zero"))
                await blind.acknowledged.wait()
                blind.shown.set()
                with pytest.raises(TaskFenced):
                    await going
        assert not (await other.state("t")).steps


async def test_an_effect_runs_when_its_start_is_accepted(kafka_url: str) -> None:
    charged: list[int] = []

    @journal.tool(effect="once")
    def charge(cents: int) -> None:
        charged.append(cents)

    async with (
        journal.connect(kafka_url, create=True, confirm="once") as j,
        journal.connect(kafka_url) as other,
    ):
        blind = blinded(j)

        async def pay(task: journal.Task) -> None:
            async with task.step() as step:
                await step.decide(lambda: journal.Decision("charge"))
                blind.hide(b"ToolCallStarted")
                async with other.task("t"):
                    going = asyncio.ensure_future(step.call(charge, 5))
                    await blind.acknowledged.wait()
                    blind.shown.set()
                    await going

        async with j.task("t", "d") as task:
            with pytest.raises(TaskFenced):
                await pay(task)
    assert not charged


class Late(Blind):
    """It holds events of one type back until `go`."""

    def __init__(self, log: Log, type: bytes) -> None:
        super().__init__(log)
        self.type = type
        self.asked, self.held = asyncio.Event(), list[tuple[int, Append]]()

    def append(self, partition: int, append: Append) -> None:
        if dict(append.headers).get("type") == self.type:
            self.held.append((partition, append))
            self.asked.set()
        else:
            super().append(partition, append)

    def go(self) -> None:
        for partition, append in self.held:
            super().append(partition, append)


async def test_an_answer_before_the_time_out_is_the_answer(kafka_url: str) -> None:
    async with (
        journal.connect(kafka_url, create=True, confirm="once") as j,
        journal.connect(kafka_url) as other,
    ):
        j.log = late = Late(j.log, b"TimerFired")
        async with j.task("t", "d") as task:
            asking = asyncio.ensure_future(task.ask("may I?", timeout=0))
            await late.asked.wait()
            late.hide(b"TimerFired")
            await other.answer("t", "yes")
            late.go()
            await late.acknowledged.wait()
            late.shown.set()
            with pytest.raises(OutcomeUnknown, match="reopen"):
                await asking
        async with j.task("t") as task:
            assert await task.ask("may I?", timeout=0) == "yes"


async def test_what_stands_before_a_claim_counts_before_it(kafka_url: str) -> None:
    async with (
        journal.connect(kafka_url, create=True) as old,
        journal.connect(kafka_url, confirm="once") as new,
    ):
        new.log = late = Late(new.log, b"TaskClaimed")

        async def steps_found() -> int:
            async with new.task("t") as task:
                return task.state.current_step

        async with old.task("t", "d") as task:
            opening = asyncio.ensure_future(steps_found())
            await late.asked.wait()
            await task.record_step(0, "zero")
            late.hide(b"TaskClaimed")
            late.go()
            await late.acknowledged.wait()
            late.shown.set()
            assert await opening == 1


class Busy(WrappedLog):
    """Before its tail shows anything, another event is acknowledged: `more` sees to that."""

    more: Callable[[], Awaitable[object]] | None = None

    async def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        async for batch in super().tail(partition, start):
            if self.more is not None:
                await self.more()
            yield batch


async def test_an_effect_does_not_wait_for_what_comes_after_its_start(kafka_url: str) -> None:
    charge = journal.tool(effect="once")(lambda cents: cents)
    numbers = itertools.count(1)
    async with journal.connect(kafka_url, create=True, confirm="once", deadline_s=3) as j:
        j.log = busy = Busy(j.log)
        async with j.task("t", "d") as task, task.step() as step:
            await step.decide(lambda: journal.Decision("charge"))
            busy.more = lambda: task.receive(f"more {next(numbers)}")
            assert await step.call(charge, 5) == 5
            busy.more = None
