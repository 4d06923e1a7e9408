"""Runs every block of docs/testing.md: tests with pytest, in a folder of their own, and scripts.

Knows Markdown's fences and the name in a block's first line; what the kit does is
tests/unit/test_testing.py's business.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()
BLOCKS = [(m[1], m[2]) for m in re.finditer(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)]
CODE = {re.match(r"# (\S+\.py)\n", text)[1]: text for kind, text in BLOCKS if kind == "python"}  # type: ignore[index]
SAID = [text for kind, text in BLOCKS if kind == "text"]


def run(arguments: list[str], folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    for name in ("JOURNAL_LOG", "JOURNAL_BLOBS", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_pages_tests_pass(tmp_path: Path) -> None:
    names = [name for name in CODE if name.startswith("test_")]
    assert names == ["test_agent.py", "test_plain.py", "test_fixture.py"]
    for name in names:
        (tmp_path / name).write_text(CODE[name])
    said = run(["-m", "pytest", "-p", "no:cacheprovider", "--color=no", *names], tmp_path)
    count = sum(CODE[name].count("\ndef test_") for name in names)
    assert re.search(rf"^=+ {count} passed in ", said, re.M), said
    # Nothing is left beside the tests: a log in memory keeps its large payloads there too.
    assert {path.name for path in tmp_path.iterdir()} <= {*names, "__pycache__"}


def test_the_pages_scripts_print_what_it_says(tmp_path: Path) -> None:
    names = [name for name in CODE if not name.startswith("test_")]
    assert len(names) == len(SAID) == 1
    for name, said in zip(names, SAID, strict=True):
        (tmp_path / name).write_text(CODE[name])
        assert run([name], tmp_path) == said


def test_the_mended_script_passes(tmp_path: Path) -> None:
    """What the page says of the mended script is so as well."""
    (name,) = (name for name in CODE if not name.startswith("test_"))
    mended = CODE[name].replace("announce(step.index)", "await step.call(announce, step.index)")
    assert mended != CODE[name]
    (tmp_path / name).write_text(mended)
    assert run([name], tmp_path) == ""
