"""The projector against a straight loop that reads the same records and inserts ready-made rows.

Run `python -m benchmarks.bench_projector [EVENTS] [sqlite|kafka ...]`: events/s in batches of
5,000 (default 200,000 events, both logs). Floor and projector take turns on one log, each on a
fresh file; the figures are medians. Kafka needs what `tests/broker` needs, or
JOURNAL_TEST_KAFKA=host:port.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

from journal.genesis import Identity
from journal.log import Log, Record
from projector.folding import Changes, Folder
from projector.runner import BATCH_RECORDS, Runner, _tables
from projector.store import Store
from tests.broker import session_address
from tests.make_events import Writer, pair
from tests.projecting import new_log, put

ROUNDS = 3
TASKS = 200
BYTES = 1_000
PARTITIONS = 12


async def fill(log: Log, events: int) -> None:
    """`TASKS` tasks side by side, each recording steps of about `BYTES`."""
    writers = [Writer(f"task-{n:04d}") for n in range(TASKS)]
    await put(log, [pair(w.start()) for w in writers])
    each = events // TASKS - 1
    for index in range(each):
        await put(log, [pair(w.recorded(index, BYTES)) for w in writers])


async def batches(log: Log) -> list[list[tuple[int, list[Record]]]]:
    """The log cut as the floor reads it, to make its rows beforehand."""
    return [batch async for batch in reading(log)]


async def reading(log: Log):  # type: ignore[no-untyped-def]
    """(partition, records) lists of `BATCH_RECORDS` records."""
    parts: list[tuple[int, list[Record]]] = []
    count = 0
    starts = await log.starts()
    for partition in range(log.partitions):
        async for records in log.read(partition, starts[partition]):
            parts.append((partition, records))
            count += len(records)
            if count >= BATCH_RECORDS:
                yield parts
                parts, count = [], 0
    if parts:
        yield parts


def ready_made(identity: Identity, cut: list[list[tuple[int, list[Record]]]]) -> list[Changes]:
    """The rows of each batch: what the floor inserts without having folded anything."""
    folder = Folder(identity, lambda _: {})
    return [folder.fold(parts) for parts in cut]


async def floor(log: Log, identity: Identity, db: Path, changes: list[Changes]) -> float:
    """Seconds of reading every record and inserting ready-made rows with offsets."""
    store = Store.open(str(db), identity.journal_id)
    start = time.perf_counter()
    number = 0
    async for _ in reading(log):
        store.write(changes[number], _tables(changes[number]))
        number += 1
    seconds = time.perf_counter() - start
    store.close()
    return seconds


async def projector(log: Log, identity: Identity, db: Path) -> float:
    """Seconds of the whole projection."""
    runner = Runner(log, identity, lambda: Store.open(str(db), identity.journal_id))
    start = time.perf_counter()
    await runner.run(follow=False)
    seconds = time.perf_counter() - start
    await runner.close()
    return seconds


async def measure(name: str, url: str, events: int) -> None:
    """Fill one log, then take turns."""
    log, identity = await new_log(url, PARTITIONS)
    await fill(log, events)
    total = sum((await log.ends()).values()) - log.partitions
    changes = ready_made(identity, await batches(log))
    gc.collect()
    gc.freeze()
    figures: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            bare = total / await floor(log, identity, Path(folder, "floor.duckdb"), changes)
        with tempfile.TemporaryDirectory() as folder:
            ours = total / await projector(log, identity, Path(folder, "runs.duckdb"))
        figures.append((bare, ours))
    await log.close()
    bare, ours = (statistics.median(column) for column in zip(*figures, strict=True))
    ratio = statistics.median(ours / bare for bare, ours in figures)
    print(
        f"{name}: {total:,} events; floor {bare:,.0f}/s, projector {ours:,.0f}/s: {ratio:.2f}",
        flush=True,
    )


def main() -> None:
    """Print the figures."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    logs = sys.argv[2:] or ["sqlite", "kafka"]
    if "sqlite" in logs:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure("sqlite", str(Path(folder, "journal.db")), events))
    if "kafka" in logs:
        with session_address() as address:
            url = f"kafka://{address}/bench-{uuid.uuid4().hex}"
            asyncio.run(measure("kafka", url, events))


if __name__ == "__main__":
    main()
