"""`--help` is quick: it loads none of the heavy libraries that the commands themselves need."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMANDS = {"journal": "journal.cli.main", "projector": "projector.cli"}
HEAVY = {"aiokafka", "apsw", "duckdb", "msgspec", "packaging", "pyarrow", "rich", "tenacity"}

SHOW = """
import sys
from {module} import main
try:
    main({arguments!r})
except SystemExit as ended:
    assert ended.code == 0, ended.code
print(*sorted({{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""


def shown(command: str, *arguments: str) -> tuple[str, set[str]]:
    """What a command prints, and the packages that it has loaded by then."""
    code = SHOW.format(module=COMMANDS[command], arguments=[*arguments])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_nothing_heavy(command: str) -> None:
    text, loaded = shown(command, "--help")
    assert f"usage: {command}" in text
    assert {"journal", "argparse"} <= loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("name", ["tail", "doctor", "tasks", "import"])
def test_help_on_a_command_loads_nothing_heavy_either(name: str) -> None:
    text, loaded = shown("journal", name, "--help")
    assert f"usage: journal {name}" in text
    assert loaded & HEAVY == set()
