"""Every example runs, twice, without a key; a second run does nothing that the first has done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

FIRST = {
    "durable_functions": [*(f"fetching page {n}" for n in range(4)), "adding", "total 66"],
    "fan_out": ["1225000 people", "51 tasks completed"],
    "large_payload": ["scraping", "20,971,520 characters", "the largest event has "],
    "react_loop": ["It has 5 words."],
    "sync_loop": ["reading 0", "reading 1", "reading 2", "All three are read."],
}
AGAIN = {
    "durable_functions": ["total 66"],
    "fan_out": ["1225000 people", "51 tasks completed"],
    "large_payload": ["20,971,520 characters", "the largest event has "],
    "react_loop": ["It has 5 words."],
    "sync_loop": ["All three are read."],
}


def environment() -> dict[str, str]:
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("JOURNAL_", "OPENAI_"))}
    return ours | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}


def python(folder: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def like(printed: list[str], expected: list[str]) -> bool:
    """Sorted, since what runs at the same time prints in any order; ends may differ."""
    pairs = zip(sorted(printed), sorted(expected), strict=True)
    return all(line.startswith(beginning) for line, beginning in pairs)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_runs_twice(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text().splitlines()) < 60
    if example.stem == "approval":
        return  # It waits for a person; the next test is one.
    assert like(python(tmp_path, str(example)), FIRST[example.stem])
    assert like(python(tmp_path, str(example)), AGAIN[example.stem])


def test_the_approval_waits_across_a_kill_for_its_answer(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "approval.py")]
    for _ in range(2):
        waits = subprocess.Popen(
            command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
        )
        assert waits.stdout is not None
        assert waits.stdout.readline() == "waiting for an answer\n"
        while not _asked(tmp_path):
            assert waits.poll() is None
        waits.kill()
        waits.communicate()
    entry = "import sys; from journal.cli.main import main; sys.exit(main())"
    (said,) = python(tmp_path, "-c", entry, "answer", "refund-1", "true")
    assert said == "refund-1: answered; it is running"
    assert python(tmp_path, str(ROOT / "examples" / "approval.py")) == [
        "waiting for an answer",
        "refunded 40",
    ]


def _asked(folder: Path) -> bool:
    entry = "import sys; from journal.cli.main import main; sys.exit(main())"
    return any(
        "refund-1" in line for line in python(folder, "-c", entry, "tasks", "--status", "waiting")
    )
