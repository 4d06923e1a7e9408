"""What the contract's tests append with and look through. Knows the protocol, no backend."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

from journal.log import Append, Cursor, Log, Record

T = 1_700_000_000_000
"""Some moment, in milliseconds."""

OpenLog = Callable[[], Awaitable[Log]]
"""Opens another handle on the log of this test."""


class Probe(Append):
    """An append that remembers everything that it was told."""

    __slots__ = ("done", "outcomes", "threads")

    def __init__(
        self,
        value: bytes,
        *,
        key: bytes = b"key",
        at: int = T,
        expect: Cursor | None = None,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        super().__init__(key, value, at, expect=expect, headers=headers)
        self.outcomes: list[int | Exception] = []
        self.threads: list[int] = []
        self.done = asyncio.Event()

    def written(self, offset: int) -> None:
        self._told(offset)

    def failed(self, error: Exception) -> None:
        self._told(error)

    def _told(self, outcome: int | Exception) -> None:
        self.outcomes.append(outcome)
        self.threads.append(threading.get_ident())
        self.done.set()

    @property
    def offset(self) -> int:
        """Where it stands; fails the test where it does not."""
        (outcome,) = self.outcomes
        assert isinstance(outcome, int), outcome
        return outcome

    @property
    def error(self) -> Exception:
        """Why it failed; fails the test where it did not."""
        (outcome,) = self.outcomes
        assert isinstance(outcome, Exception), outcome
        return outcome


async def settled(log: Log, *probes: Probe) -> list[Probe]:
    """Append them in this order, in one turn of the loop, and wait for every outcome."""
    for probe in probes:
        log.append(0, probe)
    for probe in probes:
        await asyncio.wait_for(probe.done.wait(), 30)
    return list(probes)


async def put(log: Log, *values: bytes, key: bytes = b"key", at: int = T) -> list[int]:
    """Append values and return their offsets."""
    probes = await settled(log, *(Probe(value, key=key, at=at) for value in values))
    return [probe.offset for probe in probes]


async def gather(batches: AsyncIterator[list[Record]]) -> list[Record]:
    """Everything that a finite reading gives."""
    return [record async for batch in batches for record in batch]


async def everything(log: Log) -> list[Record]:
    """All that partition 0 holds."""
    return await gather(log.read(0, (await log.starts())[0]))


async def take(batches: AsyncIterator[list[Record]], count: int) -> list[Record]:
    """The first `count` records of an endless reading."""
    records: list[Record] = []
    async with asyncio.timeout(30):
        while len(records) < count:
            records += await anext(batches)
    return records


def values(records: list[Record]) -> list[bytes | None]:
    """The records' values, in order."""
    return [record.value for record in records]
