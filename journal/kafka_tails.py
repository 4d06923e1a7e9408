"""Tails of a topic: all of a process's partitions through one consumer, for ever.

A consumer for each would cost a request for each partition and nearly each record. Knows how to
outlive a broker; an offset that the topic does not have is explained by `kafka_reader`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaError, OffsetOutOfRangeError

from journal.errors import LogError, LogUnavailable
from journal.kafka_admin import not_found
from journal.kafka_client import Clients, Outage, words
from journal.kafka_landmark import Landmark
from journal.kafka_reader import BATCH, Reader, to_records
from journal.log import Record

_FULL = 2 * BATCH
"""With so many records waiting for its reader, a tail takes no more."""

_MAX_WAIT_MS = 500
_CHECK_S = 1.0
_SILENT_S = 5.0
_RENEW_S = 30.0


class Tails:
    """All tails of one process on one topic."""

    def __init__(
        self, clients: Clients, outage: Outage, reader: Reader, landmark: Landmark
    ) -> None:
        self._clients = clients
        self._outage = outage
        self._reader = reader
        self._landmark = landmark
        self._hubs: list[_Hub] = []
        self._number = itertools.count(1)
        self._closed = False

    async def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        tail = _Tail(TopicPartition(self._clients.address.topic, partition), start)
        hub = self._hub_for(partition)
        hub.add(tail)
        try:
            while True:
                if self._closed:
                    raise self._clients.closed()
                if tail.batches:
                    yield hub.take(tail)
                elif tail.error is not None:
                    raise tail.error
                elif tail.out_of_range:
                    await self._reader.explain(partition, tail.position)
                    tail.out_of_range = False
                    hub.renew()
                else:
                    await tail.changed()
        finally:
            hub.remove(tail)

    async def close(self) -> None:
        """End every tail with an error that says so."""
        self._closed = True
        for hub in self._hubs:
            await hub.close()

    def _hub_for(self, partition: int) -> _Hub:
        # A consumer has one position in a partition; a second tail of it needs another.
        self._hubs = [hub for hub in self._hubs if not hub.gone]
        for hub in self._hubs:
            if not hub.ended and partition not in hub.tails:
                return hub
        number = next(self._number)
        self._hubs.append(_Hub(self._clients, self._outage, self._reader, self._landmark, number))
        return self._hubs[-1]


class _Tail:
    """One partition that somebody follows: what has come, and where to go on."""

    def __init__(self, tp: TopicPartition, position: int) -> None:
        self.tp = tp
        self.position = position
        self.batches: deque[list[Record]] = deque()
        self.waiting = 0
        """Records in `batches`."""
        self.out_of_range = False
        self.error: LogError | None = None
        self._changed: asyncio.Future[None] | None = None

    async def changed(self) -> None:
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


class _Hub:
    """One consumer and the tails that it feeds, from the first of them until there is none.

    When a tail comes, a new consumer takes over all of them: on the connection of the old one,
    a request would wait until the fetch that is under way there has been answered.
    """

    def __init__(
        self, clients: Clients, outage: Outage, reader: Reader, landmark: Landmark, number: int
    ) -> None:
        self.tails: dict[int, _Tail] = {}
        self.ended = False
        """It feeds nobody any more; the next tail needs another. One that went on would have to
        keep the pump that is ending apart from the one that begins."""
        self._clients = clients
        self._outage = outage
        self._reader = reader
        self._landmark = landmark
        self._who = f"reading, {number}"
        self._loop = asyncio.get_running_loop()
        self._consumer: AIOKafkaConsumer | None = None
        self._assigned: dict[int, _Tail] = {}
        self._stale = True
        self._pump = self._loop.create_task(self._run())
        self._polling = self._poked = False
        self._checked = 0.0
        self._heard: dict[int, tuple[Any, float]] = {}

    @property
    def gone(self) -> bool:
        """Whether it has ended and left nothing running."""
        return self._pump.done()

    def add(self, tail: _Tail) -> None:
        self.tails[tail.tp.partition] = tail
        self.renew()

    def remove(self, tail: _Tail) -> None:
        del self.tails[tail.tp.partition]
        if not self.tails:
            self.ended = True
            self._pump.cancel()
        elif self._consumer is not None and self._assigned.get(tail.tp.partition) is tail:
            self._consumer.pause(tail.tp)

    def renew(self) -> None:
        """Begin anew at every tail's position, with a new consumer."""
        self._stale = True
        self._poke()

    def take(self, tail: _Tail) -> list[Record]:
        records = tail.batches.popleft()
        was_full = tail.waiting >= _FULL
        tail.waiting -= len(records)
        if was_full and tail.waiting < _FULL:
            self._poke()
        return records

    async def close(self) -> None:
        for tail in self.tails.values():
            tail.wake()
        self._pump.cancel()
        await asyncio.wait([self._pump])

    # --- the pump -----------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                try:
                    if self._stale or self._consumer is None:
                        await self._connect()
                    got = await self._poll()
                    if got:
                        await self._landmark.verify()
                        self._deliver(got)
                    await self._listen()
                except OffsetOutOfRangeError as error:
                    self._out_of_range(error.args[0])
                except (KafkaError, LogUnavailable, ConsumerStoppedError) as error:
                    self._stale = True
                    self._landmark.doubt()
                    self._outage.down(self._who, words(error))
                    await asyncio.sleep(0.5)
                except LogError as error:
                    self._end(error)
                    return
        except Exception as error:
            # Not foreseen; whoever waits here would wait for ever.
            self._end(self._clients.unavailable(words(error)))
            raise
        finally:
            self._outage.up(self._who)
            self._drop_consumer()

    async def _connect(self) -> None:
        consumer = await self._reader.consumer(_MAX_WAIT_MS)
        self._drop_consumer()
        self._consumer = consumer
        self._stale = False
        # In one turn of the loop: an assignment without positions is an error.
        self._assigned = dict(self.tails)
        consumer.assign([tail.tp for tail in self._assigned.values()])
        now = self._loop.time()
        for partition, tail in self._assigned.items():
            consumer.seek(tail.tp, tail.position)
            self._heard[partition] = None, now

    def _drop_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self._reader.discard(consumer)

    async def _poll(self) -> dict[TopicPartition, list[Any]]:
        """What has come for tails that are not full; nothing when poked."""
        assert self._consumer is not None
        wanted = [tail.tp for tail in self._following() if tail.waiting < _FULL]
        self._polling = True
        try:
            if wanted:
                got: dict[TopicPartition, list[Any]] = await self._consumer.getmany(
                    *wanted, timeout_ms=int(_CHECK_S * 1000), max_records=BATCH
                )
                return got
            await asyncio.sleep(_CHECK_S)
        except asyncio.CancelledError:
            if not self._poked or self._pump.uncancel():
                raise
        finally:
            self._polling = self._poked = False
        return {}

    def _poke(self) -> None:
        """End a poll that asks for the wrong partitions. Nothing is lost: it waits without having
        taken anything."""
        if self._polling and not self._poked:
            self._poked = True
            self._pump.cancel()

    def _following(self) -> list[_Tail]:
        return [tail for p, tail in self._assigned.items() if self.tails.get(p) is tail]

    def _deliver(self, got: dict[TopicPartition, list[Any]]) -> None:
        for tp, found in got.items():
            tail = self._assigned[tp.partition]
            if self.tails.get(tp.partition) is tail:
                records = to_records(found)
                self._landmark.note(tp.partition, records[-1])
                tail.position = records[-1].offset + 1
                tail.waiting += len(records)
                tail.batches.append(records)
                tail.wake()

    def _out_of_range(self, offsets: dict[TopicPartition, int]) -> None:
        for tp in offsets:
            tail = self._assigned[tp.partition]
            tail.out_of_range = True
            tail.wake()
            if self._consumer is not None:
                self._consumer.pause(tp)

    def _end(self, error: LogError) -> None:
        self.ended = True
        for tail in self.tails.values():
            tail.error = error
            tail.wake()

    async def _listen(self) -> None:
        """Notice that the cluster is silent: an idle fetch, too, is answered all the time."""
        now = self._loop.time()
        if now < self._checked + _CHECK_S or self._consumer is None:
            return
        self._checked = now
        silent_s = 0.0
        for tail in self._following():
            partition = tail.tp.partition
            polled = self._consumer.last_poll_timestamp(tail.tp)
            before, heard = self._heard[partition]
            if polled != before or tail.waiting or tail.out_of_range:
                heard = now
            self._heard[partition] = polled, heard
            silent_s = max(silent_s, now - heard)
        if silent_s < _SILENT_S:
            self._outage.up(self._who)
            return
        self._outage.down(self._who, f"no answer for {_SILENT_S:.0f} s")
        if self._landmark.replaced is not None:
            raise self._landmark.replaced
        self._landmark.doubt()
        known = self._consumer.partitions_for_topic(self._clients.address.topic)
        if known is None and not await self._reader.exists():
            raise not_found(self._clients.address)
        if silent_s > _RENEW_S:
            # The client asks only the brokers that it knew; they may all have moved.
            self._stale = True
