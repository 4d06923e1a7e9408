"""Races that only a log without conditional appends has, found by the simulation.

A log in memory plays Kafka: appends can be held back, and acknowledgements lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack

import pytest

import journal
from journal.errors import CallUncertain, OutcomeUnknown, TaskEnded, TaskFenced
from journal.log import Append, Log, Record
from journal.memory_log import Memory
from tests.integration.test_unknown_outcome import Liar

_TURNS = 50


class Relayed(Append):
    """An append without its condition; `lost` ones fail long after they were written, `late` ones
    are acknowledged as long after."""

    __slots__ = ("inner", "late", "lost")
    inner: Append
    lost: bool
    late: bool

    def written(self, offset: int) -> None:
        if self.lost:
            _later(_TURNS, self.inner.failed, OutcomeUnknown("the answer was lost"))
        elif self.late:
            _later(_TURNS, self.inner.written, offset)
        else:
            self.inner.written(offset)

    def failed(self, error: Exception) -> None:
        self.inner.failed(error)


def _later(turns: int, function: Callable[..., None], *args: object) -> None:
    loop = asyncio.get_running_loop()
    if turns:
        loop.call_soon(_later, turns - 1, function, *args)
    else:
        function(*args)


class Kafka(Liar):
    """`held`: appends are kept back; `mute`: so many lose their acknowledgement; without `sight`
    nothing is read back; where it is `slow` things are read back before they are acknowledged.
    After an append of the type `stalls_after` nobody hears of an end."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.conditional = False
        self.held: list[Append] | None = None
        self.sight = asyncio.Event()
        self.sight.set()
        self.going = asyncio.Event()
        self.going.set()
        self.stalls_after: str | None = None
        self.slow = False

    def append(self, partition: int, append: Append) -> None:
        if self.stalls_after is not None and self.stalls_after.encode() in append.value:
            self.going.clear()
            self.sent.set()
        relayed = Relayed(append.key, append.value, append.timestamp_ms)
        relayed.inner, relayed.lost, relayed.late = append, self.mute > 0, self.slow
        self.mute = max(0, self.mute - 1)
        if self.held is None:
            self._log.append(partition, relayed)
        else:
            self.held.append(relayed)
            self.sent.set()

    async def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        async for batch in self._log.tail(partition, start):
            await self.sight.wait()
            yield batch

    async def ends(self) -> Mapping[int, int]:
        await self.going.wait()
        return await self._log.ends()

    def hold(self) -> None:
        self.held = []
        self.sent.clear()
        self.sight.clear()

    def release(self) -> None:
        """Acknowledgements come first, what is read back later."""
        held, self.held = self.held, None
        for append in held or ():
            self._log.append(0, append)
        _later(_TURNS, self.sight.set)


async def _opened(stack: AsyncExitStack, memory: Memory, confirm: str) -> journal.Journal:
    j = await stack.enter_async_context(journal.connect(memory, confirm=confirm))
    j.log = Kafka(j.log)
    return j


def _log(j: journal.Journal) -> Kafka:
    assert isinstance(j.log, Kafka)
    return j.log


async def _claiming(
    stack: AsyncExitStack, confirm: str
) -> tuple[journal.Task, journal.Journal, asyncio.Task[journal.Task]]:
    """A task that runs, and another journal whose claim of it is on its way, but held."""
    memory = Memory()
    one = await _opened(stack, memory, confirm)
    two = await _opened(stack, memory, confirm)
    mine = await stack.enter_async_context(one.task("t", "d"))
    _log(two).hold()
    opening = asyncio.ensure_future(stack.enter_async_context(two.task("t")))
    await _log(two).sent.wait()
    return mine, two, opening


@pytest.mark.parametrize("confirm", ["always", "once"])
async def test_a_claim_counts_behind_what_came_before_it(confirm: str) -> None:
    async with AsyncExitStack() as stack:
        mine, two, opening = await _claiming(stack, confirm)
        await mine.record_step(0, "mine")
        _log(two).release()
        theirs = await opening
        assert theirs.completed(0) is not None
        await theirs.record_step(1, "theirs")
        assert (await two.state("t")).current_step == 2


@pytest.mark.parametrize("confirm", ["always", "once"])
async def test_a_claim_behind_the_end_opens_nothing(confirm: str) -> None:
    async with AsyncExitStack() as stack:
        mine, two, opening = await _claiming(stack, confirm)
        await mine.complete("done")
        _log(two).release()
        with pytest.raises(TaskEnded):
            await opening


@pytest.mark.parametrize("confirm", ["always", "once"])
async def test_what_the_log_has_shown_counts_without_its_acknowledgement(confirm: str) -> None:
    async with AsyncExitStack() as stack:
        j = await _opened(stack, Memory(), confirm)
        task = await stack.enter_async_context(j.task("t", "d"))
        assert isinstance(j.log, Kafka)
        with task.owner.watching():
            j.log.mute = 1
            await task.record_step(0, "zero")
        await task.record_step(1, "one")
        state = await j.state("t")
        assert (state.current_step, state.head.epoch) == (2, 0)


async def _received_second(
    stack: AsyncExitStack, confirm: str, *, slow: bool
) -> tuple[journal.Task, journal.Journal]:
    """A task that receives a message behind another's with the same id, and its journal."""
    memory = Memory()
    one = await _opened(stack, memory, confirm)
    two = await _opened(stack, memory, confirm)
    task = await stack.enter_async_context(one.task("t", "d"))
    stack.enter_context(task.owner.watching())
    _log(one).slow = slow
    _log(one).hold()
    receiving = asyncio.ensure_future(task.receive("second", id="m"))
    await _log(one).sent.wait()
    await two.send("t", "first", id="m")
    _log(one).release()
    if slow:
        _log(one).sight.set()
    await receiving
    return task, one


@pytest.mark.parametrize(("confirm", "slow"), [("always", False), ("always", True), ("once", True)])
async def test_of_two_messages_with_one_id_the_first_in_the_log_counts(
    confirm: str, slow: bool
) -> None:
    async with AsyncExitStack() as stack:
        task, one = await _received_second(stack, confirm, slow=slow)
        assert bytes(task.state.messages_received["m"].content) == b'"first"'
        assert task.state.messages_received == (await one.state("t")).messages_received
        await task.record_step(0, "goes on")


async def test_a_message_that_counted_too_soon_ends_its_worker() -> None:
    async with AsyncExitStack() as stack:
        task, one = await _received_second(stack, "once", slow=False)
        with pytest.raises(OutcomeUnknown, match="reopen it"):
            await task.look()
        assert bytes((await one.state("t")).messages_received["m"].content) == b'"first"'


@pytest.mark.parametrize("confirm", ["always", "once"])
async def test_one_message_received_twice_at_once_is_one(confirm: str) -> None:
    async with AsyncExitStack() as stack:
        one = await _opened(stack, Memory(), confirm)
        task = await stack.enter_async_context(one.task("t", "d"))
        _log(one).slow = True
        with task.owner.watching():
            await asyncio.gather(*(task.receive("hello", id="m") for _ in range(2)))
            assert await task.subtask("x", lambda child: child.id) == "t:x"
        assert list(task.state.messages_received) == ["m"]


async def test_what_is_not_read_back_in_time_is_unknown_and_is_settled() -> None:
    charged: list[int] = []

    @journal.tool(effect="once")
    def charge(cents: int) -> int:
        charged.append(cents)
        return cents

    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(
            journal.connect(Memory(), confirm="once", deadline_s=0.05)
        )
        one.log = Kafka(one.log)
        task = await stack.enter_async_context(one.task("t", "d"))
        step = await stack.enter_async_context(task.step())
        await step.decide(lambda: journal.Decision("charge"))
        _log(one).sight.clear()
        with pytest.raises(OutcomeUnknown, match="not confirmed within"):
            await step.call(charge, 5)
        assert not charged
        _log(one).sight.set()
        with pytest.raises(CallUncertain):
            await step.options(call=0).call(charge, 5)
        await step.resolve(0, run_again=True)
        assert await step.options(call=0).call(charge, 5) == 5
    assert charged == [5]


@pytest.mark.parametrize("confirm", ["always", "once"])
async def test_a_parent_that_was_fenced_before_it_found_its_child_runs_nothing(
    confirm: str,
) -> None:
    ran: list[str] = []

    async def work(child: journal.Task) -> str:
        ran.append(child.id)
        return "done"

    async with AsyncExitStack() as stack:
        memory, id = Memory(), journal.new_task_id()
        one = await _opened(stack, memory, confirm)
        two = await _opened(stack, memory, confirm)
        mine = await stack.enter_async_context(one.task(id, "d"))
        assert isinstance(one.log, Kafka)
        one.log.sent.clear()
        one.log.stalls_after = "SubtaskStarted"
        running = asyncio.ensure_future(mine.subtask("x", work))
        await one.log.sent.wait()
        theirs = await stack.enter_async_context(two.task(id))
        assert await theirs.subtask("x", work) == "done"
        one.log.going.set()
        # With `once` it may return before it hears of that.
        with contextlib.suppress(TaskFenced):
            await running
    assert ran == [f"{id}:x"]
