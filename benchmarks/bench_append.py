"""`record_step` of about 1 KB, on the embedded log and on Kafka, each beside its floor.

Run `python -m benchmarks.bench_append [embedded|kafka]`. Floor and journal take turns in one
run; each figure is the median of the rounds. The embedded floor is bare SQLite (one fsynced
insert; a bare group commit into the same table with nobody waiting), Kafka's is aiokafka's bare
idempotent `send`, or a bare loop that produces and consumes the same bytes. Partitions: 12.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

import journal
from benchmarks import floor_kafka, floor_sqlite
from journal.kafka_log import KafkaLog
from tests.broker import session_address

ROUNDS = 3
SECONDS = 2.0
TASKS = (1, 10, 100)
DECISION = journal.Decision(
    text="t" * 400,
    tool_calls=[journal.ToolCall("fetch", {"url": "https://example.org/" + "p" * 100}, "call_1")],
    usage=journal.Usage(input_tokens=1200, output_tokens=80),
)
RESULT = "r" * 300


async def recorded(url: str, tasks: int, confirm: str = "always") -> tuple[float, list[float]]:
    """(steps a second, seconds of each) of so many tasks that each record one after another."""
    times: list[float] = []

    async with journal.connect(url, confirm=confirm) as j:
        ready = asyncio.Barrier(tasks)

        async def work(number: int) -> float:
            async with j.task(f"task-{number}-{uuid.uuid4().hex}", "bench") as task:
                await ready.wait()
                begin = time.perf_counter()
                index = 0
                while (start := time.perf_counter()) < begin + SECONDS:
                    await task.record_step(index, DECISION, [RESULT])
                    times.append(time.perf_counter() - start)
                    index += 1
                return time.perf_counter() - begin

        took = max(await asyncio.gather(*(work(number) for number in range(tasks))))
    return len(times) / took, times


def show(name: str, tasks: int, rows: list[tuple[float, float, list[float]]]) -> None:
    """One line: floor and journal in the same unit, their ratio, and the journal's times."""
    ratio = statistics.median(ours / floor for floor, ours, _ in rows)
    floor, ours = (statistics.median(row[i] for row in rows) for i in (0, 1))
    p50, p99 = (statistics.median(floor_sqlite.p(row[2], q) for row in rows) for q in (50, 99))
    print(
        f"{name:18} {tasks:3} tasks: floor {floor:8,.0f}/s, journal {ours:8,.0f}/s, "
        f"ratio {ratio:.2f}; p50 {p50:.2f} ms, p99 {p99:.2f} ms",
        flush=True,
    )


def embedded() -> None:
    """Against bare SQLite."""
    for tasks in TASKS:
        rows = []
        for number in range(ROUNDS):
            with tempfile.TemporaryDirectory() as name:
                bare = Path(name, "bare")
                if tasks == 1:
                    floor = 1 / statistics.median(floor_sqlite.floor_alone(bare))
                else:
                    floor = floor_sqlite.floor_groups(bare, floor_sqlite.PAGE_BYTES)
                rate, times = asyncio.run(recorded(str(Path(name, f"{number}.db")), tasks))
                rows.append((floor, 1 / statistics.median(times) if tasks == 1 else rate, times))
        show("embedded", tasks, rows)


async def kafka(broker: str) -> None:
    """Against bare aiokafka."""
    for confirm, floor in (("once", floor_kafka.floor_once), ("always", floor_kafka.floor_always)):
        for tasks in TASKS:
            rows = []
            for _ in range(ROUNDS):
                topic = f"bench-{uuid.uuid4().hex}"
                url = f"kafka://{broker}/{topic}"
                await (
                    await KafkaLog.open(url, create=True, partitions=floor_kafka.PARTITIONS)
                ).close()
                async with floor(broker, topic) as one:
                    bare, _ = await floor_kafka.rate(one, tasks, floor_kafka.PARTITIONS)
                topic = f"bench-{uuid.uuid4().hex}"
                url = f"kafka://{broker}/{topic}"
                async with journal.connect(url, create=True):
                    pass
                rows.append((bare, *await recorded(url, tasks, confirm)))
            show(f"kafka {confirm}", tasks, rows)


def main() -> None:
    """Print the figures."""
    which = sys.argv[1:] or ["embedded", "kafka"]
    if "embedded" in which:
        embedded()
    if "kafka" in which:
        with session_address() as address:
            asyncio.run(kafka(address))


if __name__ == "__main__":
    main()
