"""The commands that write a journal, on a disk that is full: one line, and nothing in halves.

A limit on the size of files stands in for the disk. What the log itself does then is in
`test_sqlite_log`, what the projector does in `test_projector_disk`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import journal
from tests.broker.base import free_ports

LARGE = "x" * 900_000
"""A payload that has to go to the blob store."""


def run(folder: Path, *arguments: str, file_bytes: int | None = None) -> tuple[int, str, str]:
    """`journal` in a process none of whose files may grow past `file_bytes`."""

    def limit() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))

    env = {k: v for k, v in os.environ.items() if not k.startswith("JOURNAL_")}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from journal.cli.main import main; sys.exit(main())",
         *arguments],
        env=env | {"TMPDIR": str(folder)},
        preexec_fn=limit, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def blobs(path: Path) -> list[bytes]:
    files = Path(f"{path}.blobs").rglob("*")
    return sorted(file.read_bytes() for file in files if file.is_file())


async def imported(path: Path) -> list[tuple[str, int, object]]:
    async with journal.connect(path, create=False) as j:
        return [(t.status, t.current_step, t.final_answer) for t in await j.tasks()]


async def test_an_import_that_has_no_room_can_be_run_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    chat = tmp_path / "chat.json"
    said = [{"role": "user", "content": "How long?"}, {"role": "assistant", "content": LARGE}]
    chat.write_text(json.dumps(said))
    assert run(tmp_path, "init", "--log", str(path))[0] == 0
    arguments = ["import", "--log", str(path), str(chat)]
    code, out, err = run(tmp_path, *arguments, file_bytes=500_000)
    assert (code, out) == (1, "")
    assert err == f"journal: {path}.blobs: cannot store a payload: File too large\n"
    assert blobs(path) == []
    assert run(tmp_path, *arguments)[0] == 0
    assert run(tmp_path, "import", "--log", str(tmp_path / "calm.db"), str(chat))[0] == 0
    assert await imported(path) == await imported(tmp_path / "calm.db")
    assert blobs(path) == blobs(tmp_path / "calm.db") != []


@pytest.mark.parametrize("where", ["disk", "kafka"])
def test_a_demo_that_cannot_write_is_one_line(tmp_path: Path, where: str) -> None:
    (port,) = free_ports(1)
    url = f"kafka://127.0.0.1:{port}/t"
    options = ["--log", url] if where == "kafka" else []
    code, out, err = run(tmp_path, "demo", *options, file_bytes=10_000)
    assert code == 1
    assert out.startswith("1. An agent works on")
    assert "2." not in out
    assert err.startswith("journal: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
