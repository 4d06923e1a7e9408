"""`projector run`: the log, the file, its socket and the runner, put together.

Whoever follows a Kafka log outlives its absence: the file's socket is served all the while, and
one line says what is waited for. Knows neither arguments nor exit codes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from journal.backends import open_log
from journal.errors import LogNotFound, LogUnavailable, NotAJournal
from journal.genesis import Identity, identify
from journal.log import Log
from projector.reporting import Reporter, reader_name
from projector.runner import Runner
from projector.serve import Server
from projector.store import Store

_WAIT_SECONDS = 1.0

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

    `url` names it in lines for people, which `say` prints. Setting `stop` ends it.
    """

    def __init__(
        self, db: str, url: str, open: Callable[[], Awaitable[Opened]], say: Callable[[str], None]
    ) -> None:
        self.stop = asyncio.Event()
        self._db = db
        self._url = url
        self._open = open
        self._say = say
        self._waits = url.startswith("kafka://")
        self._store: Store | None = None
        self._runner: Runner | None = None
        self._server: Server | None = None
        self._written = 0

    async def once(self) -> None:
        """Fold up to the end as of now. Raises what is wrong with the log or the file."""
        await self._fold(*await self._open(), follow=False)
        self._summary()

    async def follow(self) -> None:
        """Fold until stopped, waiting for a Kafka log that is away or not made yet."""
        while (found := await self._log()) is not None:
            try:
                await self._fold(*found, follow=True)
            except LogUnavailable as error:
                if not self._waits:
                    raise
                self._say(f"waiting for {self._url}: {error}")
                await self._pause()
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
                    self._say(f"waiting for {self._url}: {error}")
                    told = type(error)
            await self._pause()
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

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), _WAIT_SECONDS)

    # --- the file -----------------------------------------------------------------------------

    def _open_store(self) -> Store | None:
        return self._store if self._runner is None else self._runner.store

    async def _serve(self, journal_id: str | None) -> Store:
        """The file, open and served from here on. Raises `ProjectionError`."""
        store = self._open_store()
        if store is None:
            store = self._store = await asyncio.to_thread(Store.open, self._db, journal_id)
        elif journal_id is not None:
            await asyncio.to_thread(store.check_journal, journal_id)
        if self._server is None:
            self._server = Server(self._db, self._open_store)
        return store

    async def _fold(self, log: Log, identity: Identity, *, follow: bool) -> None:
        try:
            store = await self._serve(identity.journal_id)
            reader = reader_name(identity.journal_id)
            async with Reporter(log, reader, self._positions) as reporter:
                self._runner = runner = Runner(
                    log,
                    identity,
                    lambda: Store.open(self._db, identity.journal_id),
                    store=store,
                    on_written=reporter.written,
                )
                if follow:
                    self._say(f"following {self._url} into {self._db}")
                try:
                    await runner.run(follow=follow, stop=self.stop)
                finally:
                    self._written += runner.written
                    self._store, self._runner = runner.store, None
        finally:
            await log.close()

    def _positions(self) -> dict[int, int]:
        store = self._open_store()
        offsets = {} if store is None else store.offsets()
        return {partition: offset.next_offset for partition, offset in offsets.items()}

    def _summary(self) -> None:
        self._say(f"{self._written:,} events read from {self._url} into {self._db}")
