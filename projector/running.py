"""`projector run`: the log, the file, its socket and the runner, put together.

Whoever follows outlives the absence of a Kafka log and a full disk: the file's socket is served
all the while, and one line says what is waited for. Knows neither arguments nor exit codes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from journal.backends import open_log
from journal.errors import (
    DiskFull,
    LogError,
    LogNotFound,
    LogUnavailable,
    NotAJournal,
    ProjectionError,
)
from journal.genesis import Identity, identify
from journal.log import Log
from projector.health import FOLLOWING, WAITING, Figures, Health, Pulse
from projector.reporting import Reporter, reader_name
from projector.runner import Runner, Written
from projector.serve import Server
from projector.store import Store
from projector.watching import EVERY_SECONDS, Place, Watch

_WAIT_SECONDS = 1.0
FULL_SECONDS = 5.0
"""Every try opens the file anew, which interrupts who is reading it."""

_FIGURES_SECONDS = 5.0

Opened = tuple[Log, Identity]


async def opened(url: str, config: Mapping[str, str] | None) -> Opened:
    """The log and whose it is. Raises `LogNotFound` for one that has no genesis record yet."""
    log = await open_log(url, config=config)
    try:
        try:
            return log, await identify(log)
        except NotAJournal as error:
            if any((await log.ends()).values()):
                raise
            raise LogNotFound(str(error)) from None
    except BaseException:
        await log.close()
        raise


class Projection:
    """One `projector run`, into the file `db`, of the log that `open` opens.

    `url` names it in lines for people, which `say` prints, and `warn`, where there is something
    to wait for. `on_written` is told of each committed batch. Setting `stop` ends it. `full_s`
    seconds pass between two tries to write to a full disk, `watch_s` between two looks at whether
    log and file are still what they were.
    """

    def __init__(
        self,
        db: str,
        url: str,
        open: Callable[[], Awaitable[Opened]],
        say: Callable[[str], None],
        *,
        warn: Callable[[str], None] | None = None,
        open_store: Callable[[str, str | None], Store] = Store.open,
        full_s: float = FULL_SECONDS,
        watch_s: float = EVERY_SECONDS,
    ) -> None:
        self.stop = asyncio.Event()
        self.on_written: Callable[[Written], None] = lambda _: None
        self._db = db
        self._url = url
        self._open = open
        self._say = say
        self._warn = say if warn is None else warn
        self._open_store = open_store
        self._full_s = full_s
        self._watch_s = watch_s
        self._place = Place(db)
        self._waits = url.startswith("kafka://")
        self._store: Store | None = None
        self._runner: Runner | None = None
        self._server: Server | None = None
        self._full = False
        self._written = 0
        self._pulse = Pulse()
        self._loop = asyncio.get_running_loop()
        self._log_held: Log | None = None

    async def once(self) -> None:
        """Fold up to the end as of now, unless stopped before. Raises what is wrong with the log or
        the file."""
        if (found := await self._unless_stopped()) is not None:
            await self._fold(*found, follow=False)
        self._summary()

    async def follow(self) -> None:
        """Fold until stopped, waiting for a Kafka log that is away or not made yet."""
        while (found := await self._log()) is not None:
            try:
                await self._fold(*found, follow=True)
            except LogUnavailable as error:
                if not self._waits:
                    raise
                self._waiting(f"waiting for {self._url}: {error}")
                await self._pause(_WAIT_SECONDS)
            else:
                break
        self._summary()

    async def close(self) -> None:
        """Close the socket, then the file."""
        if self._server is not None:
            await asyncio.to_thread(self._server.close)
        if self._store is not None:
            await asyncio.to_thread(self._store.close)

    # --- the log ------------------------------------------------------------------------------

    async def _log(self) -> Opened | None:
        """The log, once it answers and somebody has made it; None when stopped before."""
        told: type[Exception] | None = None
        while not self.stop.is_set():
            try:
                return await self._unless_stopped()
            except (LogNotFound, LogUnavailable) as error:
                if not self._waits:
                    raise
                if type(error) is not told:
                    await self._serve(None)
                    self._waiting(f"waiting for {self._url}: {error}")
                    told = type(error)
            await self._pause(_WAIT_SECONDS)
        return None

    async def _unless_stopped(self) -> Opened | None:
        # A broker that does not answer is given up after many seconds; who stops us waits less.
        opening = asyncio.ensure_future(self._open())
        stopping = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return opening.result() if opening.done() else None
        finally:
            for task in (opening, stopping):
                task.cancel()
            await asyncio.wait({opening, stopping})

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds)

    # --- the file -----------------------------------------------------------------------------

    def _held(self) -> Store | None:
        # Other threads ask, and the runner may go between two looks at it.
        runner = self._runner
        return self._store if runner is None else runner.store

    def _opened_store(self, journal_id: str | None) -> Store:
        self._place.opening()
        store = self._open_store(self._db, journal_id)
        self._place.opened()
        return store

    async def _serve(self, journal_id: str | None) -> Store:
        """The file, open and served from here on. Raises `ProjectionError`."""
        store = self._held()
        if store is None:
            store = self._store = await asyncio.to_thread(self._opened_store, journal_id)
        elif journal_id is not None:
            await asyncio.to_thread(store.check_journal, journal_id)
        if self._server is None:
            self._server = Server(self._db, self._held, self._pulse.now)
        return store

    async def _fold(self, log: Log, identity: Identity, *, follow: bool) -> None:
        self._log_held = log
        try:
            reader = reader_name(identity.journal_id)
            async with (
                Reporter(log, reader, self._positions) as reporter,
                Watch(log, self._place, self.stop, self._watch_s) as watch,
            ):
                while not self.stop.is_set():
                    try:
                        await self._run(log, identity, reporter, follow)
                        break
                    except LogUnavailable:
                        if watch.error is None:
                            raise
                        # It has stopped us, and is what there is to tell.
                        break
                    except DiskFull as error:
                        if not follow:
                            raise
                        if not self._full:
                            self._waiting(f"{error}; waiting")
                        self._full = True
                    # Until then what is in the file can be asked for.
                    with contextlib.suppress(DiskFull):
                        await self._serve(identity.journal_id)
                    await self._pause(self._full_s)
            if watch.error is not None:
                raise watch.error
        finally:
            self._log_held = None
            await log.close()

    async def _run(self, log: Log, identity: Identity, reporter: Reporter, follow: bool) -> None:
        def written(batch: Written) -> None:
            reporter.written()
            self.on_written(batch)
            if self._full:
                self._room()

        store = await self._serve(identity.journal_id)
        open_store = partial(self._opened_store, identity.journal_id)
        runner = Runner(log, identity, open_store, store=store, on_written=written)
        if self._full:
            # At the end nothing will be written that could tell.
            if await self._at_end(log):
                self._room()
        elif follow:
            self._pulse.health = Health(FOLLOWING)
            self._say(f"following {self._url} into {self._db}")
        self._runner = runner
        try:
            await runner.run(follow=follow, stop=self.stop)
        except DiskFull:
            # Only a file that is opened anew tells what is in it.
            await runner.close()
            raise
        finally:
            self._written += runner.written
            self._store, self._runner = runner.store, None

    async def _at_end(self, log: Log) -> bool:
        try:
            return await asyncio.to_thread(self._positions) == await log.ends()
        except ProjectionError:
            # Whoever reads the file next has the same trouble, and tries again.
            return False

    def _room(self) -> None:
        self._full = False
        self._pulse.health = Health(FOLLOWING)
        self._say(f"{self._db}: there is room again")

    def _waiting(self, line: str) -> None:
        self._pulse.health = Health(WAITING, line)
        self._warn(line)

    def figures(self) -> Figures:
        """How it stands; from any thread but the event loop's."""
        asked = asyncio.run_coroutine_threadsafe(self._ends(), self._loop)
        ends: Mapping[int, int] = {}
        positions: Mapping[int, int] = {}
        try:
            positions = self._positions()
            ends = asked.result(_FIGURES_SECONDS)
        except (LogError, ProjectionError, TimeoutError):
            # What is not known is left out.
            asked.cancel()
        return Figures(self._pulse.health.ready, positions, ends)

    async def _ends(self) -> Mapping[int, int]:
        return {} if self._log_held is None else await self._log_held.ends()

    def _positions(self) -> dict[int, int]:
        store = self._held()
        offsets = {} if store is None else store.offsets()
        return {partition: offset.next_offset for partition, offset in offsets.items()}

    def _summary(self) -> None:
        self._say(f"{self._written:,} records read from {self._url} into {self._db}")
