"""What stands in a log but should not: an anomaly each, or read as it is; never a lost good record.

Two kinds: records that are no events, under a task's own key, and lawful events of another
program whose payloads no JSON library likes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from msgspec import Raw
from msgspec.structs import replace

import journal
from journal.codec import encode_event
from journal.events import Envelope
from journal.log import Log, append_and_wait
from journal.partition import partition_of
from tests import commands
from tests.make_events import Writer
from tests.projecting import new_log, project, put_events, rows

RECORDS: dict[str, bytes] = {
    "foreign": b"hello",
    "empty": b"",
    "cut short": b'{"type":"StepCompleted","v":2,"id":"x","task_id":"t"',
    "not UTF-8": b'{"type":"StepCompleted","v":2,"id":"\xff","task_id":"t","body":{}}',
    "lone surrogate": b'{"type":"StepCompleted","v":2,"id":"\\ud800","task_id":"t","body":{}}',
    "NaN": b'{"type":"StepCompleted","v":NaN,"id":"x","task_id":"t","body":{}}',
    "a number without end": b'{"type":"StepCompleted","v":' + b"9" * 500_000 + b"}",
    "10,000 levels": b'{"body":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "wrong types": b'{"type":1,"v":"2","id":[],"task_id":{},"body":{}}',
    "an array": b"[1,2,3]",
    "another's key": encode_event(Writer("somebody else").start()),
    "no class's members": b'{"type":"StepCompleted","v":2,"id":"x","task_id":"t","body":{}}',
}

PAYLOADS: dict[str, bytes] = {
    "300 levels": b"[" * 300 + b"]" * 300,
    "an integer without end": b"1" * 200_000,
    "a float without end": b"1." + b"1" * 200_000,
    "beyond any float": b"1e999",
    "beyond any float, negative": b"-1e999",
    "next to nothing": b"1e-999",
    "a key twice": b'{"a":1,"a":2}',
    "NUL": b'"\\u0000"',
    "no reference": b'{"$blob":{"sha256":"../../secret","size":-1,"media_type":"x"}}',
    "no content": b'{"$content":{"media_type":"x","data":"!!"}}',
    "a key that is ours": b'{"$":{"$blob":1}}',
}


async def bare(log: Log, key: bytes, value: bytes) -> None:
    partition = partition_of("t", log.partitions)
    await append_and_wait(log, partition, key, value, 1_767_225_600_000)


async def asked(*arguments: str) -> str:
    """What the command prints; it must succeed, and say nothing else."""
    done = await asyncio.to_thread(commands.run, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), arguments
    return done.stdout


GOOD = """SELECT * EXCLUDE ("partition", first_offset, last_offset) FROM {}
WHERE task_id = 't' ORDER BY ALL"""


def good(db: Path) -> list[list[tuple[Any, ...]]]:
    return [rows(db, GOOD.format(table)) for table in ("tasks", "steps", "tool_calls")]


async def test_records_that_are_no_events(url: str, tmp_path: Path) -> None:
    w = Writer("t")
    events = [w.start(), *w.step(0, tools=2), *w.step(1)]
    quiet, quiet_identity = await new_log(str(tmp_path / "quiet.db"))
    await put_events(quiet, events)
    await project(quiet, quiet_identity, tmp_path / "quiet.duckdb")
    await quiet.close()

    log, identity = await new_log(url)
    for event, hostile in zip(events, (*RECORDS.values(), None), strict=False):
        await put_events(log, [event])
        if hostile is not None:
            await bare(log, b"t", hostile)
    for hostile in list(RECORDS.values())[len(events) :]:
        await bare(log, b"t", hostile)
    db = tmp_path / "r.duckdb"
    await project(log, identity, db)
    await log.close()

    assert good(db) == good(tmp_path / "quiet.duckdb")
    anomalies = rows(db, "SELECT label, raw FROM anomalies")
    assert sorted(raw for _, raw in anomalies) == sorted(RECORDS.values())
    assert {label for label, _ in anomalies} == {"undecodable"}
    async with journal.connect(url) as j, j.task("t") as task:
        assert (task.state.current_step, task.state.head.epoch) == (2, 1)
        await task.record_step(2, "goes on")
    shown = await asked("show", "t", "--log", url)
    assert "goes on" in shown


async def test_tombstones_and_messages_without_a_key(kafka_url: str, tmp_path: Path) -> None:
    log, identity = await new_log(kafka_url)
    w = Writer("t")
    await put_events(log, [w.start(), *w.step(0)])
    broker, topic = kafka_url.removeprefix("kafka://").split("/")
    partition = partition_of("t", log.partitions)
    async with AIOKafkaProducer(bootstrap_servers=broker) as producer:
        for key, value in ((b"t", None), (None, b"hello")):
            await producer.send_and_wait(topic, value, key, partition)
    await put_events(log, w.step(1))
    await project(log, identity, tmp_path / "r.duckdb")
    await log.close()
    assert rows(tmp_path / "r.duckdb", "SELECT label, raw FROM anomalies ORDER BY ALL") == [
        ("undecodable", b"hello"),
        ("undecodable", None),
    ]
    assert rows(tmp_path / "r.duckdb", "SELECT current_step FROM tasks") == [(2,)]
    async with journal.connect(kafka_url) as j, j.task("t") as task:
        assert task.state.current_step == 2


def lawful(payload: bytes) -> list[Envelope]:
    """A run that has the payload wherever a payload may stand."""
    w, raw = Writer("t"), Raw(payload)
    asks = {"tool_name": "count", "arguments": raw}
    begun = {"position": 0, "tool_name": "count", "arguments_digest": "0" * 32}
    started = w.start()
    message = w.message("hello")
    return [
        started,
        replace(message, body=Raw(b'{"role":"user","content":' + payload + b"}")),
        w.own("StepStarted", step_index=0, decision={"text": raw, "tool_calls": [asks]}),
        w.own("ToolCallStarted", step_index=0, arguments=raw, **begun),
        w.own("ToolCallCompleted", step_index=0, position=0, result=raw),
        w.own("StepCompleted", step_index=0),
        w.own("StepCompleted", step_index=1, decision={"content": raw}, calls=[{"result": raw}]),
        w.own("ResultRecorded", name="n", value=raw),
        w.own("ValueRecorded", key="k", function="f", value=raw, arguments_digest="0" * 32),
        w.own("TaskCompleted", final_answer=raw),
    ]


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
async def test_payloads_that_no_writer_of_ours_makes(payload: bytes, tmp_path: Path) -> None:
    url, db = str(tmp_path / "journal.db"), tmp_path / "r.duckdb"
    log, identity = await new_log(url)
    events = lawful(payload)
    await put_events(log, events)
    await project(log, identity, db)
    await log.close()
    assert rows(db, "SELECT label, detail FROM anomalies") == []
    assert rows(db, "SELECT count(*) FROM events") == [(len(events),)]
    assert rows(db, "SELECT status, current_step FROM tasks") == [("completed", 2)]
    assert rows(db, "SELECT count(*) FROM tool_calls WHERE status = 'completed'") == [(1,)]
    async with journal.connect(url) as j, j.task("t") as task:
        for style in ("openai", "anthropic", "plain"):
            assert len(task.messages(style)) > 2
        assert task.status == "completed"
    for command in (["show"], ["state"], ["replay"], ["replay", "--raw"]):
        assert await asked(*command, "t", "--log", url)
