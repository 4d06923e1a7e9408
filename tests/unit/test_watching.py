"""The looks at log and file go on, whatever goes wrong in one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from journal.errors import LogMisconfigured, LogUnavailable
from journal.genesis import identify
from journal.log import Log
from journal.memory_log import Memory
from projector.running import Opened, Projection
from projector.watching import Place, Watch
from tests.wrapped_log import WrappedLog


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


class Wrong(WrappedLog):
    """Something is wrong with it, and as soon as that is seen, it is away."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._checked = asyncio.Event()

    async def check(self) -> None:
        self._checked.set()
        raise LogMisconfigured("it is wrong")

    async def starts(self) -> Mapping[int, int]:
        await self._checked.wait()
        raise LogUnavailable("it is away")


async def test_what_is_wrong_is_told_though_the_log_goes_away_at_that_moment(
    tmp_path: Path,
) -> None:
    async def opened() -> Opened:
        log = Memory().handle()
        return Wrong(log), await identify(log, create=True)

    db = str(tmp_path / "r.duckdb")
    projection = Projection(db, "kafka://nowhere:1/t", opened, lambda _: None, watch_s=0)
    try:
        with pytest.raises(LogMisconfigured, match="it is wrong"):
            await asyncio.wait_for(projection.follow(), 60)
    finally:
        await projection.close()
