"""Several loops over the steps of one task, at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import journal
from journal.events import Decision
from tests.held_log import HeldLog


@pytest.fixture
async def j(tmp_path: Path) -> AsyncIterator[journal.Journal]:
    async with journal.connect(f"memory://{tmp_path}") as j:
        yield j


async def decided(task: journal.Task, text: str) -> tuple[int, str | None]:
    async with task.step() as step:
        made = await step.decide(lambda: Decision(text))
    return step.index, made.text


async def test_a_step_that_begins_while_another_ends_is_one_of_its_own(j: journal.Journal) -> None:
    j.log = log = HeldLog(j.log)
    async with j.task("t", "d") as task:
        log.hold("StepCompleted", of="t")
        first = asyncio.ensure_future(decided(task, "a"))
        await log.came.wait()
        second = asyncio.ensure_future(decided(task, "b"))
        # It takes its index at once, while the end of the first is on its way.
        await asyncio.sleep(0)
        log.go()
        assert await asyncio.gather(first, second) == [(0, "a"), (1, "b")]


async def test_a_task_that_completes_while_a_step_ends(j: journal.Journal) -> None:
    j.log = log = HeldLog(j.log)
    async with j.task("t", "d") as task:
        log.hold("StepCompleted", of="t")
        step = asyncio.ensure_future(decided(task, "a"))
        await log.came.wait()
        log.hold("StepCompleted", "TaskCompleted", of="t")
        end = asyncio.ensure_future(task.complete("done"))
        while len(log.held) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        log.go()
        await asyncio.gather(step, end)
        assert (task.status, task.final_answer) == ("completed", "done")
