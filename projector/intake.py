"""What the feeds have read of their partitions, put together into batches.

Knows neither the log nor what becomes of a batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from journal.log import Record

BATCH_BYTES = 32 << 20
_QUEUE = 12
"""Reads that wait to be folded; each is of at most about 1,000 records."""

Part = tuple[int, list[Record]]
_Item = tuple[int, list[Record] | Exception | None]
"""A partition with what was read from it: records or an error; None when a feed is done."""

_STOP = -1


class Intake:
    """Puts together what the feeds have read."""

    def __init__(self, feeds: int, batch_records: int, follow: bool) -> None:
        self.error: Exception | None = None
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(_QUEUE)
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._feeds = feeds
        self._batch_records = batch_records
        self._follow = follow
        self._over = False

    @property
    def idle(self) -> bool:
        """Whether what has been folded should be written before more comes."""
        return self._follow and self._queue.empty()

    async def put(self, item: _Item) -> None:
        """Take what a feed has read; returns when it may read on."""
        await self._queue.put(item)
        await self._may_read.wait()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Who reads to the end reads no further in the block, which folds.

        A Kafka client lets go of the interpreter's lock for each record batch that it unpacks,
        and takes it back from the fold: both wait for that, many times a second, for nothing,
        as only one of them can run.
        """
        if not self._follow:
            self._may_read.clear()
        try:
            yield
        finally:
            self._may_read.set()

    def stop(self) -> None:
        """No further batch: what has been read and not been folded waits for the next run."""
        self._over = True
        # Whoever waits for more is woken; where the queue is full, nobody does.
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait((_STOP, None))

    async def batch(self) -> list[Part]:
        """The next batch; empty when there is no more, after an error, or when stopped."""
        parts: list[Part] = []
        records = size = 0
        while self._feeds and not self._over:
            if records >= self._batch_records or size >= BATCH_BYTES:
                break
            # Who follows waits for nothing; who reads to the end fills each batch.
            if parts and self._follow and self._queue.empty():
                break
            partition, item = await self._queue.get()
            if partition == _STOP:
                self._over = True
            elif item is None:
                self._feeds -= 1
            elif isinstance(item, Exception):
                self.error, self._over = item, True
            else:
                parts.append((partition, item))
                records += len(item)
                size += sum([len(record.value or b"") for record in item])
        return parts
