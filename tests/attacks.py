"""How often a test attacks a promise, and the table of all attacks and what came of them.

JOURNAL_TEST_ROUNDS: unset few rounds, a number, or `full`, the counts that the project promises.
`--attacks FILE` writes the table, in Markdown, besides showing it.
"""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ASKED = os.environ.get("JOURNAL_TEST_ROUNDS", "")
FULL = ASKED == "full"
_BEGAN = time.monotonic()
Rounds = Callable[..., int]


def asked(full: int, few: int = 5) -> int:
    """How many rounds are asked for, where `full` are promised."""
    return full if FULL else int(ASKED or few)


@pytest.fixture
def rounds(record_property: Callable[[str, object], None]) -> Rounds:
    """`rounds(full, few=5, what="rounds")`: how many to run; they stand in the table."""

    def count(full: int, few: int = 5, what: str = "rounds") -> int:
        number = asked(full, few)
        record_property("attacks", f"{number:,} {what}")
        return number

    return count


_TITLE = """# What attacks the guarantees

Written by `./dev faults`: each test that attacks a [guarantee](guarantees.md), how often, and how
often it was broken.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--attacks", metavar="FILE", help="write the table of attacks there")


def _table(reports: list[pytest.TestReport]) -> list[tuple[str, str, str]]:
    return [
        (report.nodeid.partition("tests/")[2], str(value), "0" if report.passed else "**some**")
        for report in reports
        for name, value in report.user_properties
        if name == "attacks"
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the table, and write it where that is asked for."""
    stats = terminalreporter.stats
    rows = _table([*stats.get("passed", []), *stats.get("failed", [])])
    if not rows:
        return
    width = max(len(test) for test, _, _ in rows)
    terminalreporter.section("attacks, and violations")
    for test, count, violations in rows:
        terminalreporter.write_line(f"{test:{width}} {count:>16} {violations:>4}")
    file = terminalreporter.config.getoption("--attacks")
    if file:
        minutes = (time.monotonic() - _BEGAN) / 60
        head = (
            f"{datetime.date.today()}, Python {platform.python_version()}, "
            f"{os.cpu_count()} cores, {minutes:.0f} minutes; "
            f"{len(stats.get('passed', []))} tests passed, {len(stats.get('failed', []))} failed, "
            f"{len(stats.get('skipped', []))} were skipped.\n"
        )
        lines = [f"| `{test}` | {count} | {violations} |" for test, count, violations in rows]
        table = ["| test | attacked by | violations |", "|---|---|---|", *lines]
        Path(file).write_text("\n".join([_TITLE, head, *table, ""]))
