"""Finding one task in a topic: what is read for it, and what is shown meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import journal
from journal.cli.progress import LONG
from tests.make_events import many
from tests.projecting import new_log, put


@pytest.mark.kafka
async def test_a_scan_is_told_and_an_id_with_its_birth_needs_none(kafka_url: str) -> None:
    log, _ = await new_log(kafka_url, 1)
    await put(log, many(300))
    before = (await log.ends())[0]
    born = journal.new_task_id()
    async with journal.connect(kafka_url) as j:
        for task_id in ("mine", born):
            async with j.task(task_id, "d") as task:
                await task.complete("done")
    end = (await log.ends())[0]
    await log.close()
    seen: list[tuple[int, int]] = []
    async with journal.connect(kafka_url, on_scan=lambda *how_far: seen.append(how_far)) as j:
        assert (await j.state("mine")).final_answer is not None
        assert len(seen) > 2
        assert seen == sorted(seen)
        assert {total for _, total in seen} == {end}
        assert seen.index((end, end)) == len(seen) - 1
        for ask in (j.state, j.records):
            seen.clear()
            assert await ask(born)
            assert {total for _, total in seen} <= set(range(end - before + 1))
        seen.clear()
        assert [event.type async for _, event in j.events(born)] == ["TaskStarted", "TaskCompleted"]
        assert {total for _, total in seen} <= set(range(end - before + 1))


async def test_the_embedded_log_has_an_index(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = tmp_path / "journal.db"
    async with journal.connect(path, on_scan=lambda *how_far: seen.append(how_far)) as j:
        async with j.task("mine", "d") as task:
            await task.complete("done")
        assert (await j.state("mine")).final_answer is not None
    assert seen == []


COMMAND = [sys.executable, "-c", "import sys; from journal.cli.main import main; sys.exit(main())"]


def on_a_terminal(command: list[str]) -> tuple[int, str, str]:
    """Exit status, stdout, and what a terminal on stderr was sent."""
    ours, theirs = os.openpty()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:
        # What a terminal says once nobody holds its other end.
        pass
    os.close(ours)
    out, _ = child.communicate()
    return child.returncode, out, shown.decode()


@pytest.mark.kafka
async def test_commands_show_a_bar_on_a_terminal_alone(kafka_url: str) -> None:
    log, _ = await new_log(kafka_url, 1)
    await put(log, ((b"other", b"-") for _ in range(LONG)))
    await log.close()
    async with journal.connect(kafka_url) as j, j.task("mine", "d") as task:
        await task.fail("no")
    for name in ("show", "state", "replay", "retry"):
        command = [*COMMAND, name, "mine", "--log", kafka_url]
        if name == "state":
            piped = await asyncio.to_thread(subprocess.run, command, capture_output=True)
            assert (piped.returncode, piped.stderr) == (0, b"")
        code, out, shown = await asyncio.to_thread(on_a_terminal, command)
        assert (name, code) == (name, 0)
        assert "mine" in out
        assert "looking for the task" in shown
        assert shown.count("journal.new_task_id()") == 1
