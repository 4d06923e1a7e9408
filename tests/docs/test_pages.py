"""Runs the programs of pages twice; what stands under each must come out each time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("agents", "effects", "traces", "values")


def pairs(page: str) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """The page's programs, each with what stands under it."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    blocks = [(m[1], m[2]) for m in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)]
    return list(zip(blocks[::2], blocks[1::2], strict=True))


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        pytest.param(*pair, id=f"{page} {n}")
        for page in PAGES
        for n, pair in enumerate(pairs(page), 1)
    ],
)
def test_a_block_prints_what_stands_under_it(
    program: tuple[str, str], printed: tuple[str, str], tmp_path: Path
) -> None:
    assert (program[0], printed[0]) == ("python", "text")
    (tmp_path / "program.py").write_text(program[1])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JOURNAL_")}
    for _ in ("the first run", "a replay"):
        done = subprocess.run(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env=environment | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        assert (done.stdout, done.stderr, done.returncode) == (printed[1], "", 0)
