"""The embedded log against what it is built on: bare SQLite inserts with the same settings.

Three floors: single inserts; a bare group commit, in which callers on an event loop wait for
one thread that commits whatever has queued up; and groups in a thread with nobody waiting,
which is what SQLite itself can do. Run `python -m benchmarks.floor_sqlite [DIRECTORY]`. Floors
and log take turns, and each figure is the median of the rounds. Knows `journal.sqlite_log`
only; nothing of events or tasks.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import apsw

from journal.log import Append, append_and_wait
from journal.sqlite_file import PAGE_BYTES, SCHEMA, connect
from journal.sqlite_log import SqliteLog

ROUNDS = 4
ALONE = 2_000
TASKS = 100
EACH = 1_000
SQLITE_PAGE_BYTES = 4_096
VALUE = b"x" * 1024
VALUES = (VALUE,)
ROW = "INSERT INTO records (key, timestamp_ms, prev, value) VALUES "


class Waiting(Append):
    """The least that an awaiting caller needs."""

    __slots__ = ("future",)
    future: asyncio.Future[int]

    def written(self, offset: int) -> None:
        """Wake the caller."""
        self.future.set_result(offset)

    def failed(self, error: Exception) -> None:
        """Wake the caller."""
        self.future.set_exception(error)


def bare(path: Path, page_bytes: int) -> apsw.Connection:
    """A connection to a new file of the log's own schema and durability."""
    db = apsw.Connection(str(path))
    db.pragma("page_size", page_bytes)
    db.execute(SCHEMA)
    db.close()
    return connect(str(path))


def floor_alone(path: Path, values: Sequence[bytes] = VALUES) -> list[float]:
    """Seconds of each of `ALONE` inserts, one after another, each with its own commit."""
    db = bare(path, PAGE_BYTES)
    times = []
    for value in itertools.islice(itertools.cycle(values), ALONE):
        start = time.perf_counter()
        db.execute(ROW + "(?,?,?,?)", (b"task", 0, -1, value))
        times.append(time.perf_counter() - start)
    db.close()
    return times


async def floor_callers(path: Path, tasks: int, seconds: float, values: Sequence[bytes]) -> float:
    """Records/s of a bare group commit: so many callers, each waiting for every append."""
    db = bare(path, PAGE_BYTES)
    loop = asyncio.get_running_loop()
    waiting: queue.SimpleQueue[tuple[bytes, bytes, asyncio.Future[None]] | None]
    waiting = queue.SimpleQueue()

    def done(futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            future.set_result(None)

    def commit() -> None:
        while (item := waiting.get()) is not None:
            group = [item]
            while not waiting.empty() and (more := waiting.get()) is not None:
                group.append(more)
            db.execute("BEGIN IMMEDIATE")
            db.executemany(ROW + "(?,?,?,?)", [(key, 0, -1, value) for key, value, _ in group])
            db.execute("COMMIT")
            loop.call_soon_threadsafe(done, [future for _, _, future in group])

    count = 0

    async def task(key: bytes) -> None:
        nonlocal count
        for value in itertools.cycle(values):
            future = loop.create_future()
            waiting.put((key, value, future))
            await future
            count += 1
            if time.perf_counter() > start + seconds:
                return

    thread = threading.Thread(target=commit)
    thread.start()
    start = time.perf_counter()
    await asyncio.gather(*(task(b"task-%d" % number) for number in range(tasks)))
    rate = count / (time.perf_counter() - start)
    waiting.put(None)
    await asyncio.to_thread(thread.join)
    db.close()
    return rate


def floor_groups(
    path: Path, page_bytes: int, tasks: int = TASKS, values: Sequence[bytes] = VALUES
) -> float:
    """Records/s of inserts in groups of `tasks`, in a thread, with nobody waiting for them."""
    db = bare(path, page_bytes)
    keys = [b"task-%d" % task for task in range(tasks)]
    took = 0.0

    def work() -> None:
        nonlocal took
        turn = itertools.cycle(values)
        start = time.perf_counter()
        for _ in range(EACH):
            db.execute("BEGIN IMMEDIATE")
            db.executemany(ROW + "(?,?,?,?)", [(key, 0, -1, next(turn)) for key in keys])
            db.execute("COMMIT")
        took = time.perf_counter() - start

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    db.close()
    return tasks * EACH / took


async def log_alone(path: Path) -> list[float]:
    """Seconds of each of `ALONE` appends of one task."""
    log = await SqliteLog.open(path, create=True)
    times = []
    for _ in range(ALONE):
        start = time.perf_counter()
        await append_and_wait(log, 0, b"task", VALUE, 0)
        times.append(time.perf_counter() - start)
    await log.close()
    return times


async def log_groups(path: Path) -> tuple[float, list[float]]:
    """(records/s of `TASKS` tasks that each wait for every append, seconds of each append)."""
    log = await SqliteLog.open(path, create=True)
    loop = asyncio.get_running_loop()
    times: list[float] = []

    async def task(key: bytes) -> None:
        for _ in range(EACH):
            append = Waiting(key, VALUE, 0)
            append.future = loop.create_future()
            start = time.perf_counter()
            log.append(0, append)
            await append.future
            times.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(task(b"task-%d" % number) for number in range(TASKS)))
    rate = TASKS * EACH / (time.perf_counter() - start)
    await log.close()
    return rate, times


def p(times: list[float], percent: int) -> float:
    """A percentile in milliseconds."""
    return statistics.quantiles(times, n=100)[percent - 1] * 1e3


def main() -> None:
    """Print the figures."""
    alone: list[tuple[float, float]] = []
    many: list[tuple[float, float, float]] = []
    tails: list[float] = []
    for number in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
            folder = Path(name)
            floor = p(floor_alone(folder / "a"), 50)
            alone.append((floor, p(asyncio.run(log_alone(folder / "b")), 50)))
            rate = floor_groups(folder / "c", PAGE_BYTES)
            log_rate, times = asyncio.run(log_groups(folder / "d"))
            many.append((rate, floor_groups(folder / "e", SQLITE_PAGE_BYTES), log_rate))
            tails.append(p(times, 99))
        print(
            f"round {number}: alone {alone[-1][0]:.3f} / {alone[-1][1]:.3f} ms; {TASKS} tasks "
            + " / ".join(f"{rate:,.0f}" for rate in many[-1])
        )
    floor, log = (statistics.median(column) for column in zip(*alone, strict=True))
    print(f"one task, p50: bare {floor:.3f} ms, log {log:.3f} ms: {log / floor:.2f} times")
    same, usual, log_rate = (statistics.median(column) for column in zip(*many, strict=True))
    print(
        f"{TASKS} tasks: bare {same:,.0f}/s (with SQLite's own page size {usual:,.0f}/s), log "
        f"{log_rate:,.0f}/s: {log_rate / same:.2f} ({log_rate / usual:.2f}); "
        f"p99 {statistics.median(tails):.1f} ms"
    )


if __name__ == "__main__":
    main()
