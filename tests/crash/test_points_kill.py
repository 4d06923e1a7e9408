"""SIGKILL at named moments, one in each life of one agent (`points`), on both logs: parallel calls,
retries, `once` tools, large payloads, declared values, what others say meanwhile, plain code.

This file knows what each kill must leave behind.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

import journal
from journal.errors import TaskEnded
from journal.values import decode_value
from tests.crash.points import INVOICE, MOMENTS, SECRET, Invoice

ROOT = Path(__file__).parents[2]


def one_life(url: str, trace: Path) -> int:
    """The agent's exit code."""
    command = [sys.executable, "-m", "tests.crash.points", url, str(trace)]
    return subprocess.run(command, cwd=ROOT, timeout=300).returncode


async def meanwhile(url: str, moment: str) -> None:
    """What others do while the agent is dead."""
    async with journal.connect(url, create=False) as j:
        if moment == "before a message":
            assert await j.send("outside", "hello", id="m-1") == "m-1"
        elif moment == "with a question":
            assert (await j.state("outside")).status == "waiting"
            await j.answer("outside", Decimal("1.10"))
        elif moment == "with a child at work":
            await j.cancel("cancelled", "too dear")


@pytest.mark.crash
async def test_points_killed_at_named_moments(
    url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("attacks", f"{len(MOMENTS)} moments")
    trace, kills = tmp_path / "trace", []
    while code := await asyncio.to_thread(one_life, url, trace):
        assert code == -signal.SIGKILL, "the agent failed by itself"
        kills.append(trace.read_text().splitlines()[-1].removeprefix("killed "))
        await meanwhile(url, kills[-1])
    assert tuple(kills) == MOMENTS
    lines = [line for line in trace.read_text().splitlines() if not line.startswith("killed ")]

    async with journal.connect(url, create=False, blobs=str(tmp_path / "blobs")) as j:
        states = {state.task_id: state for state in await j.tasks()}
        failures = [e async for _, e in j.events("calls") if e.type == "ToolCallFailed"]
        written = [
            record.value or b""
            for partition, start in (await j.log.starts()).items()
            async for batch in j.log.read(partition, start)
            for record in batch
        ]
    steps = states["calls"].steps
    assert {state.status for id, state in states.items() if "cancel" not in id} == {"completed"}

    # Parallel calls: what had finished beside the one that was killed did not run again.
    assert [lines.count(f"work {n}") for n in range(3)] == [1, 2, 1]
    results = [decode_value(call.result) for call in steps[0].all_calls()]
    assert results == [f"{n} with [redacted]" for n in range(3)]

    # Retries: counted across the kill, under one key; the run that was killed is no failure.
    keys = [line for line in lines if line.startswith("flaky ") and "failed" not in line]
    assert (len(keys), len(set(keys))) == (4, 1)
    (flaky,) = steps[1].all_calls()
    assert (flaky.failures, decode_value(flaky.result)) == (2, "at last")
    assert len(failures) == 2

    # `once` tools: of what nobody knows, each policy.
    once = {
        call.tool_name: (
            lines.count(f"effect {call.tool_name}"),
            call.status,
            decode_value(call.result),
        )
        for index in (2, 3, 4, 5)
        for call in steps[index].all_calls()
    }
    assert once == {
        "check": (1, "completed", "found"),
        "ask": (1, "completed", "told"),
        "retry": (2, "completed", "happened retry"),
        "fail": (1, "failed", None),
    }

    # A large payload: stored without an event, it was made again and is there once.
    assert lines.count("scrape") == 2
    large = [p for p in (tmp_path / "blobs").rglob("*") if p.is_file() and p.stat().st_size > 2**20]
    assert len(large) == 1

    # Declared values: recorded once, and the same after the kill.
    assert lines.count("read") == 1
    answer = msgspec.convert(decode_value(states["values"].final_answer), Invoice)
    assert answer == INVOICE

    # What others said while nobody owned it.
    assert decode_value(states["outside"].final_answer) == ["m-1", "1.10"]
    assert list(states["outside"].messages_received) == ["m-1"]
    for id in ("cancelled", "cancelled:c"):
        assert (states[id].status, states[id].error) == ("cancelled", "too dear")
        assert states[id].final_answer is None
    assert "the child went on" not in lines

    # Plain code: the tool that was killed ran again, and nothing else.
    assert [lines.count(f"note {n}") for n in range(3)] == [1, 2, 1]
    assert [lines.count(f"double {n}") for n in range(3)] == [1, 1, 1]
    assert decode_value(states["plain"].final_answer) == 4

    # Secrets: of no life is one left anywhere.
    assert [value for value in written if SECRET.encode() in value] == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []
    assert states["calls"].description == "calls with [redacted]"

    async with journal.connect(url, create=False) as j:
        with pytest.raises(TaskEnded):
            await j.send("cancelled", "too late")
