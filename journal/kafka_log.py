"""The log in a Kafka topic: the parts put together behind the protocol of `log`.

Knows how a topic is opened; the work is done by `kafka_writer`, `kafka_reader`, `kafka_tails`
and, for settings, `kafka_admin`. Knows no events: the records of a topic are bytes here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping

from journal.errors import HistoryTruncated, UsageError
from journal.kafka_admin import Topic, delete_before, findings, misconfigured, open_topic
from journal.kafka_client import Clients, Outage, parse_url
from journal.kafka_config import Config, client_options
from journal.kafka_landmark import DOUBT_S, Landmark
from journal.kafka_offsets import GroupOffsets
from journal.kafka_reader import Reader
from journal.kafka_tails import Tails
from journal.kafka_writer import Writer
from journal.log import Append, OnScan, Record, changed_partitions

_BATCH_BYTES = 512 * 2**10
_BATCH_OVERHEAD_BYTES = 1024


class KafkaLog:
    """A topic as a `journal.log.Log`. Belongs to the event loop on which it was opened."""

    conditional = False

    def __init__(
        self, clients: Clients, topic: Topic, append_deadline_s: float, doubt_s: float = DOUBT_S
    ) -> None:
        """Use `open`."""
        self.url = clients.address.url
        self.partitions = topic.partitions
        self.on_scan: OnScan | None = None
        self._clients = clients
        self._loop = asyncio.get_running_loop()
        outage = Outage(clients.address.brokers)
        limit = int(topic.settings.get("max.message.bytes", 2**20)) - _BATCH_OVERHEAD_BYTES
        self._writer = Writer(
            clients,
            outage,
            partitions=topic.partitions,
            batch_bytes=min(_BATCH_BYTES, limit),
            deadline_s=append_deadline_s,
        )
        self._reader = Reader(
            clients, outage, partitions=topic.partitions, patience_s=append_deadline_s
        )
        self._landmark = Landmark(clients, self._reader, doubt_s)
        clients.on_metadata = self._landmark.doubt
        self._tails = Tails(clients, outage, self._reader, self._landmark)
        self._group_offsets = GroupOffsets(clients, topic.partitions)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        create: bool = False,
        partitions: int = 12,
        replication_factor: int | None = None,
        config: Config | None = None,
        append_deadline_s: float = 30.0,
        doubt_s: float = DOUBT_S,
    ) -> KafkaLog:
        """Open `kafka://host:port[,host:port]/topic`.

        `create` makes a missing topic, with so many partitions and replicas (3, or as many as
        there are brokers); one that exists is used as it is. `config` holds Kafka's own
        property names (`journal.kafka_config`). An append that is not acknowledged within
        `append_deadline_s` seconds fails. Every `doubt_s` seconds, and after an outage, it is
        made sure that the topic is still the same before what is read of it is handed on.

        Raises `UsageError` (URL, property), `LogUnavailable` (cluster away), `LogNotFound` (no
        such topic), `LogMisconfigured` (settings that would lose events).
        """
        if partitions < 1 or (replication_factor is not None and replication_factor < 1):
            raise UsageError("a topic has one partition and one replica at least")
        clients = Clients(parse_url(url), client_options(config))
        topic = await open_topic(
            clients, create=create, partitions=partitions, replication_factor=replication_factor
        )
        if found := findings(clients.address, topic):
            raise misconfigured(clients.address, found)
        if not topic.settings:
            _log.warning("%s: this user may not read the topic's settings; not checked", url)
        return cls(clients, topic, append_deadline_s, doubt_s)

    def append(self, partition: int, append: Append) -> None:
        if self._landmark.replaced is not None:
            self._loop.call_soon(append.failed, self._landmark.replaced)
            return
        self._writer.append(partition, append)
        self._landmark.look()

    async def read(
        self, partition: int, start: int, end: int | None = None
    ) -> AsyncIterator[list[Record]]:
        await self._landmark.verify()
        reading = self._reader.read(partition, start, end)
        async with contextlib.aclosing(reading) as batches:  # type: ignore[type-var]
            async for batch in batches:
                await self._landmark.verify()
                self._landmark.note(partition, batch[-1])
                yield batch

    async def read_key(self, partition: int, key: bytes, start: int = 0) -> list[Record]:
        while True:
            first, end = await self._reader.bounds(partition)
            first = max(start, first)
            found: list[Record] = []
            try:
                async for batch in self.read(partition, first, end):
                    found += [record for record in batch if record.key == key]
                    if (done := batch[-1].offset + 1) < end:
                        self._scanned(done - first, end - first)
            except HistoryTruncated:
                # Deleted under our hands: read again what is left.
                continue
            self._scanned(end - first, end - first)
            return found

    def _scanned(self, done: int, total: int) -> None:
        if self.on_scan is not None:
            self.on_scan(done, total)

    def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        return self._tails.tail(partition, start)

    async def offset_at(self, partition: int, timestamp_ms: int) -> int:
        return await self._reader.offset_at(partition, timestamp_ms)

    async def starts(self) -> Mapping[int, int]:
        return await self._reader.starts()

    async def ends(self) -> Mapping[int, int]:
        return await self._reader.ends()

    async def truncate(self, partition: int, before: int) -> None:
        first, end = await self._reader.bounds(partition)
        if before > first:
            await delete_before(self._clients, partition, min(before, end))

    async def report(self, reader: str, positions: Mapping[int, int]) -> None:
        await self._group_offsets.commit(reader, positions)

    async def check(self) -> None:
        topic = await open_topic(self._clients)
        if topic.partitions > self.partitions:
            raise changed_partitions(self.url, topic.partitions, self.partitions)
        if found := findings(self._clients.address, topic):
            raise misconfigured(self._clients.address, found)

    async def close(self) -> None:
        try:
            await self._writer.close()
        finally:
            self._landmark.close()
            await self._tails.close()
            await self._group_offsets.close()
            await self._reader.close()


_log = logging.getLogger("journal")
