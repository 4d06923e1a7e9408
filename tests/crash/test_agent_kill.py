"""SIGKILL of an agent at random moments, over and over: it must come to the same end.

The agent is a process of its own (`agents`); this file knows what it must leave behind.
Rounds come from JOURNAL_TEST_ROUNDS: a number, or `full`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import journal
from journal.codec import decode_value
from tests.crash.agents import STEPS

ASKED = os.environ.get("JOURNAL_TEST_ROUNDS") or "5"
# Of the lines that a whole life prints the killer waits for one of the first few, so that most
# runs take several lives; the delay then puts the kill between two lines.
LINES, DELAY_S = 20, 0.004
ROOT = Path(__file__).parents[2]


def rounds(full: int) -> int:
    return full if ASKED == "full" else int(ASKED)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


def start(mode: str, url: str, place: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.agents", mode, url, str(place)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def one_life(url: str, trace: Path, rng: random.Random | None) -> int:
    """Let the agent live, if `rng` is given until a random moment; its exit code."""
    child = start("live", url, trace)
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
    return {
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
async def test_an_agent_killed_at_random(url: str, tmp_path: Path) -> None:
    calm = str(tmp_path / "calm.db")
    assert await asyncio.to_thread(one_life, calm, tmp_path / "calm", None) == 0
    expected = await outcome(calm)
    assert expected["answer"] == f"paid {STEPS} times"
    kills = 0
    count = rounds(100)
    for seed in range(count):
        rng, trace = random.Random(seed), tmp_path / f"trace-{seed}"
        here = f"{url}-{seed}"
        while code := await asyncio.to_thread(one_life, here, trace, rng):
            assert code == -signal.SIGKILL, f"seed {seed}: the agent failed by itself"
            kills += 1
        check_trace(trace.read_text().splitlines())
        assert await outcome(here) == expected, f"seed {seed}"
    assert kills >= count
