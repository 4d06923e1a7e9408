"""The trace context on events, without a recorder of spans: named, found, inherited, kept."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracerProvider

import journal
import projector
from journal.errors import UsageError
from journal.events import Decision, TaskStarted, ToolCall
from tests.projecting import project

Connect = Callable[..., journal.Journal]
FIRST, SECOND, THIRD = (f"00-{n:032x}-{n:016x}-01" for n in (1, 2, 3))


@pytest.fixture
def bare(connect: Connect) -> Callable[[], journal.Journal]:
    """Connects with a provider that records no span."""
    return lambda: connect(tracer_provider=NoOpTracerProvider())


async def carried(j: journal.Journal, task_id: str = "t") -> list[tuple[str, str | None]]:
    return [(event.type, event.traceparent) async for _, event in j.events(task_id)]


async def inc(x: int) -> int:
    return x + 1


async def test_every_event_carries_the_named_one(bare: Connect) -> None:
    async with bare() as j:
        async with j.task("t", "d", traceparent=FIRST) as task:
            assert task.traceparent == FIRST
            async with task.step() as step:
                await step.decide(lambda: Decision(tool_calls=[ToolCall("inc", {"x": 1})]))
                await step.call(inc, x=1)
            await task.run(inc, 1)
            await task.receive("hello")
            await task.complete("done")
        events = await carried(j)
        assert {text for _, text in events} == {FIRST}
        assert len(events) == 8
        async with j.task("t") as task:
            assert task.traceparent == FIRST


async def test_a_resumption_goes_on_in_the_last_one_named(bare: Connect) -> None:
    async with bare() as j:
        for named, expected in ((FIRST, FIRST), (None, FIRST), (SECOND, SECOND), (None, SECOND)):
            async with j.task("t", "d", traceparent=named) as task:
                await task.record_step(task.state.current_step, "seen")
                assert task.traceparent == expected
        assert [text for _, text in await carried(j)] == [FIRST] * 4 + [SECOND] * 4


async def test_a_retry_keeps_it_or_has_its_own(bare: Connect) -> None:
    async with bare() as j:
        async with j.task("t", "d", traceparent=FIRST) as task:
            await task.fail("no")
        await j.retry("t")
        async with j.task("t") as task:
            assert task.traceparent == FIRST
            await task.fail("no")
        with TracerProvider().get_tracer("test").start_as_current_span("of an operator") as span:
            await j.retry("t")
        async with j.task("t") as task:
            assert task.traceparent is not None
            assert f"{span.get_span_context().span_id:016x}" in task.traceparent


async def test_a_child_inherits_it(bare: Connect) -> None:
    async def work(child: journal.Task) -> str | None:
        return child.traceparent

    async with bare() as j:
        async with j.task("p", "d", traceparent=FIRST) as task:
            assert await task.subtask("c", work) == FIRST
        assert {text for _, text in await carried(j, "p:c")} == {FIRST}


async def test_what_comes_from_outside_carries_its_own(bare: Connect) -> None:
    async with bare() as j:
        async with j.task("t", "d", traceparent=FIRST) as task:
            await j.send("t", "one")
            await j.send("t", "two", traceparent=SECOND)
            await task.look()
            await j.cancel("t", traceparent=THIRD)
        events = await carried(j)
    assert [text for type, text in events if type == "MessageReceived"] == [None, SECOND]
    assert [text for type, text in events if type == "CancelRequested"] == [THIRD]


async def test_an_answer_carries_its_own(connect: Connect) -> None:
    async with connect() as j, connect() as other:

        async def answer() -> None:
            while True:
                if (await other.state("t")).pending:
                    break
            await other.answer("t", True, traceparent=SECOND)

        async with j.task("t", "d", traceparent=FIRST) as task:
            assert (await asyncio.gather(task.ask("sure?"), answer()))[0] is True
        events = await carried(j)
    assert [text for type, text in events if type == "InputReceived"] == [SECOND]


async def test_a_wrong_one_writes_nothing(connect: Connect) -> None:
    async with connect() as j:
        with pytest.raises(UsageError, match="traceparent"):
            async with j.task("t", "d", traceparent="00-1-2-3"):
                pass
        assert await j.tasks() == []
        async with j.task("t", "d"):
            pass
        for wrong in (
            j.send("t", "hi", traceparent="no"),
            j.answer("t", 1, traceparent="no"),
            j.cancel("t", traceparent="no"),
        ):
            with pytest.raises(UsageError, match="traceparent"):
                await wrong
        assert [type for type, _ in await carried(j)] == ["TaskStarted"]


async def test_a_recorded_one_that_is_none_is_passed_over(connect: Connect) -> None:
    """Some other writer's: readers must not fail on what is only information."""
    async with connect() as j:
        async with j.owned("t") as owner:
            owner.traceparent = "not W3C's"
            await owner.claim("TaskStarted", TaskStarted("d"), 0)
        async with j.task("t") as task:
            assert task.state.traceparent == "not W3C's"
            assert task.traceparent is None


async def test_without_any_there_is_none(bare: Connect) -> None:
    async with bare() as j:
        async with j.task("t", "d") as task:
            await task.record_step(0, "seen")
            assert task.traceparent is None
        assert {text for _, text in await carried(j)} == {None}


async def test_the_current_span_is_taken_without_an_argument(bare: Connect) -> None:
    tracer = TracerProvider().get_tracer("test")
    async with bare() as j:
        with tracer.start_as_current_span("request") as span:
            here = span.get_span_context()
            async with j.task("t", "d") as task:
                await task.record_step(0, "seen")
            await j.send("t", "hello")
        expected = f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"
        assert {text for _, text in await carried(j)} == {expected}
        with tracer.start_as_current_span("another"):
            async with j.task("t", traceparent=FIRST) as task:
                assert task.traceparent == FIRST


async def test_it_is_found_through_a_projection(tmp_path: Path) -> None:
    url, db = tmp_path / "journal.db", tmp_path / "runs.duckdb"
    nobody = NoOpTracerProvider()
    async with journal.connect(url) as j:
        async with j.task("t", "d", traceparent=FIRST) as task:
            await task.record_step(0, "seen")
        await project(j.log, j.identity, db)
        state = await j.state("t")
    store = projector.connect(db)
    async with journal.connect(url, checkpoints=store, tracer_provider=nobody) as j:
        assert await j.state("t") == state
        async with j.task("t") as task:
            assert task.traceparent == FIRST


@pytest.mark.kafka
async def test_kafka_headers_copy_it(kafka_broker: str, kafka_topic: str) -> None:
    async with journal.connect(f"kafka://{kafka_broker}/{kafka_topic}", create=True) as j:
        async with j.task("t", "d", traceparent=FIRST) as task:
            await task.record_step(0, "seen")
        async with j.task("u", "d"):
            pass
        partitions = j.log.partitions
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka_broker)
    await consumer.start()
    try:
        places = [TopicPartition(kafka_topic, n) for n in range(partitions)]
        consumer.assign(places)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(places)
        headers: dict[bytes | None, list[dict[str, bytes]]] = {}
        left = sum(ends.values())
        while left:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                left -= len(records)
                for record in records:
                    headers.setdefault(record.key, []).append(dict(record.headers))
    finally:
        await consumer.stop()
    named = {"v": b"1", "traceparent": FIRST.encode()}
    assert headers[b"t"] == [
        {"type": b"TaskStarted", **named},
        {"type": b"StepCompleted", **named, "v": b"2"},
    ]
    assert headers[b"u"] == [{"type": b"TaskStarted", "v": b"1"}]


WITHOUT = """
import asyncio, sys
sys.modules["opentelemetry"] = None
import journal

async def main():
    async with journal.connect("journal.db") as j:
        for given in (sys.argv[1], None, sys.argv[2]):
            async with j.task("t", "d", traceparent=given) as task:
                async with task.step() as step:
                    await step.decide(lambda: journal.Decision("x"))
                print(task.traceparent)
        print([event.traceparent async for _, event in j.events("t") if event.epoch is not None])
    print([name for name in sys.modules if name.startswith("opentelemetry.")])

asyncio.run(main())
"""


def test_without_the_extra_nothing_of_it_is_imported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, FIRST, SECOND],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    carried = str([FIRST] * 6 + [SECOND] * 3)
    expected = [FIRST, FIRST, SECOND, carried, "[]"]
    assert (done.stdout.splitlines(), done.stderr) == (expected, "")


LOOKING = """
import asyncio, sys
import journal

async def main():
    async with journal.connect("journal.db") as j:
        await j.tasks()
    print([name for name in sys.modules if name.startswith("opentelemetry")])

asyncio.run(main())
"""


def test_looking_does_not_import_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOKING],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
