"""The tests bite: each promise that is broken on purpose makes a test fail.

The source is copied, broken in one place, and the tests that guard that place are run there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
COPIED = ("journal", "journal_pytest", "projector", "tests", "pyproject.toml")
TESTS_FAILED = 1
"""pytest's exit status; others say that it could not run them."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source, to be broken."""
    to = tmp_path_factory.mktemp("mutated")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, to / name)
    return to


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name.replace(" ", "_"))
def test_a_broken_promise_is_seen(copy: Path, mutation: Mutation) -> None:
    file = copy / mutation.file
    whole = file.read_text()
    assert whole.count(mutation.old) == 1, f"{mutation.file} has changed; change the mutation"
    file.write_text(whole.replace(mutation.old, mutation.new))
    try:
        ran = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", "-x", "-p", "no:cacheprovider", *mutation.tests],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
        )
    finally:
        file.write_text(whole)
    assert ran.returncode == TESTS_FAILED, ran.stdout[-2000:] + ran.stderr[-2000:]
