"""`journal replay --from/--to` and `journal state --at`: points named by seq or by offset, also
where a fenced worker's events stand in between. On each log.

Knows the commands and how a log is filled.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from journal.partition import partition_of
from tests import commands
from tests.make_events import Writer
from tests.projecting import new_log, put_events


@pytest.fixture
async def fenced(url: str) -> str:
    """A task whose first worker wrote seq 1 and 2 and, when it had been fenced, 3 to 5; the second
    one wrote 3 and 4. A message came in between."""
    log, _ = await new_log(url)
    w = Writer("t")
    before = [w.start(), w.recorded(0, 10), w.recorded(1, 10)]
    late = [replace(w.recorded(n, 10), id=f"late-{n}") for n in (2, 3, 4)]
    w.seq = 2
    claim = w.claim()
    after = [w.recorded(2, 20), w.message("hello"), w.recorded(3, 20)]
    await put_events(log, [*before, claim, *late, *after])
    await log.close()
    return url


async def said(*arguments: str) -> str:
    done = await asyncio.to_thread(commands.run, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


async def checkpoint(url: str, at: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await said("state", "t", "--at", at, "--log", url))
    return found


@pytest.mark.parametrize(("seq", "steps", "epoch"), [(0, 0, 0), (2, 2, 1), (3, 3, 1), (4, 4, 1)])
async def test_a_state_at_a_seq(fenced: str, seq: int, steps: int, epoch: int) -> None:
    found = await checkpoint(fenced, str(seq))
    assert (found["seq"], found["current_step"], found["epoch"]) == (seq, steps, epoch)


async def test_replay_between_two_seqs_shows_what_stands_there(fenced: str) -> None:
    lines = (await said("replay", "t", "--from", "3", "--to", "4", "--log", fenced)).splitlines()
    shown = [json.loads(line) for line in lines]
    assert [(e["type"], e.get("seq"), e.get("epoch")) for e in shown] == [
        ("StepCompleted", 3, 1),
        ("MessageReceived", None, None),
        ("StepCompleted", 4, 1),
    ]
    lines = (await said("replay", "t", "--from", "2", "--to", "2", "--log", fenced)).splitlines()
    # What does not count stands where the task was when it came.
    assert [json.loads(line)["type"] for line in lines] == [
        "StepCompleted",
        "TaskClaimed",
        *["StepCompleted"] * 3,
    ]


async def test_points_by_offset(fenced: str) -> None:
    whole = (await said("replay", "t", "--log", fenced)).splitlines()
    positions = [json.loads(line)["position"] for line in whole]
    assert len(positions) == 10
    assert positions[0].split(":")[0] == str(partition_of("t", 1 if "://" not in fenced else 12))
    some = await said("replay", "t", "--from", positions[4], "--to", positions[7], "--log", fenced)
    assert some.splitlines() == whole[4:8]
    assert (await checkpoint(fenced, positions[2]))["seq"] == 2
    assert (await checkpoint(fenced, positions[6]))["seq"] == 2
    assert (await checkpoint(fenced, positions[7]))["seq"] == 3
