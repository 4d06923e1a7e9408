"""`journal import` as a user has it: a log, files, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from journal.cli.import_ import import_files
from journal.cli.main import parser
from journal.client import connect
from journal.state import TaskState


class Desk:
    """A log, and a folder of files."""

    def __init__(self, url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self.folder = folder
        self._capsys = capsys

    def put(self, name: str, *values: Any) -> str:
        """A file of one JSON value a line; returns its path."""
        path = self.folder / name
        path.write_text("".join(json.dumps(value) + "\n" for value in values))
        return str(path)

    async def run(self, *args: str) -> tuple[int, list[str], list[str]]:
        """(exit status, lines on stdout, lines on stderr)."""
        arguments = parser().parse_args(["import", "--log", self.url, *args])
        status = await import_files(arguments, None)
        out, err = self._capsys.readouterr()
        return status, out.splitlines(), err.splitlines()

    async def state(self, task_id: str) -> TaskState:
        async with connect(self.url) as journal:
            return await journal.state(task_id)

    async def tasks(self) -> list[TaskState]:
        async with connect(self.url) as journal:
            return await journal.tasks()

    async def events(self, task_id: str) -> list[str]:
        async with connect(self.url) as journal:
            return [f"{e.type} {e.v}" async for _, e in journal.events(task_id)]
