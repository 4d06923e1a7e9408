"""Runs the commands of docs/operation.md in order; what stands under each must come out.

Knows Markdown's fences. Of the blocks for Kubernetes the commands are run, of those for Prometheus
the metrics' names are looked for.
"""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

from journal import acceptance
from projector import folding
from tests.broker.base import free_ports
from tests.docs.test_readme import command
from tests.integration.test_projector_operation import get
from tests.projector_child import PATIENCE_S, running

PAGE = (Path(__file__).parents[2] / "docs" / "operation.md").read_text()
BLOCKS = [(m[1], m[2]) for m in re.finditer(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)]
PORT = "9464"


async def test_every_block_is_so(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    sh = [text.splitlines() for kind, text in BLOCKS if kind == "sh"]
    said = iter([text for kind, text in BLOCKS if kind == "text"])
    (init, run), probes, (curl,), (kill,) = sh
    assert command(init, tmp_path)
    assert run.startswith("projector run --log journal.db --db runs.duckdb ")
    assert run.endswith(f" --metrics {PORT} &")
    options = ("--metrics", str(port))
    async with running(str(tmp_path / "journal.db"), tmp_path / "runs.duckdb", *options) as child:
        await child.until("following")
        await child.has("SELECT next_offset FROM offsets", 1)
        found = [await asyncio.to_thread(command, line, tmp_path) for line in probes]
        assert "".join(found) == next(said)
        await figures(curl.removeprefix("curl ").replace(PORT, str(port)), next(said).splitlines())
        for arguments in re.findall(r"command: \[(.*?)\]", PAGE):
            line = " ".join(arguments.split(", "))
            assert await asyncio.to_thread(command, line, tmp_path) == "following\n"
        assert kill == "kill %1"
        assert await child.ended(signal.SIGTERM) == 0
    assert next(said, None) is None


async def figures(url: str, lines: list[str]) -> None:
    """All that the page says of metrics is among what is served; asked until the batch is in it."""
    async with asyncio.timeout(PATIENCE_S):
        while not set(lines) <= set((text := await asyncio.to_thread(get, url)).splitlines()):
            pass
    served = set(re.findall(r"^# TYPE (step_journal_\w+) ", text, re.M))
    told = set(re.findall(r"^\| `(step_journal_\w+)", PAGE, re.M))
    assert told == served
    (rules,) = (text for kind, text in BLOCKS if kind == "yaml" and "alert:" in text)
    assert set(re.findall(r"step_journal_\w+", rules)) <= served


def test_every_label_is_told() -> None:
    rejected = (
        "HEADLESS",
        "AFTER_END",
        "FENCED",
        "STALE",
        "DUPLICATE",
        "CLOSED",
        "CONFLICT",
        "GAP",
    )
    labels = {getattr(acceptance, name) for name in (*rejected, "OUT_OF_PLACE")}
    labels |= {folding.UNDECODABLE, folding.MISPLACED, folding.FOREIGN}
    assert labels <= set(re.findall(r"`(\w+)`", PAGE))
