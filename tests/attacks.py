"""How often a test attacks a promise, and the table of all attacks and what came of them.

JOURNAL_TEST_ROUNDS: unset few rounds, a number, or `full`, the counts that the project promises.
`--attacks FILE` keeps the table in a page, besides showing it.
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

ASKED = os.environ.get("JOURNAL_TEST_ROUNDS", "")
FULL = ASKED == "full"
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


_HEAD = """# What attacks the guarantees

Written by `./dev faults`, a row when its test has ended: each test that attacks a
[guarantee](guarantees.md), how often, how often it was broken, for how long, and when. A part of
it, as in `./dev faults tests/fire`, writes the rows of that part anew. Of a mutation, which is a
change to the source that breaks a promise, a violation would be that no test fails.

| test | attacked by | violations | minutes | on |
|---|---|---|---|---|
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--attacks", metavar="FILE", help="write the table of attacks there")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Table(config.getoption("--attacks")))


class Table:
    """The rows of this run; in the file, those of earlier runs as well."""

    def __init__(self, file: str | None) -> None:
        self._file = None if file is None else Path(file)
        self._rows: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        attacks = [str(what) for name, what in report.user_properties if name == "attacks"]
        # A fixture that fails, before or after, is no attack that was withstood.
        if not report.failed and (report.when != "call" or report.skipped or not attacks):
            return
        if not attacks and self._file is None:
            return
        attacks = attacks or ["none"]
        test, violations = report.nodeid.partition("tests/")[2], "some" if report.failed else "0"
        self._rows[test] = attacks[0], violations
        if self._file is not None:
            minutes = f"{report.duration / 60:.1f}"
            where = f"{datetime.date.today()}, Python {platform.python_version()}"
            self._write(f"| `{test}` | {attacks[0]} | {violations} | {minutes} | {where} |")

    def _write(self, row: str) -> None:
        assert self._file is not None
        rows = [row]
        if self._file.exists():
            kept = self._file.read_text().splitlines()
            rows += [line for line in kept if line.startswith("| `") and _test(line) != _test(row)]
        self._file.write_text(_HEAD + "".join(f"{line}\n" for line in sorted(rows)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._rows:
            return
        width = max(map(len, self._rows))
        terminalreporter.section("attacks, and violations")
        for test, (attacks, violations) in self._rows.items():
            terminalreporter.write_line(f"{test:{width}} {attacks:>18} {violations:>4}")


def _test(row: str) -> str:
    return row.split("`")[1]
