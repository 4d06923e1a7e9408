"""The looks at log and file go on, whatever goes wrong in one of them."""

from __future__ import annotations

import asyncio

import pytest

from journal.errors import LogMisconfigured
from projector.watching import Place, Watch


class Mistaken:
    """A log whose check has a mistake of its own twice, and then finds something wrong."""

    def __init__(self) -> None:
        self.looks = 0

    async def check(self) -> None:
        self.looks += 1
        if self.looks <= 2:
            raise RuntimeError("a mistake")
        raise LogMisconfigured("it is wrong")


async def test_a_look_that_fails_is_told_once_and_looked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop, log = asyncio.Event(), Mistaken()
    async with Watch(log, Place("none.duckdb"), stop, every_s=0) as watch:
        await asyncio.wait_for(stop.wait(), 60)
    assert str(watch.error) == "it is wrong"
    assert log.looks == 3
    (told,) = caplog.messages
    assert told == "cannot look whether log and file are the same (RuntimeError: a mistake)"
