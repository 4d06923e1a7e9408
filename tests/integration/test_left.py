"""When a task's block has ended: who still waits is told, and who appends more is refused."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

import journal
from journal.blobs import DirectoryBlobs
from journal.errors import OutcomeUnknown, TaskEnded, UsageError
from tests.held_log import HeldLog

SECONDS = 20
TURNS = 50
"""Of the loop: more than a block needs to end."""


class Broken(Exception):
    """The agent's own."""


def connect(url: str, tmp_path: Path) -> journal.Journal:
    return journal.connect(url, create=True, blobs=DirectoryBlobs(tmp_path / "blobs"))


async def test_who_waits_in_the_background_when_the_block_ends_is_told(
    url: str, tmp_path: Path
) -> None:
    async with connect(url, tmp_path) as j:
        j.log = log = HeldLog(j.log)
        log.hold("StepCompleted", of="t")
        with contextlib.suppress(Broken):
            async with j.task("t", "d") as task:
                waiting = asyncio.create_task(task.record_step(0, "zero"))
                await log.came.wait()
                raise Broken
        log.go()
        async with asyncio.timeout(SECONDS):
            if log.conditional:
                assert (await waiting).index == 0
            else:
                # Nobody reads the log for it any more.
                with pytest.raises(OutcomeUnknown, match="open the task again"):
                    await waiting
        async with j.task("t") as task:
            await task.record_step(0, "zero")
            assert (task.state.current_step, task.state.head.seq) == (1, 1)


async def test_a_task_whose_block_has_ended_takes_no_more(url: str, tmp_path: Path) -> None:
    async with connect(url, tmp_path) as j:
        async with j.task("t", "d") as task:
            await task.record_step(0, "zero")
        with pytest.raises(UsageError, match="open the task again"):
            await task.record_step(1, "one")
        assert (await j.state("t")).current_step == 1


async def test_a_block_does_not_end_before_a_cancellation_that_has_begun(
    url: str, tmp_path: Path
) -> None:
    async with connect(url, tmp_path) as j:
        j.log = log = HeldLog(j.log)
        log.hold("TaskCancelled", of="t")
        looking: list[asyncio.Task[None]] = []

        async def leaving() -> None:
            async with j.task("t", "d") as task:
                await j.cancel("t", "enough")
                looking.append(asyncio.create_task(task.look()))
                await log.came.wait()
                raise Broken

        block = asyncio.create_task(leaving())
        await log.came.wait()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        log.go()
        with pytest.raises(TaskEnded, match="enough"):
            await looking[0]
        with pytest.raises(Broken):
            await block
        assert (await j.state("t")).status == "cancelled"
