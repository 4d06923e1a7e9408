"""The projector against a straight loop that reads the same records and inserts ready-made rows.

Run `python -m benchmarks.bench_projector [EVENTS] [sqlite|kafka ...]`: events/s in batches of
5,000 (default 200,000 events, both logs). Floor and projector take turns on one log, each on a
fresh file; the figures are medians. Kafka needs what `tests/broker` needs, or
JOURNAL_TEST_KAFKA=host:port.

The floor is one thread without a fold: it reads partition after partition and writes, through
the same `Store`, the very rows, deletions and transactions of a projector's run before. Both
begin with an empty file open, and end when their last COMMIT has returned.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from journal.genesis import Identity
from journal.log import Log
from projector.folding import Changes
from projector.runner import Runner, _tables
from projector.store import Store
from tests.broker import session_address
from tests.make_events import Writer, pair
from tests.projecting import new_log, put

ROUNDS = 5
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


class Recorder(Store):
    """A store that keeps what is written through it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.batches: list[Changes] = []

    def write(self, changes: Changes, tables: dict[str, Any]) -> None:
        super().write(changes, tables)
        self.batches.append(changes)


async def floor(log: Log, store: Store, batches: list[Changes]) -> float:
    """Seconds of reading every record and writing the rows of each batch once it is read."""
    start = time.perf_counter()
    waiting = deque(batches)
    read = 0
    starts = await log.starts()
    for partition in range(log.partitions):
        async for records in log.read(partition, starts[partition]):
            read += len(records)
            while waiting and read >= waiting[0].records:
                changes = waiting.popleft()
                store.write(changes, _tables(changes))
                read -= changes.records
    assert not waiting
    return time.perf_counter() - start


async def projector(log: Log, store: Store, identity: Identity) -> float:
    """Seconds of the whole projection."""
    times = [time.perf_counter()]
    runner = Runner(
        log,
        identity,
        lambda: store,
        store=store,
        on_written=lambda _: times.append(time.perf_counter()),
    )
    await runner.run(follow=False)
    return times[-1] - times[0]


S = TypeVar("S", bound=Store)


@contextmanager
def fresh(kind: type[S], identity: Identity) -> Iterator[S]:
    """An open, empty file."""
    with tempfile.TemporaryDirectory() as folder:
        store = kind.open(str(Path(folder, "runs.duckdb")), identity.journal_id)
        try:
            yield store
        finally:
            store.close()


async def measure(name: str, url: str, events: int) -> None:
    """Fill one log, then take turns."""
    log, identity = await new_log(url, PARTITIONS)
    await fill(log, events)
    total = sum((await log.ends()).values()) - log.partitions
    with fresh(Recorder, identity) as recorder:
        await projector(log, recorder, identity)
    gc.collect()
    gc.freeze()
    figures: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        with fresh(Store, identity) as store:
            bare = total / await floor(log, store, recorder.batches)
        with fresh(Store, identity) as store:
            ours = total / await projector(log, store, identity)
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
