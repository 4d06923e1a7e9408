"""What the feeds have read, put together: who may read on while a batch is folded."""

from __future__ import annotations

import asyncio

import pytest

from projector.runner import _Intake


@pytest.mark.parametrize("follow", [False, True])
async def test_only_who_follows_reads_on_while_a_batch_is_folded(follow: bool) -> None:
    intake = _Intake(1, 10, follow)
    with intake.held():
        feed = asyncio.create_task(intake.put((0, None)))
        assert await intake.batch() == []
        await asyncio.sleep(0)
        assert feed.done() is follow
    await feed


async def test_it_reads_on_after_a_fold_that_failed() -> None:
    intake = _Intake(1, 10, False)
    with pytest.raises(ValueError, match="no"), intake.held():
        raise ValueError("no")
    feed = asyncio.create_task(intake.put((0, None)))
    await asyncio.sleep(0)
    assert feed.done()
