"""Runs every block of the README and compares what stands under it with what comes out.

Knows Markdown's fences and the two commands; the containers are test_compose.py's business, so
their blocks are only held against docker-compose.yml.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMPOSE = (ROOT / "docker-compose.yml").read_text()
BLOCKS = [(m[1], m[2]) for m in re.finditer(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)]
ENTRY = "import sys; from {module} import main; sys.exit(main())"
MODULES = {"journal": "journal.cli.main", "projector": "projector.cli"}


def run(arguments: list[str], folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120", "PYTHONUTF8": "1"}
    for name in ("JOURNAL_LOG", "JOURNAL_DB", "JOURNAL_BLOBS", "JOURNAL_KAFKA_CONFIG"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


def command(line: str, folder: Path) -> str:
    name, *arguments = shlex.split(line)
    return run(["-c", ENTRY.format(module=MODULES[name]), *arguments], folder)


def plain(text: str) -> list[str]:
    """Lines without their ends, empty ones and the demo's own task id."""
    text = re.sub(r"\bt-[0-9a-z]+(-[0-9a-z]+)?\b", "t-1", text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_every_block_runs(tmp_path: Path) -> None:
    printed: list[str] = []
    shown = 0
    for kind, text in BLOCKS:
        lines = text.splitlines()
        if kind == "python":
            (tmp_path / "agent.py").write_text(text)
            printed = plain(run(["agent.py"], tmp_path))
            assert plain(run(["agent.py"], tmp_path)) == printed, "resuming prints something else"
        elif kind == "text":
            if printed:
                assert plain(text) == printed
                shown += 1
            printed = []
        elif any(line.startswith("docker ") for line in lines):
            check_containers(lines)
        elif lines == ["./dev demo"]:
            printed = plain(command("journal demo", tmp_path))
        elif lines == ["./dev test"]:
            assert re.search(r"^  test\) exec pytest", (ROOT / "dev").read_text(), re.M)
        else:
            assert kind == "sh", f"no way to run a block of {kind!r}"
            printed = plain("".join(command(line, tmp_path) for line in lines))
    assert shown == 3


def check_containers(lines: list[str]) -> None:
    services = set(re.findall(r"^  ([\w-]+):$", COMPOSE.split("\nservices:")[1], re.M))
    for line in lines:
        if line.startswith("docker compose"):
            named = re.search(r"(?:up -d|exec) ?(\S*)", line)
            assert named, line
            assert named[1] in {"", *services}, line
            for profile in re.findall(r"--profile (\S+)", line):
                assert f"profiles: [{profile}]" in COMPOSE, line
        else:
            assert line.startswith(".venv/bin/journal demo --log kafka://"), line
            url = line.split("kafka://")[1]
            assert f"/{url.split('/')[1]}" in COMPOSE
            for port in re.findall(r"localhost:(\d+)", url):
                assert f":-{port}}}:9092" in COMPOSE, line


def test_links_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    ]
    assert links
    assert [(p.name, link) for p, link in links if not (p.parent / link).exists()] == []


def test_the_tests_that_hold_the_guarantees_exist() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    named = set(re.findall(r"\b(test_\w+\.py)", text))
    assert named
    assert named <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}


@pytest.mark.parametrize("page", ["coming-from", "guarantees"])
def test_the_tests_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    named = re.findall(r"`(test_\w+)`", text)
    assert named
    code = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in named if f"def {name}(" not in code] == []
