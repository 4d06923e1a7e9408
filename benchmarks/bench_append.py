"""`record_step` of about 1 KB, on the embedded log and on Kafka, each beside its floor.

Run `python -m benchmarks.bench_append [embedded|kafka]`. Floor and journal take turns in one
run; each figure is the median of the rounds. All write the same bytes: the floors write values
that `record_step` has written before. The embedded floor is bare SQLite: one fsynced insert for
one task, else a bare group commit into the same table, with callers that wait and without.
Kafka's is aiokafka's bare idempotent `send`, or a bare loop that produces and consumes. It has 12
partitions.
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
VALUES = 2_000
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
            async with j.task(_task_id(number), "bench") as task:
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


async def recorded_bytes() -> list[bytes]:
    """Records as `record_step` writes them: what the floors write too."""
    with tempfile.TemporaryDirectory() as folder:
        async with journal.connect(str(Path(folder, "journal.db"))) as j:
            async with j.task(_task_id(0), "bench") as task:
                for index in range(VALUES):
                    await task.record_step(index, DECISION, [RESULT])
            values = [r.value or b"" async for batch in j.log.read(0, 0) for r in batch]
    return values[-VALUES:]


def _task_id(number: int) -> str:
    return f"task-{number:03d}-{uuid.uuid4().hex}"


def show(name: str, tasks: int, rows: list[tuple[list[float], float, list[float]]]) -> None:
    """One line: floors and journal in the same unit, their ratios, and the journal's times."""
    ours = statistics.median(row[1] for row in rows)
    floors = [statistics.median(column) for column in zip(*(row[0] for row in rows), strict=True)]
    ratios = [
        statistics.median(row[1] / row[0][which] for row in rows) for which in range(len(floors))
    ]
    p50, p99 = (statistics.median(floor_sqlite.p(row[2], q) for row in rows) for q in (50, 99))
    beside = "; ".join(
        f"floor {floor:,.0f}/s, ratio {ratio:.2f}"
        for floor, ratio in zip(floors, ratios, strict=True)
    )
    print(
        f"{name:12} {tasks:3} tasks: journal {ours:,.0f}/s; {beside}; "
        f"p50 {p50:.2f} ms, p99 {p99:.2f} ms",
        flush=True,
    )


def embedded(values: list[bytes]) -> None:
    """Against bare SQLite: for many tasks first with callers that wait, then without any."""
    for tasks in TASKS:
        rows = []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as name:
                bare = [Path(name, "bare-1"), Path(name, "bare-2")]
                if tasks == 1:
                    floors = [1 / statistics.median(floor_sqlite.floor_alone(bare[0], values))]
                else:
                    page = floor_sqlite.PAGE_BYTES
                    floors = [
                        asyncio.run(floor_sqlite.floor_callers(bare[0], tasks, SECONDS, values)),
                        floor_sqlite.floor_groups(bare[1], page, tasks, values),
                    ]
                rate, times = asyncio.run(recorded(str(Path(name, "journal.db")), tasks))
                rows.append((floors, 1 / statistics.median(times) if tasks == 1 else rate, times))
        show("embedded", tasks, rows)


async def kafka(broker: str, values: list[bytes]) -> None:
    """Against bare aiokafka."""
    key, headers = _task_id(0).encode(), [("type", b"StepCompleted"), ("v", b"2")]
    for confirm, floor in (("once", floor_kafka.floor_once), ("always", floor_kafka.floor_always)):
        for tasks in TASKS:
            rows = []
            for _ in range(ROUNDS):
                topic = f"bench-{uuid.uuid4().hex}"
                url = f"kafka://{broker}/{topic}"
                await (
                    await KafkaLog.open(url, create=True, partitions=floor_kafka.PARTITIONS)
                ).close()
                async with floor(broker, topic, key, headers) as one:
                    bare, _ = await floor_kafka.rate(one, tasks, floor_kafka.PARTITIONS, values)
                topic = f"bench-{uuid.uuid4().hex}"
                url = f"kafka://{broker}/{topic}"
                async with journal.connect(url, create=True):
                    pass
                rows.append(([bare], *await recorded(url, tasks, confirm)))
            show(f"kafka {confirm}", tasks, rows)


def main() -> None:
    """Print the figures."""
    which = sys.argv[1:] or ["embedded", "kafka"]
    values = asyncio.run(recorded_bytes())
    print(f"records of {len(values[0]):,} bytes")
    if "embedded" in which:
        embedded(values)
    if "kafka" in which:
        with session_address() as address:
            asyncio.run(kafka(address, values))


if __name__ == "__main__":
    main()
