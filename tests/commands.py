"""The command `journal` as a process of its own, with no settings around it.

For tests that must see what a user sees: exit status, both streams, signals.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

ENTRY = "import sys; from journal.cli.main import main; sys.exit(main())"
SECONDS = 60
"""For what comes at once, on a machine that has much else to do."""

Checks = dict[str, dict[str, Any]]


def _environment(**more: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("JOURNAL_")}
    return ours | {"PYTHONPATH": os.getcwd(), "PYTHONUTF8": "1"} | more


def run(
    *arguments: str, entry: str = ENTRY, cwd: os.PathLike[str] | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """The command to its end; `more` are environment variables."""
    return subprocess.run(
        [sys.executable, "-c", entry, *arguments],
        cwd=cwd,
        env=_environment(**more),
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )


# --- in the background --------------------------------------------------------------------------


async def journal(
    *arguments: str, stdout: int = asyncio.subprocess.PIPE
) -> asyncio.subprocess.Process:
    """The command, started."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        ENTRY,
        *arguments,
        env=_environment(),
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=_hear_interrupts,
    )


def _hear_interrupts() -> None:
    # Tests that were started in the background ignore Ctrl-C, and so would their children.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def ended(child: asyncio.subprocess.Process) -> tuple[int | None, list[str], list[str]]:
    """Exit status, lines of output, lines of standard error."""
    out, err = await asyncio.wait_for(child.communicate(), SECONDS)
    return child.returncode, (out or b"").decode().splitlines(), err.decode().splitlines()


async def line(child: asyncio.subprocess.Process) -> str:
    """The next line of output."""
    assert child.stdout is not None
    return (await asyncio.wait_for(child.stdout.readline(), SECONDS)).decode()


@asynccontextmanager
async def tailing(
    *arguments: str, stdout: int = asyncio.subprocess.PIPE
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A `journal tail` that has read where the log ends: it prints what is appended from now on."""
    child = await journal("tail", *arguments, stdout=stdout)
    try:
        assert child.stderr is not None
        first = await asyncio.wait_for(child.stderr.readline(), SECONDS)
        assert first.startswith(b"journal: following "), first
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


# --- journal doctor -----------------------------------------------------------------------------


def doctor(url: object, **options: str) -> tuple[int, Checks]:
    """Exit status, and the checks by their names."""
    done = run("doctor", "--log", str(url), "--format", "json", **options)
    assert done.stderr == ""
    return done.returncode, {check["check"]: check for check in json.loads(done.stdout)}


def wrong(checks: Checks) -> list[str]:
    """The names of those that say so."""
    return [name for name, check in checks.items() if check["status"] == "wrong"]
