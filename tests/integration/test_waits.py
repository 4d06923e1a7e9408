"""A task that waits: for an answer, for a time; and what anybody may tell a task from outside.

Whoever answers is another connection; a crash is a second connection that opens the task anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import journal
from journal.errors import AskTimedOut, TaskEnded, TaskNotFound, UsageError
from journal.events import Decision

Connect = Callable[[], journal.Journal]


async def waiting(j: journal.Journal, count: int = 1) -> journal.Journal:
    """Returns once the log says that task t waits for so many things."""
    while True:
        try:
            if len((await j.state("t")).pending) >= count:
                return j
        except TaskNotFound:
            pass


@asynccontextmanager
async def at_once(*others: Any) -> Any:
    running = [asyncio.ensure_future(other) for other in others]
    yield running
    await asyncio.gather(*running)


async def test_an_answer_from_another_process(connect: Connect) -> None:
    async def answers() -> None:
        async with connect() as other:
            await waiting(other)
            assert [s.task_id for s in await other.tasks(status="waiting")] == ["t"]
            await other.answer("t", {"ok": True}, answered_by="ops")

    async with connect() as j, j.task("t", "d") as task, at_once(answers()):
        assert await task.ask("May I?") == {"ok": True}
        assert (task.status, task.running) == ("running", True)
        assert task.state.waits["ask:" + next(iter(task.state.waits))[4:]].answered_by == "ops"
    async with connect() as j, j.task("t", "d") as task:
        assert await task.ask("May I?") == {"ok": True}


async def test_a_question_outlives_the_process_that_asked(connect: Connect) -> None:
    async with connect() as j, j.task("t", "d") as task:
        asking = asyncio.ensure_future(task.ask("May I?", key="leave"))
        async with connect() as other:
            await waiting(other)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    async with connect() as j:
        state = await j.state("t")
        assert (state.status, state.running) == ("waiting", True)
        await j.answer("t", "yes", key="leave")
        async with j.task("t") as task:
            assert await task.ask("May I?", key="leave") == "yes"


async def test_of_two_answers_the_first_in_the_log_counts(connect: Connect) -> None:
    async with connect() as j, j.task("t", "d") as task:
        asking = asyncio.ensure_future(task.ask("May I?"))
        async with connect() as a, connect() as b:
            await waiting(a)
            told = await asyncio.gather(
                a.answer("t", "a"), b.answer("t", "b"), return_exceptions=True
            )
        got = await asking
        lost = [error for error in told if isinstance(error, Exception)]
        assert len(lost) == 1
        assert isinstance(lost[0], UsageError)
        assert got == ("b" if lost[0] is told[0] else "a")


async def test_a_time_out_and_an_answer_race_by_log_order(connect: Connect) -> None:
    async with connect() as j, j.task("t", "d") as task:
        with pytest.raises(AskTimedOut) as raised:
            await task.ask("May I?", timeout=0.0, key="k")
        assert raised.value.key == "=k"
        async with connect() as other:
            with pytest.raises(UsageError, match="asks for nothing"):
                await other.answer("t", "late")
        # Asked again, it is the same request: it has timed out.
        with pytest.raises(AskTimedOut):
            await task.ask("May I?", timeout=60.0, key="k")
        assert task.status == "running"


async def test_an_answer_is_held_against_its_schema(connect: Connect) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with connect() as j, j.task("t", "d") as task:
        asking = asyncio.ensure_future(task.ask("How many?", schema=schema))
        async with connect() as other:
            await waiting(other)
            with pytest.raises(UsageError, match=r"\$\.n: 'two' is not of type 'integer'"):
                await other.answer("t", {"n": "two"})
            await other.answer("t", {"n": 2})
        assert await asking == {"n": 2}


async def test_several_questions_are_told_apart_by_key(connect: Connect) -> None:
    async with connect() as j, j.task("t", "d") as task:
        asking = asyncio.gather(task.ask("A?", key="a"), task.ask("B?", key="b"))
        async with connect() as other:
            await waiting(other, 2)
            with pytest.raises(UsageError, match="name one of them"):
                await other.answer("t", 1)
            await other.answer("t", 2, key="b")
            await other.answer("t", 1, key="a")
        assert await asking == [1, 2]


async def test_a_timer_fires_once_and_outlives_its_process(connect: Connect) -> None:
    async with connect() as j, j.task("t", "d") as task:
        sleeping = asyncio.ensure_future(task.sleep(timedelta(days=3)))
        async with connect() as other:
            await waiting(other)
        sleeping.cancel()
        await asyncio.gather(sleeping, return_exceptions=True)
        (wait,) = task.state.pending
        due = datetime.fromisoformat(wait.until or "") - datetime.now(UTC)
        assert timedelta(days=2.9) < due <= timedelta(days=3)
    async with connect() as j, j.task("t", "d") as task:
        await task.sleep(0.0, key="short")
        assert task.status == "waiting"
        with pytest.raises(UsageError, match="time zone"):
            await task.sleep(datetime(2026, 1, 1), key="naive")


async def test_cancelling_what_waits_ends_it_in_the_log(connect: Connect) -> None:
    async with connect() as j, j.task("t", "d") as task:
        asking = asyncio.ensure_future(task.ask("May I?"))
        async with connect() as other:
            await waiting(other)
            state = await other.cancel("t", "too dear")
            assert state.status == "cancelled"
        with pytest.raises(TaskEnded, match="too dear"):
            await asking
        assert not task.running
    async with connect() as j:
        assert (await j.state("t")).error == "too dear"
        with pytest.raises(TaskEnded):
            await j.cancel("t")


async def test_an_owner_that_is_to_stop_begins_nothing_new(connect: Connect) -> None:
    asked = 0

    def model() -> Decision:
        nonlocal asked
        asked += 1
        return Decision("go on")

    async with connect() as j, j.task("t", "d") as task:
        async with task.step() as step:
            await step.decide(model)
        async with connect() as other:
            await other.cancel("t", "enough")
            await other.cancel("t", "again, which changes nothing")
        with pytest.raises(TaskEnded, match="enough"):
            async with task.step() as step:
                await step.decide(model)
        assert (task.running, task.status, asked) == (False, "cancelled", 1)


async def test_a_message_from_outside_is_seen_before_the_next_decision(connect: Connect) -> None:
    seen: list[list[Any]] = []

    async with connect() as j, j.task("t", "d") as task, connect() as other:
        async with task.step() as step:
            await step.decide(lambda: Decision("one"))
        id = await other.send("t", "wait!", id="m1")
        assert (id, await other.send("t", "wait!", id="m1")) == ("m1", "m1")
        async with task.step() as step:
            await task.look()
            seen.append([m["content"] for m in task.messages()])
            await step.decide(lambda: Decision("two"))
        assert task.state.steps[1].last_message == "m1"
        assert seen == [["d", "one", "wait!"]]
        await task.complete("done")
        with pytest.raises(TaskEnded):
            await other.send("t", "too late")
        with pytest.raises(TaskNotFound):
            await other.send("nobody", "hello")
