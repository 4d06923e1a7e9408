"""For people's own crash tests: a log in memory, crashes where you want them, counted tools.

    from journal import testing

    async def test_every_crash():
        charge = testing.counted(shop.charge)

        async def agent(j):
            async with j.task("order-1", "Sell a book") as task:
                ...

        await testing.crash_everywhere(agent)

docs/testing.md has the rest. Knows nothing of pytest; the fixture is in `journal_pytest`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from journal.client import Journal, connect
from journal.memory_log import Memory
from journal.testing.effects import Counted, Run, counted
from journal.testing.harness import Outcome, Report, crash_everywhere, final, run_with_crashes
from journal.testing.lives import Agent, Life
from journal.testing.points import Crash, Point, crash_after, crash_at, crash_before
from journal.testing.synchronous import synchronous

__all__ = [
    "Agent",
    "Counted",
    "Crash",
    "Life",
    "Memory",
    "Outcome",
    "Point",
    "Report",
    "Run",
    "counted",
    "crash_after",
    "crash_at",
    "crash_before",
    "crash_everywhere",
    "final",
    "journal",
    "run_with_crashes",
    "synchronous",
]


@contextlib.asynccontextmanager
async def journal(log: Memory | None = None) -> AsyncIterator[Journal]:
    """A connected journal in memory, a fresh one unless `log` is given.

    async with testing.journal() as j, j.task("t", "try it") as task:
        ...
    """
    memory = log or Memory()
    async with connect(memory) as j:
        yield j
