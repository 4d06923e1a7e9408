"""Reading a topic: offsets and finite reads; tails are `kafka_tails`'.

Knows consumers without groups. An offset that the topic does not have is never skipped: it is
`HistoryTruncated` below the start, `LogReplaced` past the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
)

from journal.errors import HistoryTruncated, LogReplaced, LogUnavailable
from journal.kafka_admin import not_found
from journal.kafka_client import Clients, Outage, words
from journal.log import Record

BATCH = 1_000
"""Records decoded in one turn of the event loop, about 10 ms of it."""

_READ_WAIT_MS = 5
"""A fetch that finds nothing holds its connection up for this long; reads share connections."""

_IDLE_CONSUMERS = 2


class Reader:
    """All reading of one process from one topic. Lives on the event loop it was made on."""

    def __init__(
        self, clients: Clients, outage: Outage, *, partitions: int, patience_s: float
    ) -> None:
        self._clients = clients
        self._topic = clients.address.topic
        self._outage = outage
        self._patience_s = patience_s
        self._partitions = [TopicPartition(self._topic, p) for p in range(partitions)]
        self._loop = asyncio.get_running_loop()
        self._asker: asyncio.Task[AIOKafkaConsumer] | None = None
        self._idle: list[AIOKafkaConsumer] = []
        self._open: set[AIOKafkaConsumer] = set()
        self._stopping: set[asyncio.Task[None]] = set()
        self._connecting: set[asyncio.Task[AIOKafkaConsumer]] = set()
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        for consumer in list(self._open):
            self.discard(consumer)
        for connecting in self._connecting:
            connecting.cancel()
        while ending := [*self._stopping, *self._connecting]:
            await asyncio.wait(ending)

    # --- offsets ------------------------------------------------------------------------------

    async def starts(self) -> dict[int, int]:
        return await self._offsets(lambda c: c.beginning_offsets(self._partitions))

    async def ends(self) -> dict[int, int]:
        return await self._offsets(lambda c: c.end_offsets(self._partitions))

    async def bounds(self, partition: int) -> tuple[int, int]:
        """Start and end of one partition."""
        one = [self._partitions[partition]]
        first = await self._offsets(lambda c: c.beginning_offsets(one))
        last = await self._offsets(lambda c: c.end_offsets(one))
        return first[partition], last[partition]

    async def offset_at(self, partition: int, timestamp_ms: int) -> int:
        _, end = await self.bounds(partition)
        tp = self._partitions[partition]
        found = await self._ask(lambda c: c.offsets_for_times({tp: max(timestamp_ms, 0)}))
        return end if found[tp] is None else int(found[tp].offset)

    async def _offsets(
        self, question: Callable[[AIOKafkaConsumer], Awaitable[dict[TopicPartition, int]]]
    ) -> dict[int, int]:
        return {tp.partition: offset for tp, offset in (await self._ask(question)).items()}

    async def _ask(self, question: Callable[[AIOKafkaConsumer], Awaitable[Any]]) -> Any:
        """Ask through one consumer that never fetches, so that nothing holds its answers up.

        Tries again while the cluster is away, for as long as an append would.
        """
        give_up = self._loop.time() + self._patience_s
        while True:
            self.check_open()
            asker = self._asking()
            try:
                answer = await question(await self._asked(asker))
            except (KafkaError, LogUnavailable, ConsumerStoppedError) as error:
                await self._forget(asker)
                self.check_open()
                # The client's own time-out counts as not retriable there, but it comes before a
                # dead broker's partitions have their new leaders.
                again = getattr(error, "retriable", True) or isinstance(error, KafkaTimeoutError)
                if self._loop.time() >= give_up or not again:
                    if isinstance(error, LogUnavailable):
                        raise
                    raise self._clients.unavailable(words(error)) from None
                self._outage.down("asking for offsets", words(error))
                await asyncio.sleep(0.2)
            else:
                self._outage.up("asking for offsets")
                return answer

    def _asking(self) -> asyncio.Task[AIOKafkaConsumer]:
        if self._asker is None:
            self._asker = self._loop.create_task(self.consumer(_READ_WAIT_MS))
            self._asker.add_done_callback(_heard)
        return self._asker

    async def _asked(self, asker: asyncio.Task[AIOKafkaConsumer]) -> AIOKafkaConsumer:
        # Not awaited itself: whoever is cancelled, others may be waiting for the same consumer.
        await asyncio.wait([asker])
        return asker.result()

    async def _forget(self, asker: asyncio.Task[AIOKafkaConsumer]) -> None:
        """Ask no more through what has failed. Another, of a later question, may be there."""
        if self._asker is asker:
            self._asker = None
        if not asker.cancelled() and not asker.exception():
            consumer = asker.result()
            known = consumer.partitions_for_topic(self._topic)
            self.discard(consumer)
            if known is None and not await self.exists():
                raise not_found(self._clients.address)
            if known is not None and len(known) < len(self._partitions):
                raise LogReplaced(
                    f"topic {self._topic} has {len(known)} partitions and had "
                    f"{len(self._partitions)}; it was deleted and made again"
                )

    async def exists(self) -> bool:
        """False only where the cluster says that there is no such topic."""
        try:
            async with self._clients.admin() as admin:
                return self._topic in await admin.list_topics()
        except (KafkaError, LogUnavailable):
            return True

    # --- reading ------------------------------------------------------------------------------

    async def read(
        self, partition: int, start: int, end: int | None
    ) -> AsyncIterator[list[Record]]:
        first, last = await self.bounds(partition)
        if start < first:
            raise _truncated(partition, start, first)
        if start > last:
            raise _past_end(partition, start, last)
        end = last if end is None else min(end, last)
        if start >= end:
            return
        tp = self._partitions[partition]
        consumer = self._idle.pop() if self._idle else await self.consumer(_READ_WAIT_MS)
        finished = False
        try:
            self._seek(consumer, tp, start)
            give_up = self._loop.time() + self._patience_s
            position = start
            while not finished:
                try:
                    got = await consumer.getmany(tp, timeout_ms=1000, max_records=BATCH)
                    position = await consumer.position(tp)
                except OffsetOutOfRangeError:
                    await self.explain(partition, position)
                    continue
                except (KafkaError, ConsumerStoppedError) as error:
                    self.check_open()
                    raise self._clients.unavailable(words(error)) from None
                self.check_open()
                records = to_records(got.get(tp, ()))
                finished = position >= end
                if records:
                    give_up = self._loop.time() + self._patience_s
                elif self._loop.time() > give_up:
                    raise self._clients.unavailable(f"nothing came of {partition}:{position}")
                if finished:
                    # Before the last batch goes out, or the fetches at the end would go on
                    # for as long as the caller takes to look at it.
                    self._give_back(consumer, tp)
                    records = [record for record in records if record.offset < end]
                if records:
                    yield records
        finally:
            if not finished:
                self.discard(consumer)

    async def explain(self, partition: int, position: int) -> None:
        """Raise what an offset out of range means; return where it is in range after all."""
        first = last = position
        for _ in range(3):
            first, last = await self.bounds(partition)
            if position < first:
                raise _truncated(partition, position, first)
            if position <= last:
                return
            # A new leader may not know the end yet.
            await asyncio.sleep(0.3)
        raise _past_end(partition, position, last)

    # --- consumers ----------------------------------------------------------------------------

    async def consumer(self, max_wait_ms: int) -> AIOKafkaConsumer:
        """A consumer for `discard` to stop, at the latest at `close`. Raises `LogUnavailable`."""
        self.check_open()
        connecting = self._loop.create_task(self._clients.consumer(max_wait_ms))
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connected)
        try:
            # Not awaited itself: cancelled while it connects, the client would leave the
            # connection open.
            await asyncio.wait([connecting])
        except asyncio.CancelledError:
            connecting.add_done_callback(self._unwanted)
            raise
        self.check_open()
        return connecting.result()

    def _connected(self, connecting: asyncio.Task[AIOKafkaConsumer]) -> None:
        self._connecting.discard(connecting)
        if not connecting.cancelled() and connecting.exception() is None:
            self._open.add(connecting.result())
            if self._closed:
                self.discard(connecting.result())

    def _unwanted(self, connecting: asyncio.Task[AIOKafkaConsumer]) -> None:
        if not connecting.cancelled() and connecting.exception() is None:
            self.discard(connecting.result())

    def _seek(self, consumer: AIOKafkaConsumer, tp: TopicPartition, offset: int) -> None:
        # Together, in one turn of the loop: an assignment without a position is an error.
        consumer.assign([tp])
        consumer.seek(tp, offset)

    def _give_back(self, consumer: AIOKafkaConsumer, tp: TopicPartition) -> None:
        if len(self._idle) < _IDLE_CONSUMERS:
            consumer.pause(tp)
            self._idle.append(consumer)
        else:
            self.discard(consumer)

    def discard(self, consumer: AIOKafkaConsumer) -> None:
        """Stop a consumer in the background, so that whoever is cancelled goes at once."""
        if consumer not in self._open:
            return
        self._open.discard(consumer)
        task = self._loop.create_task(consumer.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def check_open(self) -> None:
        """Raises `LogUnavailable` once the log is closed."""
        if self._closed:
            raise self._clients.closed()


def _heard(asker: asyncio.Task[AIOKafkaConsumer]) -> None:
    # Whoever waited for it may have gone.
    if not asker.cancelled():
        asker.exception()


def to_records(got: Iterable[Any]) -> list[Record]:
    return [Record(r.offset, r.key, r.value, r.timestamp) for r in got]


def _truncated(partition: int, offset: int, first: int) -> HistoryTruncated:
    return HistoryTruncated(
        f"{partition}:{offset} has been deleted; the partition begins at {partition}:{first}"
    )


def _past_end(partition: int, offset: int, last: int) -> LogReplaced:
    return LogReplaced(
        f"{partition}:{offset} was there before and the partition now ends at {partition}:{last}; "
        f"it was deleted and made again, or has lost its end"
    )
