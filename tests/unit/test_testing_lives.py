"""The kit's lives: a crash ends all that the agent has begun, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import journal
from journal import testing
from journal.errors import UsageError
from tests.shop import Shop


async def test_no_except_of_the_agent_survives_a_crash() -> None:
    shop = Shop()
    caught: list[type[BaseException]] = []

    async def late(j: journal.Journal) -> None:
        async with j.task("late", "d"):
            pass

    async def agent(j: journal.Journal) -> None:
        try:
            await shop(j)
        except Exception:
            caught.append(Exception)
        except BaseException as error:
            caught.append(type(error))
            try:
                shop.charge(99)
            except BaseException as error:
                caught.append(type(error))
            await late(j)

    outcome = await testing.run_with_crashes(agent, at=[testing.crash_at(step=0)])
    assert caught == [testing.Crash] * 2
    assert list(outcome.states) == ["order"]
    assert shop.charged == [0, 1]


async def test_what_the_agent_started_dies_with_it() -> None:
    ends: list[str] = []

    async def background(name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append(name)
            raise

    async def server() -> None:
        await asked.wait()
        started.append(asyncio.create_task(background("the test's")))
        await background("the test's")

    asked = asyncio.Event()
    started: list[asyncio.Task[None]] = []
    mine = asyncio.create_task(server())

    async def agent(j: journal.Journal) -> None:
        asked.set()
        started.append(asyncio.create_task(background("the agent's")))
        await asyncio.sleep(0)
        async with j.task("t", "d") as task:
            worker = asyncio.create_task(task.complete())
            await worker

    await testing.run_with_crashes(agent, at=[testing.crash_before("TaskCompleted")])
    assert ends == ["the agent's"] * 2
    assert [task.done() for task in (mine, *started)] == [False, True, False, True]
    assert asyncio.get_running_loop().get_task_factory() is None
    for task in (mine, *started):
        task.cancel()


async def test_crashes_beside_each_other() -> None:
    double = testing.counted(journal.tool()(Shop()._note))

    async def child(task: journal.Task, n: int) -> Any:
        return await task.run(double, n)

    async def agent(j: journal.Journal) -> None:
        async with j.task("t", "d") as task:
            if task.running:
                numbers = await task.gather(*(task.run(double, n) for n in range(3)))
                number = await task.subtask("more", child, 9)
                await task.complete([*numbers, number])

    report = await testing.crash_everywhere(agent)
    assert report.undisturbed.states["t"].status == "completed"


async def test_one_agent_at_a_time_on_a_loop() -> None:
    async def agent(j: journal.Journal) -> None:
        await testing.run_with_crashes(Shop())

    with pytest.raises(UsageError, match="await that before the next"):
        await testing.run_with_crashes(agent)


async def test_an_agent_that_will_not_die_is_an_error() -> None:
    stop: list[bool] = []

    async def agent(j: journal.Journal) -> None:
        while not stop:
            try:
                async with j.task("t", "d"):
                    pass
            except BaseException:
                pass

    with pytest.raises(AssertionError, match="goes on after its death"):
        await testing.run_with_crashes(agent, at=[testing.crash_before()])
    stop.append(True)


async def test_what_the_agent_raises_is_raised() -> None:
    async def agent(j: journal.Journal) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await testing.run_with_crashes(agent)
    with pytest.raises(ZeroDivisionError):
        await testing.crash_everywhere(agent)
