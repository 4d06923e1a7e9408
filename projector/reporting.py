"""How far the file has come, told now and then to a log whose monitors want to know.

Nothing depends on it: what fails here is a warning. Knows neither the store nor any backend.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import TracebackType

from journal.errors import ProjectionError
from journal.log import Log, Monitored

EVERY_SECONDS = 5.0

_log = logging.getLogger("projector")


def reader_name(journal_id: str) -> str:
    """Whose positions they are: the name of Kafka's consumer group. One for all projectors of a
    journal, since each partition has one; another journal under the same topic has another."""
    return f"step-journal-projector-{journal_id}"


class Reporter:
    """Reports while inside: soon after a batch, at most every `every_s` seconds, and at the end.

    `positions` gives the offsets that the file holds, by partition, from any thread.
    """

    def __init__(
        self,
        log: Log | Monitored,
        reader: str,
        positions: Callable[[], Mapping[int, int]],
        every_s: float = EVERY_SECONDS,
    ) -> None:
        self._log = log if isinstance(log, Monitored) else None
        self._reader = reader
        self._positions = positions
        self._every_s = every_s
        self._news = asyncio.Event()
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Reporter:
        if self._log is not None:
            # Where it stands, too: monitors may have forgotten it.
            self._news.set()
            self._task = asyncio.create_task(self._run(self._log))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._log is None or self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._news.is_set():
            await self._report(self._log)

    def written(self) -> None:
        """A batch was committed."""
        self._news.set()

    async def _run(self, log: Monitored) -> None:
        while True:
            await self._news.wait()
            await self._report(log)
            await asyncio.sleep(self._every_s)

    async def _report(self, log: Monitored) -> None:
        self._news.clear()
        told = False
        try:
            positions = await asyncio.to_thread(self._positions)
            if positions:
                await log.report(self._reader, positions)
            told, self._failing = True, False
        except ProjectionError:
            # Whoever writes the file has the same trouble, and says so.
            pass
        except Exception as error:
            if not self._failing:
                _log.warning("monitors do not see how far this has read: %s", error)
            self._failing = True
        finally:
            if not told:
                self._news.set()
