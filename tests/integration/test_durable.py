"""Durable functions: each runs once, and a replay gives what it gave, in any order of completion.

A crash is a second connection that opens the task anew.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import journal
from journal.errors import ReplayDiverged, TaskFenced, UsageError
from journal.events import Decision

Connect = Callable[[], journal.Journal]


class Calls:
    """Functions that count how often they run."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    async def work(self, x: Any) -> Any:
        self.made.append(x)
        return f"{x}!"

    def plain(self, x: Any) -> Any:
        self.made.append(x)
        return f"{x}?"


async def test_a_call_is_known_by_function_arguments_and_occurrence(connect: Connect) -> None:
    calls = Calls()
    for _ in range(2):
        async with connect() as j, j.task("t", "d") as task:
            got = [await task.run(calls.work, n) for n in (1, 1, 2)]
            got.append(await task.run(calls.plain, 1))
            assert got == ["1!", "1!", "2!", "1?"]
    assert calls.made == [1, 1, 2, 1]


async def test_the_order_of_completion_does_not_matter(connect: Connect) -> None:
    """Elsewhere, what a gather's branches recorded is told apart by the order it came in."""
    calls = Calls()

    async def branch(task: journal.Task, turns: dict[str, asyncio.Event], name: str) -> list[str]:
        await turns[name].wait()
        first = await task.run(calls.work, "same")
        for event in turns.values():
            event.set()
        return [name, first, await task.run(calls.plain, name)]

    for first in "cab":
        turns = {name: asyncio.Event() for name in "abc"}
        turns[first].set()
        async with connect() as j, j.task("t", "d") as task:
            got = await task.gather(*(branch(task, turns, name) for name in "abc"))
            assert got == [[name, "same!", f"{name}?"] for name in "abc"]
    assert sorted(calls.made) == ["a", "b", "c", "same", "same", "same"]


async def test_what_a_crashed_gather_has_finished_is_not_run_again(connect: Connect) -> None:
    calls = Calls()

    class Crash(BaseException):
        pass

    async def dies(x: int) -> None:
        raise Crash

    async def crashes() -> None:
        async with connect() as j, j.task("t", "d") as task:
            await task.run(calls.work, 0)
            await task.gather(task.run(calls.work, 1), task.run(calls.work, 2), task.run(dies, 3))

    with pytest.raises(Crash):
        await crashes()
    async with connect() as j, j.task("t", "d") as task:
        await task.run(calls.work, 0)
        got = await task.gather(task.run(calls.work, 1), task.run(calls.work, 2))
        assert got == ["1!", "2!"]
    assert calls.made == [0, 1, 2]


async def test_functions_nest(connect: Connect) -> None:
    calls = Calls()
    outer_runs = 0

    for fails in (True, False):
        async with connect() as j, j.task("t", "d") as task:

            async def outer(x: int, task: journal.Task = task, fails: bool = fails) -> list[str]:
                nonlocal outer_runs
                outer_runs += 1
                got = [await task.run(calls.work, x), await task.run(calls.work, x)]
                if fails:
                    raise ValueError("later")
                return got

            if fails:
                with pytest.raises(ValueError, match="later"):
                    await task.run(outer, 1)
            else:
                assert await task.run(outer, 1) == ["1!", "1!"]
                assert await task.run(calls.work, 1) == "1!"
    assert (outer_runs, calls.made) == (2, [1, 1, 1])


async def test_at_the_same_time_takes_a_scope_or_a_key(connect: Connect) -> None:
    calls = Calls()

    async def both(task: journal.Task, *runs: Any) -> list[Any]:
        return await asyncio.gather(*runs, return_exceptions=True)

    async def scoped(task: journal.Task, name: str) -> Any:
        with task.scope(name):
            return await task.run(calls.work, 1)

    for _ in range(2):
        async with connect() as j, j.task("t", "d") as task:
            got = await both(task, task.run(calls.work, 1), task.run(calls.work, 1))
            assert got[0] == "1!"
            assert isinstance(got[1], UsageError)
            assert "task.gather" in str(got[1])
            keyed = [task.options(key=k).run(calls.work, 1) for k in "ab"]
            assert await both(task, *keyed) == ["1!", "1!"]
            assert await both(task, scoped(task, "a"), scoped(task, "b")) == ["1!", "1!"]
    assert calls.made == [1] * 5


async def test_code_that_has_changed_is_told_with_both_sides(connect: Connect) -> None:
    calls = Calls()
    async with connect() as j, j.task("t", "d") as task:
        await task.run(calls.work, 1)
        await task.options(key="k").run(calls.work, 1)
    async with connect() as j, j.task("t", "d") as task:
        with pytest.raises(ReplayDiverged, match=r"recorded next.*work.*now asked for.*plain"):
            await task.run(calls.plain, 1)
        with pytest.raises(ReplayDiverged, match=r"k is recorded of .*work.*now it is .*plain"):
            await task.options(key="k").run(calls.plain, 1)
    assert calls.made == [1, 1]


async def test_a_call_that_failed_is_the_same_call_when_tried_again(connect: Connect) -> None:
    calls = Calls()

    async def attempt(x: int) -> str:
        if len(calls.made) == 0:
            calls.made.append(x)
            raise OSError("not now")
        return str(await calls.work(x))

    for _ in range(2):
        async with connect() as j, j.task("t", "d") as task:
            for _ in range(2):
                try:
                    assert await task.run(attempt, 1) == "1!"
                    break
                except OSError:
                    continue
    assert calls.made == [1, 1]


async def test_clock_and_chance_are_recorded(connect: Connect) -> None:
    seen = []
    for _ in range(2):
        async with connect() as j, j.task("t", "d") as task:
            first = (await task.now(), await task.random(), await task.uuid())
            second = (await task.now(), await task.random(), await task.uuid())
            assert first[0] <= second[0]
            assert first[0].utcoffset() is not None
            assert first[2] != second[2]
            assert 0 <= first[1] < 1
            seen.append((first, second))
    assert seen[0] == seen[1]


async def test_a_step_is_a_scope(connect: Connect) -> None:
    """What is asked for in step 1 is not what step 0 was given, also after a crash."""
    calls = Calls()
    for index in range(2):
        async with connect() as j, j.task("t", "d") as task, task.step() as step:
            assert step.index == index
            await step.decide(lambda: Decision("go on"))
            await task.run(calls.work, "page")
    assert calls.made == ["page", "page"]


async def test_gather_keeps_its_limit_and_its_policy(connect: Connect) -> None:
    at_once = most = 0

    async def work(n: int) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        if n == 2:
            raise ValueError("two")
        return n

    async with connect() as j, j.task("t", "d") as task:
        got = await task.gather(*(work(n) for n in range(9)), limit=3, policy="collect")
        assert most == 3
        assert [x for x in got if not isinstance(x, ValueError)] == [0, 1, 3, 4, 5, 6, 7, 8]
        assert str(got[2]) == "two"
        with pytest.raises(ValueError, match="two"):
            await task.gather(*(work(n) for n in range(4)))
        for wrong in ({"limit": 0}, {"policy": "hope"}):
            with pytest.raises(UsageError):
                await task.gather(work(0), **wrong)


async def test_gather_leaves_no_call_that_nobody_awaits(
    connect: Connect, recwarn: pytest.WarningsRecorder
) -> None:
    warnings.simplefilter("always")

    async def fail() -> None:
        raise ValueError("no")

    async with connect() as j, j.task("t", "d") as task:
        with pytest.raises(ValueError, match="no"):
            await task.gather(fail(), *(task.run(str, n) for n in range(3)), limit=1)
        with pytest.raises(UsageError, match="limit"):
            await task.gather(task.run(str, 0), limit=0)
        # One gather in another's scope, while that runs.
        waiting = asyncio.Event()
        first = asyncio.create_task(task.gather(waiting.wait()))
        await asyncio.sleep(0)
        with pytest.raises(UsageError, match="began while gather ran"):
            await task.gather(task.run(str, 1))
        waiting.set()
        await first
    gc.collect()
    assert [str(w.message) for w in recwarn if "never awaited" in str(w.message)] == []


async def test_a_tool_that_must_run_once_is_sent_to_a_step(connect: Connect) -> None:
    charged: list[int] = []

    @journal.tool(effect="once")
    def charge(cents: int) -> str:
        charged.append(cents)
        return "charged"

    async with connect() as j, j.task("t", "d") as task:
        with pytest.raises(UsageError, match="must run once"):
            await task.run(charge, 5)
        with pytest.raises(UsageError, match="must run once"):
            await task.options(key="k").run(charge, 5)
        assert not charged


async def test_gather_keeps_its_limit_when_it_goes_on(connect: Connect) -> None:
    """Of what is resumed no more run at once than at first: functions, and sub-tasks, of which one
    had begun; what is done takes no room from what is not."""

    class Crash(BaseException):
        pass

    dies, at_once, most = True, 0, 0
    made: list[int] = []

    async def work(n: int) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        made.append(n)
        await asyncio.sleep(0)
        at_once -= 1
        if n == 5 and dies:
            raise Crash
        return n

    async def child(task: journal.Task, n: int) -> int:
        return await work(n)

    async def life() -> list[int]:
        async with connect() as j, j.task("t", "d") as task:
            calls = [task.run(work, n) for n in range(6, 9)]
            calls += [task.subtask(f"c{n}", child, n) for n in range(6)]
            return await task.gather(*calls, limit=2)

    with pytest.raises(Crash):
        await life()
    first, made = made, []
    dies, at_once = False, 0
    assert await life() == [6, 7, 8, *range(6)]
    assert most == 2
    assert 5 in made
    # At most those that ran beside the one that died.
    assert len(set(first) & set(made)) <= 2


async def test_a_worker_that_lost_its_task_tries_no_more(connect: Connect) -> None:
    tried = asyncio.Event()
    runs: list[int] = []

    @journal.tool(retries=6, backoff=0.001)
    async def flaky() -> None:
        runs.append(1)
        if not tried.is_set():
            tried.set()
            await taken.wait()
        raise OSError("busy")

    taken = asyncio.Event()
    async with connect() as j, connect() as other, j.task("t", "d") as task:
        running = asyncio.ensure_future(task.run(flaky))
        await tried.wait()
        async with other.task("t"):
            taken.set()
            with pytest.raises(TaskFenced):
                await running
    assert runs == [1]
