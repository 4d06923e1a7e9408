"""`projector run` as a process of its own, and what it says."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from journal.errors import ProjectionError
from projector.client import query

PATIENCE_S = 60.0


class Child:
    """A running projector. `said` holds the lines of its stderr that have been read."""

    def __init__(self, process: asyncio.subprocess.Process, db: Path) -> None:
        self.process = process
        self.db = db
        self.said: list[str] = []

    async def line(self) -> str:
        """The next line of its stderr; empty once it has ended."""
        assert self.process.stderr is not None
        raw = await asyncio.wait_for(self.process.stderr.readline(), PATIENCE_S)
        if raw:
            self.said.append(raw.decode().rstrip("\n"))
        return raw.decode()

    async def until(self, words: str) -> str:
        """The next line that holds `words`."""
        while words not in (line := await self.line()):
            assert line, f"it ended, and said: {self.said}"
        return line

    async def answers(self, sql: str) -> list[dict[str, Any]]:
        """What it answers on its socket."""
        return await answers(str(self.db), sql)

    async def has(self, sql: str, count: int) -> None:
        """Return once the number that `sql` selects is `count`."""
        async with asyncio.timeout(PATIENCE_S):
            while [count] != [n for row in await self.answers(sql) for n in row.values()]:
                pass

    def unlimited(self) -> None:
        """Let its files grow again."""
        unlimited = resource.RLIM_INFINITY, resource.RLIM_INFINITY
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, unlimited)

    async def ended(self, number: int = signal.SIGTERM) -> int:
        """Its exit status after a signal."""
        self.process.send_signal(number)
        while await self.line():
            pass
        return await asyncio.wait_for(self.process.wait(), PATIENCE_S)


async def answers(db: str, sql: str) -> list[dict[str, Any]]:
    """What a running projector answers, asked once more where it says so."""

    def ask() -> list[dict[str, Any]]:
        with query(db, sql) as reader:
            rows: list[dict[str, Any]] = reader.read_all().to_pylist()
            return rows

    while True:
        try:
            return await asyncio.to_thread(ask)
        except ProjectionError as error:
            if "try again" not in str(error):
                raise


@asynccontextmanager
async def running(
    url: str,
    db: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    file_bytes: int | None = None,
) -> AsyncIterator[Child]:
    """`projector run` on a log, killed at the end where it still runs. None of its files may grow
    past `file_bytes`, until `Child.unlimited`."""

    def limit() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "projector.cli", "run", "--log", url, "--db", str(db),
        *options, stderr=asyncio.subprocess.PIPE, env=env, preexec_fn=limit,
    )  # fmt: skip
    try:
        yield Child(process, db)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
