"""SIGKILL of a projector at random moments, over and over: its tables must come out the same.

A round has 2,000 events; the full count is 50 kills over 100,000 events.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.attacks import Rounds
from tests.make_events import many
from tests.projecting import new_log, project, put, tables

EVENTS_A_ROUND = 2_000
EVENTS_A_TASK = 13

# In small batches and with little memory, so that every kind of moment comes up.
CHILD = """
import asyncio, sys
from journal.backends import open_log
from journal.genesis import identify
from projector import runner
from projector.store import Store

async def main(url, db):
    log = await open_log(url)
    identity = await identify(log)
    print("ready", flush=True)
    await runner.Runner(
        log, identity, lambda: Store.open(db, identity.journal_id), batch_records=1_000,
        memory_bytes=4 << 20,
    ).run(follow=False)
    await log.close()

asyncio.run(main(*sys.argv[1:]))
"""


def _child(url: Path, db: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(url), str(db)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.stdout.close()
    return child


@pytest.mark.crash
async def test_killed_at_random(tmp_path: Path, rounds: Rounds) -> None:
    count = rounds(50)
    url, db, calm = tmp_path / "j.db", tmp_path / "r.duckdb", tmp_path / "calm.duckdb"
    log, identity = await new_log(str(url))
    await put(log, many(count * EVENTS_A_ROUND // EVENTS_A_TASK))
    began = time.perf_counter()
    await project(log, identity, calm, batch_records=1_000)
    whole_s = time.perf_counter() - began
    rng = random.Random(11)
    killed = 0
    # A child that is killed early gets little done, so that there is work for all the kills.
    while killed < count:
        child = await asyncio.to_thread(_child, url, db)
        try:
            await asyncio.to_thread(child.wait, rng.uniform(0, 4 * whole_s / count))
        except subprocess.TimeoutExpired:
            child.kill()
            killed += 1
        assert child.wait() in (0, -signal.SIGKILL)
        if child.returncode == 0:
            # Done before its time: begin anew, with a file of its own.
            assert tables(db) == tables(calm)
            for left in tmp_path.glob("r.duckdb*"):
                left.unlink()
    child = await asyncio.to_thread(_child, url, db)
    assert child.wait() == 0
    assert tables(db) == tables(calm)
    await log.close()
