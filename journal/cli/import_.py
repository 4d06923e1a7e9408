"""The command `journal import`: files in, one line for each on the screen.

Prints what the importers and the writer say; knows no format and no event.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from journal.client import connect
from journal.importers.files import read_file
from journal.importers.model import Problem
from journal.importers.write import Importer
from journal.payloads import clean


async def import_files(arguments: argparse.Namespace, config: Mapping[str, Any] | None) -> int:
    """Import every file into the log, which is made if it is missing. Returns 1 where a file
    yields no run, or, with `--strict`, where there was any problem."""
    problems = 0
    status = 0

    async with connect(
        arguments.log, create=True, kafka_config=config, redact=arguments.redact
    ) as journal:

        def note(line: str) -> None:
            print(clean(line, journal.blobs), file=sys.stderr)

        def problem(what: Problem | str) -> None:
            nonlocal problems
            problems += 1
            note(str(what))

        importer = Importer(journal, note, problem)
        for path in arguments.files:
            runs = events = 0
            for run in read_file(path, problem):
                runs += 1
                events += await importer.write(run)
            if not runs:
                status = 1
            print(
                f"{path}: {runs} task{'s' * (runs != 1)}, {events} new event{'s' * (events != 1)}"
            )
    return 1 if arguments.strict and problems else status
