"""What commands print where the words are awkward: other encodings, several lines."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import journal
from tests import commands

TEXT = "caf\xe9 \u65e5\u672c \U0001f600"


async def ran(*arguments: str, encoding: str) -> str:
    done = await asyncio.to_thread(commands.run, *arguments, PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_what_an_encoding_cannot_carry_is_escaped_and_json_stays_json(tmp_path: Path) -> None:
    url = str(tmp_path / "journal.db")
    async with journal.connect(url) as j, j.task("t", TEXT) as task:
        await task.record_step(0, TEXT)
    for encoding in ("ascii", "utf-8"):
        assert json.loads(await ran("state", "t", "--log", url, encoding=encoding))
        lines = (await ran("replay", "t", "--log", url, encoding=encoding)).splitlines()
        assert json.loads(lines[0])["body"]["description"] == TEXT
        tail = ["tail", "--from", "start", "--count", "2", "--format", "json", "--log", url]
        lines = (await ran(*tail, encoding=encoding)).splitlines()
        assert TEXT in [json.loads(line).get("body", {}).get("description") for line in lines]
        shown = await ran("show", "t", "--log", url, encoding=encoding)
        assert (r"caf\u00e9 \u65e5" if encoding == "ascii" else TEXT) in shown


async def test_an_error_of_several_lines_is_one_line(tmp_path: Path) -> None:
    url = str(tmp_path / "journal.db")
    async with journal.connect(url) as j, j.task("t", "d") as task:
        await task.fail("boom\nsecond")
    done = await asyncio.to_thread(
        commands.run, "resolve", "t", "0:0", "--result", "1", "--log", url
    )
    assert done.returncode == 1
    assert "boom second" in done.stderr
    assert done.stderr.count("\n") == 1
