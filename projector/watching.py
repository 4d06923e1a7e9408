"""Whether the log and the file are still what they must be, looked at now and then while the log is
followed: what is seen at the start can change later.

Knows no settings: the log says what is wrong. What was read wrongly meanwhile, it cannot mend.
"""

from __future__ import annotations

import asyncio
import logging
import os
from types import TracebackType

from journal.errors import JournalError, LogError, LogMisconfigured, ProjectionError
from journal.log import Checked, Log

EVERY_SECONDS = 60.0

_log = logging.getLogger("projector")


class Place:
    """Whether the file `db` that was opened is the one that is there, however often the log is
    opened meanwhile."""

    def __init__(self, db: str) -> None:
        self._db = db
        self._file: tuple[int, int] | None = None

    def opening(self) -> None:
        """Until it is open, whatever is there is right."""
        self._file = None

    def opened(self) -> None:
        """The file is open, and in its place."""
        self._file = _identity(self._db)

    def look(self) -> None:
        """Raises `ProjectionError` where another file is there, or none."""
        file = self._file
        if file is not None and _identity(self._db) != file:
            raise ProjectionError(
                f"{self._db}: was moved away or replaced while in use; start again to use what is "
                f"there now"
            )


class Watch:
    """Looks while inside, every `every_s` seconds; at what is wrong it keeps the `error` and sets
    `stop`."""

    def __init__(
        self, log: Log | Checked, place: Place, stop: asyncio.Event, every_s: float = EVERY_SECONDS
    ) -> None:
        self.error: JournalError | None = None
        self._log = log if isinstance(log, Checked) else None
        self._place = place
        self._stop = stop
        self._every_s = every_s
        self._warned = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Watch:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                self._place.look()
                if self._log is not None:
                    await self._log.check()
            except (LogMisconfigured, ProjectionError) as error:
                self.error = error
                self._stop.set()
                return
            except LogError:
                # Whoever reads has the same trouble, and says so.
                continue
            except Exception as error:
                # Not a reason to end; but one who looks no more must not pass for one who does.
                if not self._warned:
                    what = f"{type(error).__name__}: {error}"
                    _log.warning("cannot look whether log and file are the same (%s)", what)
                self._warned = True


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
