"""SIGKILL of an agent at random moments, and two workers that open one task at once.

The agents are processes of their own (`agents`); this file knows what they must leave behind.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import journal
from journal.events import CLAIM, EVENT_TYPES, OWNER
from journal.fold import apply
from journal.state import TaskState
from journal.values import decode_value
from tests.attacks import Rounds
from tests.crash.agents import PARTS, RACE_STEPS, STEPS, TRACEPARENT, effects_files, report
from tests.loopback import Server

# Of the lines that a whole life prints the killer waits for one of the first few, so that most
# runs take several lives; the delay then puts the kill between two lines.
LINES, DELAY_S = 20, 0.004
ROOT = Path(__file__).parents[2]


def start(mode: str, url: str, place: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.agents", mode, url, str(place)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def one_life(url: str, trace: Path, rng: random.Random | None, mode: str = "live") -> int:
    """Let the agent live, if `rng` is given until a random moment; its exit code."""
    child = start(mode, url, trace)
    assert child.stdout is not None
    lines, until = (rng.randint(1, LINES), rng.uniform(0, DELAY_S)) if rng else (10_000, 0)
    for seen, _ in enumerate(child.stdout, 1):
        if seen == lines:
            until += time.perf_counter()
            while time.perf_counter() < until:
                pass
            child.kill()
            break
    code = child.wait()
    child.communicate()
    return code


async def outcome(url: str) -> Any:
    """What a run has come to, but for times and ids."""
    async with journal.connect(url, create=False) as j:
        state = await j.state("t")
        traces = {event.traceparent async for _, event in j.events("t")}
    return {
        "traces": traces,
        "status": state.status,
        "answer": decode_value(state.final_answer),
        "tokens": state.total_tokens,
        "results": {name: decode_value(raw) for name, raw in state.results.items()},
        "steps": [
            (
                step.index,
                step.status,
                step.attempt,
                step.decision(),
                [(c.tool_name, c.status, decode_value(c.result)) for c in step.all_calls()],
            )
            for step in state.steps.values()
        ],
    }


def check_trace(lines: list[str]) -> None:
    for index in range(STEPS):
        # The agent settles what is uncertain by looking, so one payment it is, whatever came.
        assert lines.count(f"pay {index}") == 1, lines
        assert f"note {index}" in lines
        if f"ack {index}" in lines:
            later = lines[lines.index(f"ack {index}") + 1 :]
            ran_again = {f"{what} {index}" for what in ("model", "pay", "note", "unsure", "ack")}
            assert not ran_again & set(later), lines


@pytest.mark.crash
async def test_an_agent_killed_at_random(url: str, tmp_path: Path, rounds: Rounds) -> None:
    kafka = url.startswith("kafka://")
    calm = str(tmp_path / "calm.db")
    assert await asyncio.to_thread(one_life, calm, tmp_path / "calm", None) == 0
    expected = await outcome(calm)
    assert expected["answer"] == f"paid {STEPS} times"
    assert expected["traces"] == {TRACEPARENT}
    kills = 0
    count = rounds(20 if kafka else 100)
    for seed in range(count):
        rng, trace = random.Random(seed), tmp_path / f"trace-{seed}"
        here = f"{url}-{seed}"
        while code := await asyncio.to_thread(one_life, here, trace, rng):
            assert code == -signal.SIGKILL, f"seed {seed}: the agent failed by itself"
            kills += 1
        check_trace(trace.read_text().splitlines())
        assert await outcome(here) == expected, f"seed {seed}"
    assert kills >= count


async def durable_outcome(url: str) -> Any:
    """The same of a task without steps, and of its children."""
    async with journal.connect(url, create=False) as j:
        states = {state.task_id: state for state in await j.tasks()}
    task = states["t"]
    return {
        "answer": decode_value(task.final_answer),
        "values": sorted((v.function, v.arguments_digest) for v in task.values.values()),
        "subtasks": {
            s.name: (s.status, decode_value(s.result), states[s.child_task_id].status)
            for s in task.subtasks.values()
        },
        "waits": {
            (state.task_id, wait.key): wait.status
            for state in states.values()
            for wait in state.waits.values()
        },
    }


def check_durable_trace(lines: list[str]) -> None:
    def after(line: str) -> list[str]:
        return lines[lines.index(line) + 1 :] if line in lines else []

    assert not {f"fetch {n}" for n in range(PARTS)} & set(after("ack pages")), lines
    for n in range(PARTS):
        assert f"halve {n * n}" not in after(f"ack half {n * n}"), lines
    assert not [line for line in after("ack halves") if line.startswith("halve ")], lines


@pytest.mark.crash
async def test_durable_calls_and_children_killed_at_random(
    url: str, tmp_path: Path, rounds: Rounds
) -> None:
    kafka = url.startswith("kafka://")
    calm = str(tmp_path / "calm.db")
    assert await asyncio.to_thread(one_life, calm, tmp_path / "calm", None, "durable") == 0
    expected = await durable_outcome(calm)
    assert expected["answer"] == [[0, 1, 4, 9], [0, 0, 2, 4], ["yes"]]
    kills = 0
    count = rounds(20 if kafka else 100)
    for seed in range(count):
        rng, trace = random.Random(seed), tmp_path / f"durable-{seed}"
        here = f"{url}-d{seed}"
        while code := await asyncio.to_thread(one_life, here, trace, rng, "durable"):
            assert code == -signal.SIGKILL, f"seed {seed}: the agent failed by itself"
            kills += 1
        check_durable_trace(trace.read_text().splitlines())
        assert await durable_outcome(here) == expected, f"seed {seed}"
    assert kills >= count


@pytest.mark.crash
async def test_ready_effects_killed_at_random(url: str, tmp_path: Path, rounds: Rounds) -> None:
    kills = 0
    count = rounds(20 if url.startswith("kafka://") else 100)
    lines = sorted([f"part {n}" for n in range(PARTS)] + ["a step"] * STEPS)
    reports = {report(index) for index in range(STEPS)}
    for seed in range(count):
        rng, trace = random.Random(seed), tmp_path / f"effects-{seed}"
        appended, written = effects_files(trace)
        with Server().running() as server:
            trace.write_text(server.url())
            here = f"{url}-e{seed}"
            while code := await asyncio.to_thread(one_life, here, trace, rng, "effects"):
                assert code == -signal.SIGKILL, f"seed {seed}: the agent failed by itself"
                kills += 1
                assert not written.exists() or written.read_text() in reports, f"seed {seed}"
        assert (await outcome(here))["answer"] == "written and sent"
        assert sorted(appended.read_text().splitlines()) == lines, f"seed {seed}"
        assert written.read_text() == report(STEPS - 1)
        acted = {(r.headers["idempotency-key"], r.body) for r in server.requests}
        assert sorted(body for _, body in acted) == [b"%d" % n for n in range(STEPS)]
    assert kills >= count


async def check_owners(j: journal.Journal, task_id: str, winner: str) -> None:
    """At every offset one owner: the last whose claim was accepted, and only its events count."""
    events = [pair async for pair in j.events(task_id)]
    state, counted = TaskState(task_id), TaskState(task_id)
    holder: str | None = None
    epoch = -1
    for offset, event in events:
        kind = EVENT_TYPES[event.type][0]
        if not apply(state, event, offset).accepted:
            # A conditional log refuses such an event before it is written.
            assert j.url.startswith("kafka://"), event
            continue
        apply(counted, event, offset)
        if kind == CLAIM:
            assert event.epoch == epoch + 1
            holder, epoch = event.owner, epoch + 1
        elif kind == OWNER:
            assert (event.owner, event.epoch) == (holder, epoch), f"offset {offset}"
    assert holder == winner
    assert state == counted
    assert state.status == "completed"
    assert sorted(state.steps) == list(range(RACE_STEPS))


@pytest.mark.crash
async def test_two_open_one_task_at_once(url: str, tmp_path: Path, rounds: Rounds) -> None:
    async with journal.connect(url, create=True) as j:
        racers = [start("race", url, tmp_path / name) for name in ("a", "b")]
        try:
            for racer in racers:
                assert await hear(racer) == "ready"
            for n in range(rounds(200)):
                task_id = f"race-{n}"
                if n % 2:
                    # Every other task is there already, so that they claim it and not start it.
                    async with j.task(task_id, "a race"):
                        pass
                for racer in racers:
                    assert racer.stdin is not None
                    racer.stdin.write(f"{task_id}\n")
                    racer.stdin.flush()
                said = sorted([await hear(racer) for racer in racers])
                won, winner = said[0].split()
                assert won == "completed"
                assert said[1] in ("end", "fenced"), said
                await check_owners(j, task_id, winner)
        finally:
            for racer in racers:
                racer.kill()
                racer.communicate()


async def hear(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout is not None
    return (await asyncio.to_thread(racer.stdout.readline)).strip()
