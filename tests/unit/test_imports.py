"""What may import what: the contracts of pyproject.toml hold, and say all that they should."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
PURE = next(c for c in CONTRACTS if c["name"].startswith("The pure core"))["source_modules"]


def imported(file: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            names = [f"{node.module}.{name.name}" for name in node.names]
            inside = [n for n in names if (ROOT / (n.replace(".", "/") + ".py")).exists()]
            yield from inside or [node.module or ""]


def test_the_contracts_hold() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(CONTRACTS)} kept, 0 broken" in done.stdout


@pytest.mark.parametrize("module", PURE)
def test_the_pure_core_imports_msgspec_and_itself_and_no_more(module: str) -> None:
    # The contract forbids what it names; this forbids what it does not.
    for name in imported(ROOT / (module.replace(".", "/") + ".py")):
        top = name.split(".")[0]
        assert name in PURE or top == "msgspec" or top in sys.stdlib_module_names, name
        assert top not in ("time", "random", "os", "asyncio", "datetime", "threading"), name


@pytest.mark.parametrize(
    ("library", "prefix"),
    [("aiokafka", "journal.kafka_"), ("apsw", "journal.sqlite_"), ("duckdb", "projector.store")],
)
def test_only_the_files_of_its_backend_may_import_a_client(library: str, prefix: str) -> None:
    (contract,) = [c for c in CONTRACTS if c.get("protected_modules") == [library]]
    assert all(name.startswith(prefix) for name in contract["allowed_importers"])
