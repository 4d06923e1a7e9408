"""Appends on their way to Kafka: queued by partition, batched, settled exactly once each.

Knows one idempotent producer at a time. A producer that failed, or did not answer in time, is
never used again: the client's batches never expire by themselves, and a failed one has used up
its sequence number, which poisons those behind it. What was in flight then has an unknown
outcome, what was only queued behind it has certainly not been written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)

from journal.errors import JournalError, LogReplaced, LogUnavailable
from journal.kafka_answers import failure, refused, unknown
from journal.kafka_client import Clients, Outage, retire, words
from journal.log import NONE, Append

_BEHIND = LogUnavailable("not written: an append before it, to the same partition, failed")
_SLOW_S = 5.0


@dataclass(slots=True, eq=False)
class _Group:
    """Appends that one future settles; their offsets follow each other."""

    appends: list[Append]
    deadline: float
    future: asyncio.Future[Any]


class _Lane:
    """One partition: what waits, what is in flight, the last offset that was acknowledged."""

    __slots__ = ("acked", "flusher", "in_flight", "partition", "queue")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.queue: deque[tuple[Append, float]] = deque()
        self.in_flight: deque[_Group] = deque()
        self.flusher: asyncio.Task[None] | None = None
        self.acked = NONE

    def oldest(self) -> float | None:
        """The first deadline; what is in flight was called before what is queued."""
        if self.in_flight:
            return self.in_flight[0].deadline
        return self.queue[0][1] if self.queue else None


class Writer:
    """All appends of one process to one topic. Lives on the event loop it was made on."""

    def __init__(
        self,
        clients: Clients,
        outage: Outage,
        *,
        partitions: int,
        batch_bytes: int,
        deadline_s: float,
    ) -> None:
        self._clients = clients
        self._topic = clients.address.topic
        self._outage = outage
        self._batch_bytes = batch_bytes
        self._deadline_s = deadline_s
        self._loop = asyncio.get_running_loop()
        self._lanes = [_Lane(partition) for partition in range(partitions)]
        self._producer: AIOKafkaProducer | None = None
        self._starting: asyncio.Task[None] | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._refusal: JournalError | None = None
        self._shared: BaseException | None = None

    def append(self, partition: int, append: Append) -> None:
        if self._refusal is not None:
            self._loop.call_soon(append.failed, self._refusal)
            return
        if not (isinstance(append.key, bytes) and isinstance(append.value, bytes)):
            raise TypeError("an append's key and value are bytes")
        lane = self._lanes[partition]
        lane.queue.append((append, self._loop.time() + self._deadline_s))
        if lane.flusher is None:
            lane.flusher = self._loop.create_task(self._flush(lane))
        if self._sweeper is None:
            self._arm()

    async def close(self) -> None:
        """Settle what was queued (its deadlines end that), then release everything."""
        self._refusal = self._clients.closed()
        try:
            while pending := self._pending():
                await asyncio.wait(pending, timeout=1.0)
        finally:
            for lane in self._lanes:
                self._drop(lane, self._refusal)
            self._replace("the log was closed")
            for handle in (self._sweeper, self._starting):
                if handle is not None:
                    handle.cancel()
        if self._starting is not None:
            await asyncio.wait([self._starting])
        while self._retiring:
            await asyncio.wait(self._retiring)

    def _pending(self) -> list[asyncio.Future[Any]]:
        flushers = [lane.flusher for lane in self._lanes if lane.flusher is not None]
        return [*flushers, *(g.future for lane in self._lanes for g in lane.in_flight)]

    # --- from the queue to the producer -------------------------------------------------------

    async def _flush(self, lane: _Lane) -> None:
        """Hand over what is queued; ends when nothing is. Appends leave the queue in the moment
        in which the producer has them, so that a cancelled flush has changed nothing."""
        queue = lane.queue
        while queue:
            producer = self._producer
            if producer is None:
                await self._started()
                continue
            try:
                count, future = await self._hand_over(producer, lane)
            except (KafkaTimeoutError, UnknownTopicOrPartitionError) as error:
                # No room, or no metadata, for as long as a request may take: the deadline ends it.
                self._outage.down("appending", words(error))
                continue
            except KafkaError as error:
                self._drop(lane, refused(self._clients, error))
                self._replace(words(error))
                return
            except AssertionError:
                # The client asserts that it knows the partition.
                self._drop(lane, self._replaced(f"partition {lane.partition} is gone"))
                continue
            except Exception as error:
                # Nothing but what is in the records can do this, and nothing was handed over.
                self._drop(lane, refused(self._clients, error))
                continue
            deadline = queue[0][1]
            group = _Group([queue.popleft()[0] for _ in range(count)], deadline, future)
            lane.in_flight.append(group)
            future.add_done_callback(partial(self._answered, lane))
        lane.flusher = None

    async def _hand_over(
        self, producer: AIOKafkaProducer, lane: _Lane
    ) -> tuple[int, asyncio.Future[Any]]:
        """Give the producer the head of the queue; how many appends that were."""
        queue = lane.queue
        if len(queue) == 1:
            # Joins a batch that waits already; `send_batch` would wait until that has gone.
            append = queue[0][0]
            return 1, await producer.send(
                self._topic,
                append.value,
                append.key,
                partition=lane.partition,
                timestamp_ms=append.timestamp_ms,
                headers=list(append.headers),
            )
        batch = producer.create_batch()
        count = 0
        for append, _ in queue:
            added = batch.append(
                timestamp=append.timestamp_ms,
                key=append.key,
                value=append.value,
                headers=list(append.headers),
            )
            if added is None:
                break
            count += 1
        return count, await producer.send_batch(batch, self._topic, partition=lane.partition)

    async def _started(self) -> None:
        """Wait for a producer; returns without one only when nothing waits for it any more."""
        if self._starting is None:
            self._starting = self._loop.create_task(self._start())
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        pause_s = 0.1
        try:
            while any(lane.queue for lane in self._lanes):
                try:
                    self._producer = await self._clients.producer(self._batch_bytes)
                except LogUnavailable as error:
                    self._outage.down("appending", str(error))
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, 1.0)
                else:
                    return
        finally:
            self._starting = None

    # --- from the producer to the caller ------------------------------------------------------

    def _answered(self, lane: _Lane, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled():
            # Of a producer that was replaced nobody else asks, and Python would complain.
            answer.exception()
        # In the order of the calls, which is not always that of the answers: a lone record that
        # joined a waiting batch hears a turn of the loop before the batch, whose future the
        # client shields.
        while lane.in_flight and lane.in_flight[0].future.done():
            self._settle(lane, lane.in_flight[0])

    def _settle(self, lane: _Lane, group: _Group) -> None:
        lane.in_flight.remove(group)
        future = group.future
        error = KafkaError("cancelled") if future.cancelled() else future.exception()
        if error is not None:
            alone = self._alone(lane, group, error)
            self._drop(lane, _BEHIND, group, failure(self._clients, error, alone))
            self._replace(f"another append failed with {words(error)}")
            return
        offset = future.result().offset
        if 0 <= offset <= lane.acked:
            what = f"{lane.partition}:{offset} came after {lane.partition}:{lane.acked}"
            replaced = self._replaced(what)
            self._drop(lane, replaced, group, replaced)
            return
        self._outage.up("appending")
        step = 1
        if offset < 0:
            # The broker knows the batch, but not any more where it stands.
            offset, step = NONE, 0
        else:
            lane.acked = offset + len(group.appends) - 1
        for append in group.appends:
            if append.expect is not None and offset != NONE:
                append.expect.offset = offset
            try:
                append.written(offset)
            except Exception as mistake:
                self._report(mistake)
            offset += step

    def _alone(self, lane: _Lane, group: _Group, error: BaseException) -> Append | None:
        """The group's one append, unless the client has sent others with it: they would all fail
        with one and the same error, in the same turn of the loop."""
        if any(_failed_with(other.future, error) for other in lane.in_flight):
            self._shared = error
        return group.appends[0] if len(group.appends) == 1 and error is not self._shared else None

    def _replace(self, why: str) -> None:
        """Give up the producer: settle all that it has, and go on with a new one."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        task = self._loop.create_task(retire(producer))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        for lane in self._lanes:
            if lane.flusher is not None:
                lane.flusher.cancel()
                lane.flusher = None
            while lane.in_flight:
                group = lane.in_flight[0]
                if group.future.done():
                    self._settle(lane, group)
                    continue
                lane.in_flight.popleft()
                self._drop(lane, _BEHIND, group, unknown(why))
            if lane.queue and lane.flusher is None:
                lane.flusher = self._loop.create_task(self._flush(lane))

    def _drop(
        self,
        lane: _Lane,
        queued: JournalError,
        group: _Group | None = None,
        why: JournalError | None = None,
    ) -> None:
        """Fail a group for its reason, and all that is queued behind it: an append that another
        was to precede must not be written without it."""
        behind = [append for append, _ in lane.queue]
        lane.queue.clear()
        if lane.flusher is not None and lane.flusher is not asyncio.current_task():
            lane.flusher.cancel()
            lane.flusher = None
        told = [(append, why) for append in group.appends] if group is not None and why else []
        for append, error in told + [(append, queued) for append in behind]:
            try:
                append.failed(error)
            except Exception as mistake:
                self._report(mistake)

    def _report(self, error: Exception) -> None:
        """A caller's mistake in one outcome must not keep the others from theirs."""
        what = "an append's outcome could not be told"
        self._loop.call_exception_handler({"message": what, "exception": error})

    # --- deadlines ----------------------------------------------------------------------------

    def _arm(self) -> None:
        self._sweeper = self._loop.call_later(min(1.0, self._deadline_s / 10), self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now = self._loop.time()
        why = f"no acknowledgement within {self._deadline_s:g} s"
        pending = False
        for lane in self._lanes:
            oldest = lane.oldest()
            if oldest is None:
                continue
            pending = True
            if oldest <= now:
                if lane.in_flight:
                    self._replace(why)
                else:
                    self._drop(lane, self._clients.unavailable(f"not written: {why}"))
            elif oldest <= now + self._deadline_s - _SLOW_S:
                self._outage.down("appending", f"no acknowledgement for {_SLOW_S:.0f} s")
        if pending:
            self._arm()

    # --- errors -------------------------------------------------------------------------------

    def _replaced(self, what: str) -> LogReplaced:
        address = self._clients.address
        error = LogReplaced(
            f"topic {address.topic} at {address.brokers} was deleted and made again ({what}); "
            f"restart to use the new one"
        )
        self._refusal = self._refusal or error
        return error


def _failed_with(future: asyncio.Future[Any], error: BaseException) -> bool:
    return future.done() and not future.cancelled() and future.exception() is error
