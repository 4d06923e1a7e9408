"""What an open task holds in memory: its history, and no more than that for each step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEPS = (100, 200, 400)
# In a process of its own: what other tests have left behind grows and shrinks as well.
PROGRAM = f"""
import asyncio, json, pathlib, sys, tracemalloc
from benchmarks.bench_growth import grown
tracemalloc.start()
print(json.dumps(asyncio.run(grown(pathlib.Path(sys.argv[1]), {STEPS}))))
"""


def test_an_open_task_grows_with_its_messages_and_no_faster(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (held, history), (held_200, history_200), (held_400, history_400) = json.loads(done.stdout)
    first, second = (held_200 - held) / 100, (held_400 - held_200) / 200
    assert second < 1.1 * first
    assert (history_400 - history_200) / 200 == (history_200 - history) / 100
    # Of a step of 1 KB: the payloads as they are, and what is known of step, call and times.
    assert second < 2.5 * (history_400 - history_200) / 200
