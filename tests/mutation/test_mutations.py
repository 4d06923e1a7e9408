"""The tests bite: each promise that is broken on purpose makes a test fail.

The source is copied, broken in one place, and the tests that guard that place are run there. With
JOURNAL_TEST_ROUNDS=full the simulation's own list is tried as well, by its seeds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks import FULL
from tests.mutation.mutations import MUTATIONS, Mutation
from tests.simulation.mutations import MUTATIONS as BY_SEEDS
from tests.simulation.mutations import SEEDS
from tests.simulation.mutations import Mutation as BySeeds

ROOT = Path(__file__).parents[2]
COPIED = ("journal", "journal_pytest", "projector", "tests", "pyproject.toml")
TESTS_FAILED = 1
"""pytest's exit status; others say that it could not run them."""


@pytest.fixture(autouse=True)
def attacked(record_property: Callable[[str, object], None]) -> None:
    record_property("attacks", "1 change")


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


def broken(copy: Path, file: str, old: str, new: str, *tests: str, rounds: str = "") -> None:
    """The tests fail where the source is broken so."""
    source = copy / file
    whole = source.read_text()
    assert whole.count(old) == 1, f"{file} has changed; change the mutation"
    source.write_text(whole.replace(old, new))
    try:
        ran = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy), "JOURNAL_TEST_ROUNDS": rounds},
            capture_output=True,
            text=True,
        )
    finally:
        source.write_text(whole)
    assert ran.returncode == TESTS_FAILED, ran.stdout[-2000:] + ran.stderr[-2000:]


def _name(mutation: object) -> str:
    return str(mutation[0]).replace(" ", "_")  # type: ignore[index]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=_name)
def test_a_broken_promise_is_seen(copy: Path, mutation: Mutation) -> None:
    _, file, old, new, tests = mutation
    broken(copy, file, old, new, *tests)


@pytest.mark.skipif(not FULL, reason="minutes each; JOURNAL_TEST_ROUNDS=full")
@pytest.mark.parametrize("mutation", BY_SEEDS, ids=_name)
def test_some_seed_sees_it(copy: Path, mutation: BySeeds) -> None:
    _, file, old, new = mutation
    seeds = ("tests/simulation/test_simulation.py", "-k", "no_seed")
    broken(copy, file, old, new, *seeds, rounds=str(SEEDS))
