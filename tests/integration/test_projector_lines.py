"""What a projector says of a path that is not UTF-8, of a library that is absent or broken, and
when it says that it hangs."""

from __future__ import annotations

import inspect
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from projector.health import Pulse, ask
from projector.logs import _Json


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names of any bytes")
def test_a_path_that_is_not_utf8_is_one_line_of_json(tmp_path: Path) -> None:
    log = os.fsencode(tmp_path) + b"/no\xff.db"
    done = subprocess.run(
        [sys.executable, "-m", "projector.cli", "run", "--once", "--log-format", "json",
         "--db", str(tmp_path / "r.duckdb"), "--log", log],
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    line = json.loads(done.stderr)
    assert line["level"] == "error"
    assert "/no\\udcff.db" in line["message"]


def test_a_traceback_that_names_such_a_path_is_json() -> None:
    try:
        raise RuntimeError("no\udcff.db")
    except RuntimeError:
        record = logging.LogRecord("projector", 40, "", 0, "failed", (), sys.exc_info())
    assert json.loads(_Json().format(record))["exception"].endswith("RuntimeError: no\\udcff.db")


async def test_a_probe_is_still_there_when_a_loop_that_hangs_is_given_up() -> None:
    patience = inspect.signature(ask).parameters["patience_s"].default
    assert Pulse()._patience_s < patience


@pytest.mark.parametrize(
    ("library", "wanted", "status"),
    [
        ("raise ModuleNotFoundError('none', name='prometheus_client')", "pip install", 2),
        ("import what_it_needs", "No module named 'what_it_needs'", 1),
    ],
)
def test_a_library_that_is_absent_or_broken(
    tmp_path: Path, library: str, wanted: str, status: int
) -> None:
    (tmp_path / "prometheus_client.py").write_text(library)
    done = subprocess.run(
        [sys.executable, "-m", "projector.cli", "run", "--once", "--metrics", "0"],
        env=os.environ | {"PYTHONPATH": str(tmp_path), "JOURNAL_DB": str(tmp_path / "r.duckdb")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert wanted in done.stderr
    assert (done.returncode, done.stderr.count("\n")) == (status, 1)
