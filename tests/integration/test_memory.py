"""What an open task holds in memory: its history, and no more than that for each step."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import journal
from benchmarks.bench_growth import steps

STEPS = (100, 200, 400)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.usefixtures("traced")
async def test_an_open_task_grows_with_its_messages_and_no_faster(tmp_path: Path) -> None:
    async with journal.connect(tmp_path / "j.db") as j, j.task("t", "grows") as task:
        sizes, histories = [], []
        for count in STEPS:
            await steps(task, count - task.state.current_step)
            sizes.append(held())
            histories.append(len(msgspec.json.encode(task.messages())))
    growth = [(sizes[n + 1] - sizes[n]) / (STEPS[n + 1] - STEPS[n]) for n in (0, 1)]
    assert growth[1] < 1.1 * growth[0]
    # Of a step of 1 KB: the payloads as they are, and what is known of step, call and times.
    assert growth[1] < 2.5 * (histories[2] - histories[1]) / (STEPS[2] - STEPS[1])
