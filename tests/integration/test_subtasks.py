"""Sub-tasks: run once, resumed, failed, cancelled, and never started by a fenced parent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import journal
from journal.errors import ReplayDiverged, SubtaskFailed, TaskEnded, TaskFenced, TaskMismatch

Connect = Callable[[], journal.Journal]


class Crash(BaseException):
    """What stands for the end of a process."""


class Work:
    """A child's work, which counts its runs and fails where it is told to."""

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.fails: dict[int, BaseException] = {}

    async def __call__(self, child: journal.Task, n: int) -> int:
        self.runs.append(n)
        half = await child.run(self.half, n)
        if n in self.fails:
            raise self.fails.pop(n)
        return half * 4

    def half(self, n: int) -> int:
        self.runs.append(-n)
        return n // 2


async def test_children_run_once_and_are_tasks_of_their_own(connect: Connect) -> None:
    work = Work()
    for _ in range(2):
        async with connect() as j, j.task("p", "d") as task:
            got = await task.gather(*(task.subtask(f"c{n}", work, n) for n in (2, 4)), limit=1)
            assert got == [4, 8]
    assert sorted(work.runs) == [-4, -2, 2, 4]
    async with connect() as j:
        child = await j.state("p:c2")
        assert (child.status, child.parent_task_id) == ("completed", "p")
        states = {s.task_id for s in await j.tasks()}
        assert states == {"p", "p:c2", "p:c4"}


async def test_a_child_that_crashed_goes_on_where_it_was(connect: Connect) -> None:
    work = Work()
    work.fails[2] = Crash()

    async def parent() -> int:
        async with connect() as j, j.task("p", "d") as task:
            got: int = await task.subtask("c", work, 2)
            return got

    with pytest.raises(Crash):
        await parent()
    assert await parent() == 4
    # Its own function ran twice, what it had recorded did not.
    assert work.runs == [2, -2, 2]


async def test_a_failing_child_fails_alone_and_once(connect: Connect) -> None:
    work = Work()
    work.fails[2] = ValueError("no such city")
    for _ in range(2):
        async with connect() as j, j.task("p", "d") as task:
            got = await task.gather(
                *(task.subtask(f"c{n}", work, n) for n in (2, 4)), policy="collect"
            )
            assert isinstance(got[0], SubtaskFailed)
            assert (got[0].name, got[0].error_type) == ("c2", "ValueError")
            assert "no such city" in str(got[0])
            assert got[1] == 8
    assert sorted(work.runs) == [-4, -2, 2, 4]


async def test_a_retry_of_the_parent_reopens_failed_children(connect: Connect) -> None:
    work = Work()
    work.fails[2] = ValueError("not now")
    async with connect() as j, j.task("p", "d") as task:
        with pytest.raises(SubtaskFailed):
            await task.gather(task.subtask("c2", work, 2), task.subtask("c4", work, 4), limit=1)
        await task.fail("a child failed")
    async with connect() as j:
        await j.retry("p")
        async with j.task("p") as task:
            got = await task.gather(task.subtask("c2", work, 2), task.subtask("c4", work, 4))
            assert got == [4, 8]
        assert (await j.state("p:c2")).head.epoch == 1
    assert sorted(work.runs) == [-4, -2, 2, 2, 4]


async def test_a_name_is_one_sub_task(connect: Connect) -> None:
    work = Work()
    async with connect() as j, j.task("p", "d") as task:
        assert await task.subtask("c", work, 2) == await task.subtask("c", work, 2) == 4
        with pytest.raises(ReplayDiverged, match="sub-task c is recorded"):
            await task.subtask("c", work, 3)
        async with j.task("p:taken", "not a child of p"):
            pass
        with pytest.raises((TaskFenced, TaskMismatch)):
            await task.subtask("taken", work, 2)


async def test_a_name_that_is_somebody_elses_task_does_not_keep_a_parent_from_its_end(
    connect: Connect,
) -> None:
    async with connect() as j:
        async with j.task("p:taken", "not a child of p"):
            pass
        async with j.task("p", "d") as task:
            with pytest.raises((TaskFenced, TaskMismatch)):
                await task.subtask("taken", Work(), 2)
            await j.cancel("p", "enough")
            with pytest.raises(TaskEnded, match="enough"):
                await task.look()
        assert [(await j.state(id)).status for id in ("p", "p:taken")] == ["cancelled", "running"]


async def test_a_fenced_parent_starts_and_steals_nothing(connect: Connect) -> None:
    """The old owner wakes after the new one has started the child."""
    work, ran = Work(), []

    async def slow(child: journal.Task, who: str) -> str:
        ran.append(who)
        return "done"

    async with connect() as j, j.task("p", "d") as old:
        await old.run(work.half, 2)
        async with connect() as k, k.task("p", "d") as new:
            assert await new.subtask("c", slow, "x") == "done"
            before = [e async for _, e in k.events("p:c")]
            for name in ("c", "other"):
                with pytest.raises(TaskFenced):
                    await old.subtask(name, slow, "x")
            assert [e async for _, e in k.events("p:c")] == before
            assert {s.task_id for s in await k.tasks()} == {"p", "p:c"}
    assert ran == ["x"]


async def test_what_a_fenced_parent_has_started_is_taken_over(connect: Connect) -> None:
    release, began, runs = asyncio.Event(), asyncio.Event(), []

    async def slow(child: journal.Task) -> str:
        runs.append(child.state.head.epoch)
        began.set()
        if len(runs) == 1:
            await release.wait()
        return await child.run(lambda: f"done at {len(runs)}")

    async with connect() as j, j.task("p", "d") as old:
        running = asyncio.ensure_future(old.subtask("c", slow))
        await began.wait()
        async with connect() as k, k.task("p", "d") as new:
            assert await new.subtask("c", slow) == "done at 2"
            release.set()
            (got,) = await asyncio.gather(running, return_exceptions=True)
            assert isinstance(got, TaskFenced), got
            state = await k.state("p:c")
            assert (state.status, state.head.epoch, state.head.parent_epoch) == ("completed", 1, 1)
    assert runs == [0, 1]


async def test_a_child_that_ends_while_it_is_taken_over_has_its_result(connect: Connect) -> None:
    release, began = asyncio.Event(), asyncio.Event()

    async def slow(child: journal.Task) -> str:
        began.set()
        await release.wait()
        return "done"

    async with connect() as j, j.task("p", "d") as old:
        running = asyncio.ensure_future(old.subtask("c", slow))
        await began.wait()
        async with connect() as k, k.task("p", "d") as new:
            release.set()
            assert await new.subtask("c", slow) == "done"
        await asyncio.gather(running, return_exceptions=True)


async def test_cancelling_the_parent_cancels_its_children(connect: Connect) -> None:
    started = asyncio.Event()

    async def forever(child: journal.Task) -> None:
        started.set()
        await asyncio.Event().wait()

    async with connect() as j, j.task("p", "d") as task:
        running = asyncio.ensure_future(
            task.gather(task.subtask("a", forever), task.subtask("b", forever))
        )
        await started.wait()
        async with connect() as other:
            await other.cancel("p", "too dear")
        with pytest.raises(TaskEnded, match="too dear"):
            await running
        assert task.status == "cancelled"
    async with connect() as j:
        states = {s.task_id: (s.status, s.error) for s in await j.tasks()}
        children = {id: state for id, state in states.items() if id != "p"}
        assert children
        assert set(children.values()) == {("cancelled", "too dear")}


async def test_an_id_that_a_crash_left_behind_gives_no_old_result(connect: Connect) -> None:
    """Elsewhere an interrupted clean-up gives a reused id the result of the run before."""
    work = Work()
    async with connect() as j, j.task("p", "d") as task:
        assert await task.subtask("c", work, 2) == 4
        await task.fail("start over")
    async with connect() as j:
        await j.retry("p")
        async with j.task("p") as task:
            with pytest.raises(ReplayDiverged):
                await task.subtask("c", work, 6)


async def test_a_thousand_children(connect: Connect, tmp_path: Any) -> None:
    async def nothing(child: journal.Task, n: int) -> int:
        return n

    count = 1_000
    async with connect() as j, j.task("p", "d") as task:
        got = await task.gather(
            *(task.subtask(f"c{n}", nothing, n) for n in range(count)), limit=50
        )
        assert got == list(range(count))
        assert len(task.state.subtasks) == count
