"""What the feeds have read, put together: who may read on while a batch is folded."""

from __future__ import annotations

import asyncio

import pytest

from journal.log import Record
from projector.intake import Intake


@pytest.mark.parametrize("follow", [False, True])
async def test_only_who_follows_reads_on_while_a_batch_is_folded(follow: bool) -> None:
    intake = Intake(1, 10, follow)
    with intake.held():
        feed = asyncio.create_task(intake.put((0, None)))
        assert await intake.batch() == []
        await asyncio.sleep(0)
        assert feed.done() is follow
    await feed


async def test_who_is_stopped_takes_nothing_more_of_what_was_read() -> None:
    intake = Intake(20, 1, follow=True)
    feeds = [asyncio.create_task(intake.put((0, [Record(n, b"", b"", 0)]))) for n in range(20)]
    assert await intake.batch() == [(0, [Record(0, b"", b"", 0)])]
    intake.stop()
    assert await intake.batch() == []
    for feed in feeds:
        feed.cancel()


async def test_who_waits_for_more_is_stopped_at_once() -> None:
    intake = Intake(1, 10, follow=True)
    batch = asyncio.create_task(intake.batch())
    await asyncio.sleep(0)
    intake.stop()
    assert await batch == []


async def test_it_reads_on_after_a_fold_that_failed() -> None:
    intake = Intake(1, 10, False)
    with pytest.raises(ValueError, match="no"), intake.held():
        raise ValueError("no")
    feed = asyncio.create_task(intake.put((0, None)))
    await asyncio.sleep(0)
    assert feed.done()
