"""Whether a topic is still the one that was read before: one of its records, looked at again.

A topic that is deleted and made again keeps its name, and once it has grown no offset tells. The
client knows no topic ids, so a record that was read stands in for one: whatever is read later is
believed only while that record is still where it was.
"""

from __future__ import annotations

import asyncio

from journal.errors import HistoryTruncated, LogReplaced
from journal.kafka_client import Clients
from journal.kafka_reader import Reader
from journal.log import Record

DOUBT_S = 5.0
"""Seconds for which a topic that was looked at is believed to be the same."""

_TRIES = 4
_PAUSE_S = 0.3


class Landmark:
    """One for all that a process reads of one topic."""

    def __init__(self, clients: Clients, reader: Reader, doubt_s: float = DOUBT_S) -> None:
        self.replaced: LogReplaced | None = None
        """Set once the topic was found to be another one."""
        self._clients = clients
        self._address = clients.address
        self._reader = reader
        self._doubt_s = doubt_s
        self._loop = asyncio.get_running_loop()
        self._known: tuple[int, Record] | None = None
        self._latest: tuple[int, Record] | None = None
        self._doubts = self._settled = 0
        self._verified = self._loop.time()
        self._closed = False
        self._looking: asyncio.Task[Exception | None] | None = None

    def note(self, partition: int, record: Record) -> None:
        """A record that has been read and believed."""
        self._latest = partition, record
        if self._known is None:
            self._known = self._latest

    def doubt(self, *_: object) -> None:
        """Something has happened that may mean another topic: believe nothing without a look."""
        self._doubts += 1
        self.look()

    async def verify(self) -> None:
        """Return where what has just been read may be believed. Raises `LogReplaced`, and
        `LogUnavailable` where Kafka does not answer."""
        # A look that had begun before this was called may have begun before what is in doubt.
        for _ in range(2):
            if self._sure():
                return
            looking = self._begin()
            # What is raised here is the caller's own end; that of the look, `close`, may come with
            # it, and must not stand in for it.
            await asyncio.wait([looking])
            if looking.cancelled():
                raise self._clients.closed()
            if (error := looking.result()) is not None:
                raise error

    def look(self) -> None:
        """Look, if it is time to, with nobody waiting: `replaced` tells."""
        if self.replaced is None and not self._closed and not self._sure():
            self._begin()

    def _begin(self) -> asyncio.Task[Exception | None]:
        # One for all who wait: one after the other they would wait for a Kafka that is away.
        if self._looking is None:
            self._looking = self._loop.create_task(self._look())
        return self._looking

    async def _look(self) -> Exception | None:
        began, doubts = self._loop.time(), self._doubts
        try:
            await self._compare()
        except LogReplaced as error:
            self.replaced = error
            return error
        except Exception as error:
            # The client's own mistakes, too: with nobody waiting, nobody would hear of them.
            self._doubts += 1
            return error
        finally:
            self._looking = None
        # Not sooner, or what is read meanwhile would be believed without a look.
        self._verified, self._settled = began, doubts
        return None

    def close(self) -> None:
        """Look no more."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()

    def _sure(self) -> bool:
        if self.replaced is not None:
            raise self.replaced
        if self._known is None:
            return True
        return self._doubts == self._settled and self._loop.time() < self._verified + self._doubt_s

    async def _compare(self) -> None:
        known, latest = self._known, self._latest
        assert known is not None
        partition, record = known
        if not await self._there(partition, record):
            raise LogReplaced(
                f"topic {self._address.topic} at {self._address.brokers} was deleted and made "
                f"again, or has lost its end: {partition}:{record.offset} is not the record that "
                f"was read there before; restart to use what is there now"
            )
        # What has been read since the last look is of this topic, too. The younger record is the
        # better landmark: the oldest are the first to be deleted.
        self._known = latest

    async def _there(self, partition: int, record: Record) -> bool:
        for _ in range(_TRIES):
            reading = self._reader.read(partition, record.offset, record.offset + 1)
            try:
                async for found, *_ in reading:
                    return (found.key, found.value) == (record.key, record.value)
            except HistoryTruncated:
                # Deleted from the start on, as retention does; that tells nothing.
                return True
            except LogReplaced:
                # Past the end, which a new leader may not know yet, or no such partition.
                await self._reader.bounds(partition)
            await asyncio.sleep(_PAUSE_S)
        return False
