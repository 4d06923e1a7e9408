"""A log with the faults of a real one, drawn from the seed: Kafka's kind, and the embedded kind.

What a process has handed over is the network's: it arrives when the process is long dead, twice,
late, or not at all, and the process may never hear of it. Knows bytes and offsets; of events only
that an append may carry one, whose outcome it then reports.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from random import Random
from typing import Any

from journal.errors import (
    AppendRefused,
    HistoryTruncated,
    LogReplaced,
    LogUnavailable,
    OutcomeUnknown,
)
from journal.log import NONE, Append, Record
from journal.memory_log import PROCESS, Memory, Process
from tests.simulation.faults import Faults
from tests.simulation.loop import NOBODY, Loop

Note = Callable[..., None]


class Topic(Memory):
    """The partitions. Each `connect` to it opens a handle for the process that does."""

    def __init__(
        self,
        loop: Loop,
        random: Random,
        faults: Faults,
        note: Note,
        watch: Callable[[Append], None],
    ) -> None:
        super().__init__()
        self.loop = loop
        self.random = random
        self.faults = faults
        self.note = note
        self.watch = watch
        self.partitions = faults.partitions
        self.conditional = faults.conditional
        base = random.choice((0, 0, 7)) if not self.conditional else 0
        self.records: list[list[Record]] = [[] for _ in range(self.partitions)]
        self.firsts = [base] * self.partitions
        self.ends = [base] * self.partitions
        self.keyed: list[dict[bytes, list[Record]]] = [
            defaultdict(list) for _ in range(self.partitions)
        ]
        self.tails: set[Any] = set()
        self.news: dict[asyncio.Future[None], None] = {}
        self.down_until = 0.0

    def handle(self) -> Any:
        return SimulatedLog(self, PROCESS.get() or Process())

    def put(self, partition: int, append: Append, how: str) -> int | AppendRefused:
        """Write one record now. The offset, or why a conditional log has not."""
        of_key = self.keyed[partition][append.key]
        cursor = append.expect if self.conditional else None
        if cursor is not None:
            head = of_key[-1].offset if of_key else NONE
            if cursor.broken or cursor.offset != head:
                cursor.broken = True
                return AppendRefused("others have appended to the key; read that first")
        offset = self.ends[partition]
        if self.random.random() < self.faults.holes:
            offset += self.random.randint(1, 3)
        record = Record(offset, append.key, append.value, append.timestamp_ms)
        self.records[partition].append(record)
        of_key.append(record)
        self.ends[partition] = offset + 1
        if cursor is not None:
            cursor.offset = offset
        self.note(how, partition, offset, append)
        for future in list(self.news):
            if not future.done():
                future.set_result(None)
        return offset

    def from_(self, partition: int, start: int) -> list[Record]:
        records = self.records[partition]
        low, high = 0, len(records)
        while low < high:
            middle = (low + high) // 2
            if records[middle].offset < start:
                low = middle + 1
            else:
                high = middle
        return records[low:]


class _Sent:
    """Appends that went out together."""

    __slots__ = ("appends", "timer")

    def __init__(self, appends: list[Append]) -> None:
        self.appends = appends
        self.timer: Any = None


class _Lane:
    """One partition's appends of one process, in order."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.queue: deque[Append] = deque()
        self.in_flight: list[_Sent] = []
        self.flushing = False
        self.arrives = 0.0
        self.answers = 0.0


class SimulatedLog:
    """A process's handle on a `Topic`: the log of `journal.log`."""

    def __init__(self, topic: Topic, process: Process) -> None:
        self.url = topic.url
        self.conditional = topic.conditional
        self.partitions = topic.partitions
        self._topic = topic
        self._faults = topic.faults
        self._loop = topic.loop
        self._process = process
        self._lanes = [_Lane(p) for p in range(self.partitions)]
        self._closed = False

    # --- appending ------------------------------------------------------------------------------

    def append(self, partition: int, append: Append) -> None:
        if self._process.dead is not None:
            return
        if self._closed:
            self._loop.call_soon(append.failed, LogUnavailable("the log is closed"))
            return
        self._topic.watch(append)
        lane = self._lanes[partition]
        lane.queue.append(append)
        if not lane.flushing:
            lane.flushing = True
            self._loop.call_soon(self._flush, lane)

    def _flush(self, lane: _Lane) -> None:
        count = min(len(lane.queue), self._faults.group())
        sent = _Sent([lane.queue.popleft() for _ in range(count)])
        lane.flushing = bool(lane.queue)
        if lane.flushing:
            self._loop.call_soon(self._flush, lane)
        if not sent.appends:
            return
        lane.in_flight.append(sent)
        lane.arrives = max(lane.arrives, self._loop.now + self._faults.delay())
        fate = self._faults.fate()
        if fate != "fine":
            self._topic.note("fate", fate, sent.appends)
        self._network(lane.arrives, self._arrives, lane, sent, fate)
        sent.timer = self._loop.call_later(self._faults.deadline_s, self._gives_up, lane, sent)

    def _network(self, when: float, function: Any, *args: Any) -> None:
        self._loop.call_at(when, function, *args, context=NOBODY)

    def _arrives(self, lane: _Lane, sent: _Sent, fate: str) -> None:
        now, faults = self._loop.now, self._faults
        if self._topic.down_until > now:
            self._network(self._topic.down_until, self._arrives, lane, sent, fate)
            return
        if fate == "refused":
            self._answers(lane, sent, None)
        elif fate == "late":
            self._network(now + faults.long_delay(), self._late, lane, sent)
            self._hangs_up(lane, sent)
        elif fate == "lost":
            self._hangs_up(lane, sent)
        else:
            outcomes = self._put(lane, sent, "written")
            if fate == "unheard":
                self._hangs_up(lane, sent)
                return
            self._answers(lane, sent, outcomes)
            if fate == "twice":
                self._network(now + faults.long_delay(), self._late, lane, sent)

    def _put(self, lane: _Lane, sent: _Sent, how: str) -> list[int | AppendRefused]:
        return [self._topic.put(lane.partition, append, how) for append in sent.appends]

    def _late(self, lane: _Lane, sent: _Sent) -> None:
        self._put(lane, sent, "written late")

    def _hangs_up(self, lane: _Lane, sent: _Sent) -> None:
        """Nobody answers; now and then an error says so before the deadline does."""
        if self._topic.random.random() < 0.7:
            self._tells(self._loop.now + self._faults.delay(), self._gives_up, lane, sent)

    def _answers(self, lane: _Lane, sent: _Sent, outcomes: Any) -> None:
        lane.answers = max(lane.answers, self._loop.now + self._faults.delay())
        self._tells(lane.answers, self._hears, lane, sent, outcomes)

    def _tells(self, when: float, function: Any, *args: Any) -> None:
        context = NOBODY.copy()
        context.run(PROCESS.set, self._process)
        self._loop.call_at(when, function, *args, context=context)

    def _hears(self, lane: _Lane, sent: _Sent, outcomes: list[int | AppendRefused] | None) -> None:
        if sent not in lane.in_flight:
            return
        if outcomes is None:
            self._fails(lane, sent, LogUnavailable("nothing was written"))
            return
        while lane.in_flight[0] is not sent:
            # Answers come in order; one that was lost on the way is known by the next.
            self._fails(lane, lane.in_flight[0], OutcomeUnknown("nobody has answered"))
            if sent not in lane.in_flight:
                return
        lane.in_flight.remove(sent)
        sent.timer.cancel()
        for append, outcome in zip(sent.appends, outcomes, strict=True):
            if isinstance(outcome, int):
                append.written(outcome if self._faults.tells_offset() else NONE)
            else:
                append.failed(outcome)

    def _gives_up(self, lane: _Lane, sent: _Sent) -> None:
        if sent in lane.in_flight:
            self._fails(lane, sent, OutcomeUnknown("nobody has answered"))

    def _fails(self, lane: _Lane, sent: _Sent, why: Exception) -> None:
        """The producer is given up: what is in flight is unknown, what is queued is not written."""
        in_flight, lane.in_flight = lane.in_flight, []
        queued, lane.queue = list(lane.queue), deque()
        lane.arrives = lane.answers = 0.0
        self._topic.note("failed", type(why).__name__, sent.appends)
        for other in in_flight:
            other.timer.cancel()
            error = why if other is sent else OutcomeUnknown("the one before it failed")
            for append in other.appends:
                if append.expect is not None:
                    append.expect.broken = True
                append.failed(error)
        for append in queued:
            if append.expect is not None:
                append.expect.broken = True
            append.failed(LogUnavailable("not written: one before it failed"))

    # --- reading --------------------------------------------------------------------------------

    async def _reached(self) -> Topic:
        delay = self._faults.read_delay()
        await asyncio.sleep(delay)
        if self._process.dead is not None:
            raise self._process.dead
        if self._closed or self._faults.unavailable():
            raise LogUnavailable("the log does not answer")
        return self._topic

    async def read(
        self, partition: int, start: int, end: int | None = None
    ) -> AsyncIterator[list[Record]]:
        topic = await self._reached()
        end = topic.ends[partition] if end is None else min(end, topic.ends[partition])
        self._check(partition, start)
        while True:
            records = topic.from_(partition, start)[: self._faults.batch()]
            records = [record for record in records if record.offset < end]
            if not records:
                return
            yield records
            start = records[-1].offset + 1
            await self._reached()

    def _check(self, partition: int, start: int) -> None:
        if start < self._topic.firsts[partition]:
            raise HistoryTruncated(f"{partition}:{start} is gone")
        if start > self._topic.ends[partition]:
            raise LogReplaced(f"{partition}:{start} is not there yet")

    async def read_key(self, partition: int, key: bytes, start: int = 0) -> list[Record]:
        topic = await self._reached()
        found = [r for r in topic.keyed[partition].get(key, ()) if r.offset >= start]
        if found and self._faults.slow_read():
            await self._reached()
        return found

    async def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        topic = self._topic
        self._check(partition, max(start, topic.firsts[partition]))
        while True:
            await asyncio.sleep(self._faults.read_delay())
            if self._process.dead is not None:
                raise self._process.dead
            if self._closed:
                raise LogUnavailable("the log is closed")
            records = topic.from_(partition, start)[: self._faults.batch()]
            if records:
                yield records
                start = records[-1].offset + 1
                continue
            future: asyncio.Future[None] = self._loop.create_future()
            topic.news[future] = None
            try:
                await future
            finally:
                topic.news.pop(future, None)

    async def offset_at(self, partition: int, timestamp_ms: int) -> int:
        topic = await self._reached()
        found = (r.offset for r in topic.records[partition] if r.timestamp_ms >= timestamp_ms)
        return next(found, topic.ends[partition])

    async def starts(self) -> Mapping[int, int]:
        return dict(enumerate((await self._reached()).firsts))

    async def ends(self) -> Mapping[int, int]:
        return dict(enumerate((await self._reached()).ends))

    async def truncate(self, partition: int, before: int) -> None:
        raise AssertionError("nobody truncates here: no command of ours does it yet")

    async def close(self) -> None:
        for lane in self._lanes:
            while not self._closed and (lane.in_flight or lane.queue):
                if self._process.dead is not None:
                    break
                await asyncio.sleep(0.5)
        self._closed = True
