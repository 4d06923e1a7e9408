"""The pytest plugin costs a run that does not use it nothing: neither imports nor options."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_pytest_finds_it() -> None:
    (found,) = entry_points(group="pytest11", name="journal")
    assert found.value == "journal_pytest"


def test_it_imports_nothing_of_the_journal() -> None:
    code = "import journal_pytest, sys; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "journal_pytest" in loaded
    assert not {"journal", "msgspec", "apsw", "aiokafka"} & {*loaded}


def test_it_has_a_fixture_and_no_hooks() -> None:
    import journal_pytest

    assert [name for name in vars(journal_pytest) if name.startswith("pytest_")] == []
    assert hasattr(journal_pytest, "journal_log")


def test_the_journal_never_imports_pytest() -> None:
    code = "import journal.testing, sys; print('pytest' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
