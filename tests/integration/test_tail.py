"""`journal tail` as its users meet it: a process that follows a log, on both kinds of log.

A child says on standard error where it begins; what is appended after that, it must print.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from journal.events import Envelope
from journal.genesis import GENESIS_KEY
from journal.log import Log, append_and_wait
from journal.partition import partition_of
from tests.commands import ended, journal, line, tailing
from tests.make_events import Writer, pair
from tests.projecting import new_log, put, put_events

PARTITIONS = 3


@pytest.fixture
async def log(url: str) -> AsyncIterator[Log]:
    """A journal without a task."""
    log, _ = await new_log(url, PARTITIONS)
    yield log
    await log.close()


def life(task_id: str) -> list[Envelope]:
    w = Writer(task_id)
    return [w.start(), *w.step(0), w.own("TaskCompleted", final_answer="42")]


def tasks(log: Log) -> dict[int, str]:
    """A task in each partition."""
    found: dict[int, str] = {}
    for n in range(50):
        found.setdefault(partition_of(f"task-{n}", log.partitions), f"task-{n}")
    assert len(found) == log.partitions
    return found


async def put_value(log: Log, partition: int, value: bytes) -> None:
    await put(log, [(tasks(log)[partition].encode(), value)])


# --- what is printed ---------------------------------------------------------------------------


async def test_by_default_it_prints_what_comes_and_nothing_from_before(log: Log) -> None:
    before, after = (
        [event for task in tasks(log).values() for event in life(f"{task}{suffix}")]
        for suffix in ("", "-later")
    )
    await put_events(log, before)
    async with tailing("--log", log.url, "--format", "json") as child:
        # The one with nothing to read up to, one more for it to come upon.
        for event in after:
            await put_events(log, [event])
        printed = [json.loads(await line(child)) for _ in after]
        child.send_signal(signal.SIGTERM)
        assert await ended(child) == (0, [], [])
    assert {event["id"] for event in printed} == {event.id for event in after}
    for task in tasks(log).values():
        ids = [event["id"] for event in printed if event["task_id"] == f"{task}-later"]
        assert ids == [event.id for event in after if event.task_id == f"{task}-later"]


async def test_from_the_start_it_prints_the_history_and_goes_on(log: Log) -> None:
    history = [event for task in tasks(log).values() for event in life(task)]
    await put_events(log, history)
    async with tailing("--log", log.url, "--from", "start", "--format", "json") as child:
        known = [json.loads(await line(child)) for _ in range(len(history) + log.partitions)]
        # The record that opens a partition is an event as well.
        assert [e["type"] for e in known].count("JournalCreated") == log.partitions
        assert {e["id"] for e in known} >= {event.id for event in history}
        late = life("late")[0]
        await put_events(log, [late])
        assert json.loads(await line(child))["id"] == late.id


async def test_a_task_is_printed_as_replay_prints_it(log: Log) -> None:
    mine, *others = tasks(log).values()
    w = Writer(mine)
    old = w.own("StepCompleted", 1, step_index=1, thought="old", tokens_used=7)
    events = [w.start(), *w.step(0), old]
    for task in others:
        await put_events(log, life(task))
    await put_events(log, events)
    # Of a task that shares its partition, too.
    alike = next(f"t{n}" for n in range(50) if partition_of(f"t{n}", log.partitions)
                 == partition_of(mine, log.partitions))  # fmt: skip
    await put_events(log, life(alike))
    for extra in ([], ["--raw"]):
        options = ["--log", log.url, *extra]
        status, replayed, _ = await ended(await journal("replay", mine, *options))
        assert (status, len(replayed)) == (0, len(events))
        options += ["--task", mine, "--format", "json", "--from", "start"]
        tail = await journal("tail", *options, "--count", str(len(events)))
        status, printed, _ = await ended(tail)
        assert (status, printed) == (0, replayed)
    assert json.loads(printed[-1])["v"] == 1


async def test_from_a_position_the_other_partitions_begin_at_their_end(log: Log) -> None:
    for task in tasks(log).values():
        await put_events(log, life(task))
    partition = log.partitions - 1
    async with tailing("--log", log.url, "--from", f"{partition}:4") as child:
        await put_events(log, [life("late")[0]])
        count = (await log.ends())[partition] - 4
        at_end = partition_of("late", log.partitions) != partition
        lines = [await line(child) for _ in range(count + at_end)]
    positions = [text.split()[0] for text in lines]
    ours = [text for text in positions if text.startswith(f"{partition}:")]
    assert ours == [f"{partition}:{offset}" for offset in range(4, 4 + count)]
    assert sum("late" in text for text in lines) == 1


async def test_a_row_says_where_when_whose_what_and_about_what(log: Log) -> None:
    task = next(
        task for n in range(50) if partition_of(task := f"a-longer-one-{n}", log.partitions) == 0
    )
    events = life(task)
    await put_events(log, events)
    tail = await journal("tail", "--log", log.url, "--from", "0:0", "--count", str(len(events) + 1))
    status, (genesis, *lines), _ = await ended(tail)
    assert status == 0
    rows = [text.split(maxsplit=4) for text in lines]
    ends = (await log.ends())[0]
    assert [row[0] for row in rows] == [f"0:{offset}" for offset in range(1, ends)]
    assert [row[1:4] for row in rows] == [[e.at, task, e.type] for e in events]
    about = [row[4] if len(row) > 4 else "" for row in rows]
    assert about == [
        "count the words",
        "step 0 count",
        "step 0 call 0 count",
        "step 0 call 0",
        "step 0",
        "completed",
    ]
    columns = {text.index(row[3]) for text, row in zip(lines, rows, strict=True)}
    assert columns == {genesis.index("JournalCreated")}


# --- what stops it -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
async def test_a_signal_ends_it_without_a_word(log: Log, number: int, status: int) -> None:
    async with tailing("--log", log.url) as child:
        child.send_signal(number)
        assert await ended(child) == (status, [], [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
async def test_a_signal_ends_it_while_its_reader_takes_a_rest(log: Log, number: int) -> None:
    w = Writer("t")
    await put_events(log, [w.start(), *(w.recorded(n, 10_000) for n in range(30))])
    reading, writing = os.pipe()
    try:
        options = ["--log", log.url, "--from", "start", "--format", "json"]
        async with tailing(*options, stdout=writing) as child:
            os.close(writing)
            # More than a pipe holds has been on its way since; its beginning has arrived.
            assert await asyncio.to_thread(os.read, reading, 1) == b"{"
            child.send_signal(number)
            status, _, err = await ended(child)
            assert (status, err) == (0 if number == signal.SIGTERM else 130, [])
    finally:
        os.close(reading)


async def test_a_reader_that_goes_ends_it_though_nothing_comes(log: Log) -> None:
    reading, writing = os.pipe()
    async with tailing("--log", log.url, stdout=writing) as child:
        os.close(writing)
        os.close(reading)
        assert await ended(child) == (0, [], [])


async def test_a_reader_that_goes_in_the_middle_ends_it(log: Log) -> None:
    w = Writer("t")
    await put_events(log, [w.start(), *(w.recorded(n, 10_000) for n in range(30))])
    reading, writing = os.pipe()
    options = ["--log", log.url, "--from", "start", "--format", "json"]
    async with tailing(*options, stdout=writing) as child:
        os.close(writing)
        assert await asyncio.to_thread(os.read, reading, 1) == b"{"
        os.close(reading)
        assert await ended(child) == (0, [], [])


async def test_a_file_takes_all_of_it(log: Log, tmp_path: Path) -> None:
    w = Writer("t")
    events = [w.start(), *(w.recorded(n, 10_000) for n in range(30))]
    await put_events(log, events)
    options = ["--task", "t", "--from", "start", "--format", "json", "--count", str(len(events))]
    with (tmp_path / "out").open("wb") as file:
        child = await journal("tail", "--log", log.url, *options, stdout=file.fileno())
        assert (await ended(child))[0] == 0
    printed = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    assert [json.loads(text)["id"] for text in printed] == [event.id for event in events]


# --- what is no event of ours ------------------------------------------------------------------


async def test_an_undecodable_record_is_a_line_and_no_stop(log: Log) -> None:
    start = Writer(tasks(log)[0]).start()
    await put_value(log, 0, b"\xff\n")
    await put_events(log, [start])
    options = ["--log", log.url, "--from", "0:1", "--count", "2"]
    status, lines, _ = await ended(await journal("tail", *options))
    assert (status, len(lines)) == (0, 2)
    assert lines[0].split()[0] == "0:1"
    assert " undecodable " in lines[0]
    status, lines, _ = await ended(await journal("tail", *options, "--format", "json"))
    assert (status, len(lines)) == (0, 2)
    assert json.loads(lines[0]).keys() == {"position", "undecodable"}
    assert json.loads(lines[1])["id"] == start.id


async def test_an_event_of_a_newer_release_is_named_unless_it_is_wanted_raw(log: Log) -> None:
    task = tasks(log)[0]
    await put_events(log, life(task))
    end = (await log.ends())[0]
    newer = {"type": "StepDreamt", "v": 2, "id": "i", "task_id": task, "epoch": 0}
    await put_value(log, 0, json.dumps(newer).encode())
    last = Writer(task).start()
    await put_events(log, [last])
    for format in ("table", "json"):
        options = ["--log", log.url, "--from", f"0:{end - 1}", "--format", format]
        status, lines, err = await ended(await journal("tail", *options))
        assert (status, len(lines)) == (1, 1), "what stands before it is printed"
        assert "TaskCompleted" in lines[0]
        assert err[1:] == [
            f"journal: 0:{end}: event StepDreamt version 2 was written by a newer release; "
            "upgrade step-journal to read it"
        ]
        status, lines, _ = await ended(await journal("tail", *options, "--raw", "--count", "3"))
        assert (status, len(lines)) == (0, 3)
    assert json.loads(lines[1]) == newer
    assert json.loads(lines[2])["id"] == last.id


async def test_another_tasks_newer_event_is_not_looked_at(log: Log) -> None:
    task = tasks(log)[0]
    newer = {"type": "StepDreamt", "v": 2, "id": "i", "task_id": task, "epoch": 0}
    await put_value(log, 0, json.dumps(newer).encode())
    mine = next(f"t{n}" for n in range(50) if partition_of(f"t{n}", log.partitions) == 0)
    await put_events(log, life(mine))
    options = ["--log", log.url, "--from", "start", "--task", mine, "--count", "6"]
    status, lines, _ = await ended(await journal("tail", *options))
    assert (status, len(lines)) == (0, 6)


async def test_replay_goes_on_past_a_body_that_has_another_shape(log: Log) -> None:
    task = tasks(log)[0]
    w = Writer(task)
    start = w.start()
    await put(
        log, [pair(start), pair(w.own("StepFailed", step_index="one")), (task.encode(), b"x")]
    )
    for extra, undecodable in ([], 2), (["--raw"], 1):
        status, lines, err = await ended(await journal("replay", task, "--log", log.url, *extra))
        assert (status, len(lines), err) == (0, 3, [])
        assert sum("undecodable" in json.loads(text) for text in lines) == undecodable


# --- what it refuses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--from", "0:999"], "0:999 is past the end, 0:1"),
        (["--from", "7:0"], "no partition 7"),
        (["--from", "-1"], "-1 is no place to begin"),
        (["--from", "17"], "17 is no place to begin: give start, end or partition:offset"),
        (["--task", "a\nb"], "control characters"),
        (["--count", "0"], "0 is no number of events from 1"),
        (["--count", "x"], "x is no number of events from 1"),
    ],
)
async def test_what_cannot_be_meant_is_refused(log: Log, options: list[str], words: str) -> None:
    code, lines, err = await ended(await journal("tail", "--log", log.url, *options))
    assert (code, lines) == (2, [])
    assert words in err[-1]
    if "usage:" not in err[0]:
        assert len(err) == 1


@pytest.mark.kafka
async def test_a_task_cannot_be_followed_in_another_partition(kafka_url: str) -> None:
    log, _ = await new_log(kafka_url, PARTITIONS)
    task = tasks(log)[1]
    await log.close()
    options = ["--log", kafka_url, "--task", task, "--from", "2:0"]
    assert await ended(await journal("tail", *options)) == (
        2,
        [],
        ["journal: the task lives in partition 1, not 2"],
    )


async def test_a_missing_log_is_one_line_and_is_not_made(url: str) -> None:
    for _ in range(2):
        status, lines, err = await ended(await journal("tail", "--log", url))
        assert (status, lines, len(err)) == (1, [], 1)
        assert f"journal init --log {url}" in err[0]


async def test_events_that_were_deleted_are_named(log: Log) -> None:
    (genesis,) = await anext(log.read(0, 0, 1))
    await put_events(log, life(tasks(log)[0]))
    end = (await log.ends())[0]
    assert genesis.value is not None
    await append_and_wait(log, 0, GENESIS_KEY, genesis.value, genesis.timestamp_ms)
    await log.truncate(0, end)
    status, lines, err = await ended(await journal("tail", "--log", log.url, "--from", "0:2"))
    assert (status, lines) == (1, [])
    assert "0:2" in err[-1]
    assert "deleted" in err[-1]
    assert f"0:{end}" in err[-1]
