"""SIGKILL at every edge of a commit (`boundaries`): of the embedded log, of Kafka's, of the
projector's tables, and of the swap that ends a rebuild.

This file knows what each kill must leave behind: of an agent what `test_agent_kill` holds, of a
projector the tables of an undisturbed run.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attacks import Rounds
from tests.crash.boundaries import CALLER, KAFKA, MONITORS, REBUILD, SQLITE, STORE
from tests.crash.test_agent_kill import check_trace, outcome
from tests.projecting import filled, tables

ROUNDS, FEW = 18, 2
"""At each point: in full over 500 in all."""

KILLS = 2
"""In a round, at the most; then a life without."""

MOST = dict.fromkeys(SQLITE + KAFKA + CALLER, 12) | dict.fromkeys(STORE + MONITORS, 4)
"""The last passing of a point at which a life is killed."""

ROOT = Path(__file__).parents[2]
Life = Callable[..., int]


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    """Run a program of `boundaries` and return its exit code: life(mode, url, place, crash)."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.boundaries"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None
    asked, said = server.stdin, server.stdout

    def run(mode: str, url: str | Path, place: Path, crash: str = "") -> int:
        print(crash, mode, url, place, sep="\t", file=asked, flush=True)
        return int(said.readline())

    yield run
    asked.close()
    assert server.wait() == 0
    said.close()


def lives(life: Life, mode: str, url: str | Path, place: Path, name: str, seed: int) -> int:
    """Run a program to its end, killed on the way there; the number of kills."""
    rng = random.Random(f"{name} {seed}")
    for kills in range(KILLS):
        # At its first passing in some round, whatever is drawn.
        nth = rng.randint(1, MOST[name]) if seed else kills + 1
        code = life(mode, url, place, f"{name}:{nth}")
        if code == 0:
            return kills
        assert code == -signal.SIGKILL, f"{name}:{nth}, seed {seed}"
    assert life(mode, url, place) == 0
    return KILLS


# --- agents ---------------------------------------------------------------------------------


async def agent_killed(life: Life, url: str, tmp_path: Path, name: str, count: int) -> None:
    calm = tmp_path / "calm.db"
    assert await asyncio.to_thread(life, "agent", calm, tmp_path / "calm") == 0
    expected = await outcome(str(calm))
    kills = 0
    for seed in range(count):
        here, trace = f"{url}-{seed}", tmp_path / f"trace-{seed}"
        kills += await asyncio.to_thread(lives, life, "agent", here, trace, name, seed)
        check_trace(trace.read_text().splitlines())
        assert await outcome(here) == expected, f"{name}, seed {seed}"
    assert kills >= count


@pytest.mark.crash
@pytest.mark.parametrize("name", SQLITE + CALLER)
async def test_an_agent_on_the_embedded_log(
    life: Life, tmp_path: Path, name: str, rounds: Rounds
) -> None:
    await agent_killed(life, str(tmp_path / "journal.db"), tmp_path, name, rounds(ROUNDS, FEW))


@pytest.mark.crash
@pytest.mark.kafka
@pytest.mark.parametrize("name", KAFKA + CALLER)
async def test_an_agent_on_kafka(
    life: Life, kafka_url: str, tmp_path: Path, name: str, rounds: Rounds
) -> None:
    await agent_killed(life, kafka_url, tmp_path, name, rounds(ROUNDS, FEW))


# --- projectors -----------------------------------------------------------------------------


TASKS, PARTITIONS = 300, 3
"""Some 4,500 records, which are read in five batches at least."""


async def projector_killed(life: Life, url: str, tmp_path: Path, name: str, count: int) -> None:
    log = await filled(url, tmp_path, TASKS, PARTITIONS)
    calm = tables(tmp_path / "calm.duckdb")
    kills = 0
    for seed in range(count):
        db = tmp_path / f"{seed}.duckdb"
        kills += await asyncio.to_thread(lives, life, "project", url, db, name, seed)
        assert tables(db) == calm, f"{name}, seed {seed}"
    assert kills >= count
    await log.close()


@pytest.mark.crash
@pytest.mark.parametrize("name", STORE)
async def test_a_projector(life: Life, url: str, tmp_path: Path, name: str, rounds: Rounds) -> None:
    await projector_killed(life, url, tmp_path, name, rounds(ROUNDS, FEW))


@pytest.mark.crash
@pytest.mark.kafka
@pytest.mark.parametrize("name", MONITORS)
async def test_a_projector_that_tells_monitors(
    life: Life, kafka_url: str, tmp_path: Path, name: str, rounds: Rounds
) -> None:
    await projector_killed(life, kafka_url, tmp_path, name, rounds(ROUNDS, FEW))


# --- rebuilds -------------------------------------------------------------------------------


def whole(db: Path) -> None:
    """As a projector leaves it."""


def damaged(db: Path) -> None:
    """Neither the file nor its WAL can be read."""
    os.truncate(db, 100_000)
    Path(f"{db}.wal").write_bytes(b"no DuckDB reads this" * 100)


BEFORE = (whole, damaged)


@pytest.mark.crash
@pytest.mark.parametrize("name", REBUILD + STORE[:2])
async def test_a_rebuild(life: Life, tmp_path: Path, name: str, rounds: Rounds) -> None:
    url = str(tmp_path / "journal.db")
    log = await filled(url, tmp_path, TASKS, PARTITIONS)
    await log.close()
    calm = tables(tmp_path / "calm.duckdb")
    for seed in range(rounds(ROUNDS, FEW)):
        (tmp_path / f"{seed}").mkdir()
        db = tmp_path / f"{seed}" / "r.duckdb"
        db.write_bytes((tmp_path / "calm.duckdb").read_bytes())
        make = BEFORE[seed % len(BEFORE)]
        make(db)
        before = db.read_bytes()
        code = await asyncio.to_thread(life, "rebuild", url, db, f"{name}:1")
        if "has gone along" in name and make is whole:
            assert code == 0
        else:
            assert code == -signal.SIGKILL
        swapped = db.read_bytes() != before
        if swapped:
            assert tables(db) == calm
        assert await asyncio.to_thread(life, "rebuild", url, db) == 0
        assert tables(db) == calm
        olds = {p.name: p.read_bytes() for p in db.parent.iterdir() if p != db}
        assert before in olds.values()
        assert len(olds) == (2 if swapped else 1) + (make is damaged)
