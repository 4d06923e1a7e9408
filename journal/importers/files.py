"""The door to the importers: which format a file has, and the runs in it.

The format is found in the content, never in the name. Everything here is total: whatever a file
holds, the outcome is runs and problems, never an exception. Knows no log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from journal.importers import atif, checkpoint, claude_code, openai_messages, swe_agent
from journal.importers.model import ImportedRun, Problem, Report
from journal.importers.reading import Malformed, ReportAt, at_line, documents

FORMATS = {
    claude_code.FORMAT: claude_code.detect,
    atif.FORMAT: atif.detect,
    swe_agent.FORMAT: swe_agent.detect,
    checkpoint.FORMAT: checkpoint.detect,
    openai_messages.FORMAT: openai_messages.detect,
}
"""Names of formats, each with the function that knows its own."""

_UNKNOWN = "unknown format; what can be imported: " + ", ".join(FORMATS)


def detect(value: Any) -> str | None:
    """The format that a JSON value of a file is in, or None."""
    found = next((name for name, knows in FORMATS.items() if knows(value)), None)
    if found is None and openai_messages.is_message(value):
        return openai_messages.FORMAT
    return found


def read_file(
    path: str | os.PathLike[str], on_problem: Callable[[Problem], None]
) -> Iterator[ImportedRun]:
    """The runs in one file. What is wrong in it goes to `on_problem`, and the rest is read on;
    a file that yields no run is a problem too."""
    name = os.fspath(path)
    runs = 0
    explained = False

    def report(line: int | None, reason: str) -> None:
        nonlocal explained
        explained |= line is None
        on_problem(Problem(name, line, reason))

    try:
        with open(path, "rb") as file:
            data = file.read()
    except (OSError, ValueError) as error:
        report(None, getattr(error, "strerror", None) or str(error))
        return
    try:
        for run in _read(data, os.path.basename(name), report):
            runs += 1
            yield run
    except RecursionError:
        # What was just shallow enough to decode may be too deep to compare or to encode.
        report(None, "nested too deep; what follows is not read")
    if not runs and not explained:
        report(None, "nothing to import: not one message or step in it")


def _read(data: bytes, name: str, report: ReportAt) -> Iterator[ImportedRun]:
    values = documents(data, report)
    unknown: list[tuple[int, Any]] = []
    recognised = False
    for line, value in values:
        found = detect(value)
        if found is None:
            unknown.append((line, value))
        elif found == claude_code.FORMAT:
            yield from claude_code.read(chain(unknown, [(line, value)], values), report)
            return
        elif openai_messages.is_message(value):
            yield from openai_messages.read_lines(chain(unknown, [(line, value)], values), report)
            return
        else:
            recognised = True
            yield from _document(found, value, name, at_line(report, line))
    if not recognised:
        if unknown:
            report(None, _UNKNOWN)
        return
    for line, _ in unknown:
        report(line, _UNKNOWN)


def _document(found: str, value: Any, name: str, report: Report) -> Iterator[ImportedRun]:
    try:
        if found == atif.FORMAT:
            yield from atif.read(value, report)
        elif found == swe_agent.FORMAT:
            yield from swe_agent.read(value, name, report)
        elif found == checkpoint.FORMAT:
            yield from checkpoint.read(value, report)
        else:
            yield from openai_messages.read(value, report)
    except Malformed as error:
        report(str(error))
