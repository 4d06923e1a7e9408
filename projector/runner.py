"""From the log to the tables: reads, folds and writes, batch by batch.

While one batch is committed the next is read and folded. What has been folded counts only when
its COMMIT has returned: after any failure the memory is dropped, and states and offsets are read
again from the file. Knows no SQL and no command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from journal.codec import decode_event
from journal.errors import (
    BadRecord,
    DiskFailed,
    DiskFull,
    HistoryTruncated,
    LogReplaced,
    ProjectionDamaged,
    ProjectionError,
)
from journal.genesis import Identity
from journal.log import Log, Record
from journal.resume import checksum
from projector.entries import Offset
from projector.folding import MEMORY_BYTES, Changes, Folder
from projector.intake import Intake, Part
from projector.rows import COLUMNS
from projector.store import Store

BATCH_RECORDS = 5_000
SWITCH_SECONDS = 0.0001
RETRIES = 5
RETRY_SECONDS = 1.0
_READERS = 2
"""Partitions that who reads to the end reads at a time, so that one is fetched while another is
taken in. Fewer make fewer tasks in a batch, and fewer rows to replace."""

_FREEZE_RECORDS = 1_000
_LABEL = list(COLUMNS["anomalies"]).index("label")

_log = logging.getLogger("projector")

_Span = tuple[int, int, int | None]
"""A partition, and the offsets to read it from and to; None to follow it."""


class Written(Struct):
    """A committed batch: its records, the events among them that were accepted, its anomalies by
    label, and the seconds that folding and writing took."""

    records: int
    events: int
    anomalies: dict[str, int]
    seconds: float


class Runner:
    """Folds `log` into the store that `open_store` opens, from where that stands.

    `store` is the open store, None while there is none; other threads may read through it.
    `on_written` is told of each committed batch.
    """

    def __init__(
        self,
        log: Log,
        identity: Identity,
        open_store: Callable[[], Store],
        *,
        store: Store | None = None,
        batch_records: int = BATCH_RECORDS,
        memory_bytes: int = MEMORY_BYTES,
        retry_s: float = RETRY_SECONDS,
        on_written: Callable[[Written], None] | None = None,
    ) -> None:
        self.store = store
        self.written = 0
        """Records in committed batches, since this runner began."""
        self._log = log
        self._identity = identity
        self._open_store = open_store
        self._batch_records = batch_records
        self._memory_bytes = memory_bytes
        self._retry_s = retry_s
        self._on_written = on_written

    async def run(self, *, follow: bool, stop: asyncio.Event | None = None) -> None:
        """Fold up to the end as of now or, to `follow`, until `stop` is set.

        Raises `EventTooNew` once what came before that event is committed, `LogReplaced` and
        `HistoryTruncated` where the log is not the one that the store has read, and
        `ProjectionError` where the file cannot be written, after some tries; `DiskFull`,
        `DiskFailed` and `ProjectionDamaged` at once.
        """
        stop = stop or asyncio.Event()
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        failures = 0
        try:
            while True:
                written = self.written
                try:
                    if self.store is None:
                        self.store = await asyncio.to_thread(self._open_store)
                    await self._attempt(self.store, follow, stop)
                    return
                except (DiskFailed, DiskFull, ProjectionDamaged):
                    raise
                except ProjectionError as error:
                    failures = failures + 1 if self.written == written else 1
                    if failures > RETRIES or self.store is None:
                        raise
                    _log.warning("%s; reading the file again", error)
                    await self.close()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), self._retry_s * failures)
        finally:
            sys.setswitchinterval(before)

    async def close(self) -> None:
        """Close the store."""
        store, self.store = self.store, None
        if store is not None:
            await asyncio.to_thread(store.close)

    # --- one life of the memory ---------------------------------------------------------------

    async def _attempt(self, store: Store, follow: bool, stop: asyncio.Event) -> None:
        starts = await self._starts(store)
        if follow:
            shares: list[list[_Span]] = [[(p, start, None)] for p, start in starts.items()]
        else:
            ends = await self._log.ends()
            spans: list[_Span] = [(p, start, ends[p]) for p, start in starts.items()]
            shares = [spans[n::_READERS] for n in range(min(_READERS, len(spans)))]
        intake = Intake(len(shares), self._batch_records, follow)
        feeds = [asyncio.create_task(self._feed(intake, share)) for share in shares]
        feeds.append(asyncio.create_task(_tell(intake, stop)))
        try:
            await self._pump(store, intake)
        finally:
            for feed in feeds:
                feed.cancel()
            await asyncio.wait(feeds)

    async def _pump(self, store: Store, intake: Intake) -> None:
        loop = asyncio.get_running_loop()
        folder = Folder(self._identity, store.load, self._memory_bytes)
        writing: tuple[asyncio.Future[float], Written] | None = None
        committed = 0

        async def settle() -> None:
            nonlocal writing, committed
            if writing is not None:
                (future, batch), writing = writing, None
                batch.seconds += await future
                committed += 1
                self.written += batch.records
                if self._on_written is not None:
                    self._on_written(batch)

        with (
            ThreadPoolExecutor(1, "projector-fold") as fold_thread,
            ThreadPoolExecutor(1, "projector-write") as write_thread,
        ):
            while folder.stopped is None:
                if intake.idle:
                    await settle()
                parts = await intake.batch()
                if not parts:
                    break
                with intake.held():
                    changes, tables, batch = await loop.run_in_executor(
                        fold_thread, _fold, folder, parts, committed
                    )
                await settle()
                future = loop.run_in_executor(write_thread, _write, store, changes, tables)
                writing = future, batch
            await settle()
        if folder.stopped is not None:
            raise folder.stopped
        if intake.error is not None:
            raise intake.error

    async def _feed(self, intake: Intake, share: Sequence[_Span]) -> None:
        for partition, start, end in share:
            reading = (
                self._log.tail(partition, start)
                if end is None
                else self._log.read(partition, start, end)
            )
            try:
                async with contextlib.aclosing(reading) as batches:  # type: ignore[type-var]
                    async for records in batches:
                        await intake.put((partition, records))
            except HistoryTruncated as error:
                await intake.put((partition, _deleted(f"{self._log.url}: {error}")))
                return
            except Exception as error:
                await intake.put((partition, error))
                return
        await intake.put((partition, None))

    # --- where to begin -----------------------------------------------------------------------

    async def _starts(self, store: Store) -> dict[int, int]:
        """Partition to the offset to go on at, once the log is seen to be the same."""
        known = await asyncio.to_thread(store.offsets)
        first = await self._log.starts()
        fresh = [p for p in range(self._identity.partitions) if p not in known]
        if fresh:
            rows = [(p, first[p], None, None, self._identity.journal_id) for p in fresh]
            changes = Changes({"offsets": list(rows)}, partitions=fresh)
            await asyncio.to_thread(store.write, changes, _tables(changes))
            known = await asyncio.to_thread(store.offsets)
        for partition, offset in known.items():
            await self._same(partition, offset, first[partition])
        return {p: offset.next_offset for p, offset in known.items()}

    async def _same(self, partition: int, known: Offset, first: int) -> None:
        """Compare the last record that was read. Raises `LogReplaced`, `HistoryTruncated`."""
        last = known.next_offset - 1
        if known.next_offset < first:
            raise _deleted(
                f"{self._log.url}: {partition}:{known.next_offset} was to be read next and has "
                f"been deleted"
            )
        if known.last_checksum is None or last < first:
            return
        record: Record | None = None
        async for batch in self._log.read(partition, last, last + 1):
            record = batch[0]
        same = record is not None and checksum(record.value) == known.last_checksum
        if not same or record is None or _id(record) != known.last_id:
            raise LogReplaced(
                f"{self._log.url}: the record at {partition}:{last} is not the one that was read "
                f"before; the log was replaced: name another file with --db"
            )


async def _tell(intake: Intake, stop: asyncio.Event) -> None:
    await stop.wait()
    intake.stop()


def _write(store: Store, changes: Changes, tables: dict[str, Any]) -> float:
    """The seconds that it took."""
    began = time.perf_counter()
    store.write(changes, tables)
    return time.perf_counter() - began


def _fold(
    folder: Folder, parts: Sequence[Part], committed: int
) -> tuple[Changes, dict[str, Any], Written]:
    began = time.perf_counter()
    # Nothing here makes cycles, and looking for them in all the states costs more than folding.
    collecting = gc.isenabled()
    gc.disable()
    try:
        folder.written(committed)
        changes = folder.fold(parts)
        tables = _tables(changes)
        labels = Counter(row[_LABEL] for row in changes.rows["anomalies"])
        seconds = time.perf_counter() - began
        return (
            changes,
            tables,
            Written(changes.records, len(changes.rows["events"]), labels, seconds),
        )
    finally:
        if sum(len(records) for _, records in parts) >= _FREEZE_RECORDS:
            # What is kept is kept for long: no later collection needs to look at it.
            gc.freeze()
        if collecting:
            gc.enable()


def _tables(changes: Changes) -> dict[str, Any]:
    from projector.arrow import table

    return {name: table(name, rows) for name, rows in changes.rows.items() if rows}


def _deleted(what: str) -> HistoryTruncated:
    return HistoryTruncated(f"{what}; move the database away and run the projector again")


def _id(record: Record) -> str | None:
    try:
        return decode_event(record.value, record.key).id
    except BadRecord:
        return None
