"""docker-compose.yml, brought up for real: the demo from this machine, SQL in the container.

Knows the commands, the tables that the README names, and where a task's partition is. Needs a
Docker engine; the project's name, its ports and its volumes are this test's own.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from journal.partition import partition_of
from tests.broker.base import free_ports
from tests.topics import admin

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]
IMAGES = ["apache/kafka:4.3.1", "python:3.13-slim"]
# What is waited for took half a minute at most on two busy cores.
PATIENCE_S = 120.0
JOURNAL = "import sys; from journal.cli.main import main; sys.exit(main())"


def _run(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def _ok(run: subprocess.CompletedProcess[str]) -> str:
    assert run.returncode == 0, f"{run.args}\n{run.stdout[-4000:]}\n{run.stderr[-4000:]}"
    return run.stdout


@functools.cache
def _missing() -> str | None:
    """What an engine that answers still lacks for these tests."""
    if not _compose_command():
        return "neither docker compose nor docker-compose is installed"
    for image in IMAGES:
        if _run("docker", "image", "inspect", image).returncode:
            pull = _run("docker", "pull", "-q", image)
            if pull.returncode:
                return f"the image {image} cannot be pulled: {pull.stderr.strip()}"
    return None


@functools.cache
def _compose_command() -> tuple[str, ...]:
    for command in [("docker", "compose"), ("docker-compose",)]:
        if shutil.which(command[0]) and _run(*command, "version").returncode == 0:
            return command
    return ()


class Compose:
    """One project of docker-compose.yml. Raises `AssertionError` with a failed command's output."""

    def __init__(self, profile: str | None) -> None:
        names = ["KAFKA_PORT", "KAFKA1_PORT", "KAFKA2_PORT", "KAFKA3_PORT"]
        ports = free_ports(len(names))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("JOURNAL_")}
        self.env |= {name: str(port) for name, port in zip(names, ports, strict=True)}
        brokers = ports[1:] if profile else ports[:1]
        self.url = f"kafka://{','.join(f'localhost:{port}' for port in brokers)}/agent-steps"
        self.projector = f"projector-{profile}" if profile else "projector"
        options = ["--profile", profile] if profile else []
        project = f"step-journal-test-{uuid.uuid4().hex[:8]}"
        self._command = [*_compose_command(), "-p", project, *options]

    def __call__(self, *arguments: str) -> str:
        return _ok(_run(*self._command, *arguments, env=self.env))

    def journal(self, *arguments: str) -> str:
        return _ok(_run(sys.executable, "-c", JOURNAL, *arguments, env=self.env))

    def sql(self, query: str) -> list[dict[str, object]]:
        """Rows, as the projector's own container answers."""
        command = ("exec", "-T", self.projector, "projector", "sql", query, "--format", "json")
        rows: list[dict[str, object]] = json.loads(self(*command))
        return rows

    def running(self) -> list[str]:
        return sorted(self("ps", "--services", "--filter", "status=running").split())

    def health(self) -> str:
        container = self("ps", "-q", self.projector).strip()
        return _ok(_run("docker", "inspect", "-f", "{{.State.Health.Status}}", container)).strip()

    def until(self, wanted: object, look: Callable[[], object]) -> None:
        """Look until `look()` is `wanted`. Nothing in a container can call us, so this polls."""
        deadline = time.monotonic() + PATIENCE_S
        while (seen := look()) != wanted:
            if time.monotonic() > deadline:
                logs = self("logs", "--no-color", "--tail=20")
                pytest.fail(f"{seen!r} is not yet {wanted!r}\n{logs}")
            time.sleep(0.5)


@pytest.fixture
def compose(request: pytest.FixtureRequest) -> Iterator[Compose]:
    if not shutil.which("docker") or _run("docker", "info").returncode:
        pytest.skip("no Docker engine answers")
    if reason := _missing():
        # A build server that has an engine is meant to run this.
        (pytest.fail if os.environ.get("CI", "").lower() == "true" else pytest.skip)(reason)
    project = Compose(request.param)
    try:
        yield project
    finally:
        project("down", "-v")


def _completed(compose: Compose) -> Callable[[], object]:
    """Completed tasks with at least two steps, and what the projector found wrong."""
    return lambda: compose.sql(
        "SELECT (SELECT count(*) FROM tasks WHERE status = 'completed' AND task_id IN"
        " (SELECT task_id FROM steps GROUP BY task_id HAVING count(*) > 1)) AS completed,"
        " (SELECT count(*) FROM anomalies) AS anomalies"
    )


@pytest.mark.parametrize("compose", [None], ids=["one"], indirect=True)
def test_one_broker(compose: Compose) -> None:
    compose("up", "-d", "--build")
    assert compose.running() == ["kafka", "projector"]
    # It waits, healthy, for a topic that nobody has made yet.
    compose.until("healthy", compose.health)
    compose.journal("demo", "--log", compose.url)
    compose.until([{"completed": 1, "anomalies": 0}], _completed(compose))
    # What it holds is in the volume, not in the container.
    compose("rm", "--stop", "--force", compose.projector)
    compose("stop", "kafka")
    compose("run", "--rm", "--no-deps", compose.projector, "test", "-s", "/data/runs.duckdb")


@pytest.mark.parametrize("compose", ["cluster"], indirect=True)
def test_three_brokers_and_the_death_of_one(compose: Compose) -> None:
    compose("up", "-d", "--build", compose.projector)
    assert compose.running() == ["kafka1", "kafka2", "kafka3", "projector-cluster"]
    compose.journal("demo", "--log", compose.url)
    compose.until([{"completed": 1, "anomalies": 0}], _completed(compose))
    _demo_while_its_leader_dies(compose)
    compose.until([{"completed": 2, "anomalies": 0}], _completed(compose))
    # And from its beginning with two brokers.
    compose.journal("demo", "--log", compose.url)
    compose.until([{"completed": 3, "anomalies": 0}], _completed(compose))
    compose.until("healthy", compose.health)


def _demo_while_its_leader_dies(compose: Compose) -> None:
    """The demo stands still in its second step while the broker is killed that leads the
    partition of its task."""
    command = [sys.executable, "-u", "-c", JOURNAL, "demo", "--log", compose.url]
    demo = subprocess.Popen(
        command,
        cwd=ROOT,
        env=compose.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert demo.stdout is not None
    try:
        said = demo.stdout.readline()
        task_id = said.split()[-1]
        while "step 1: the model is asked" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        os.killpg(demo.pid, signal.SIGSTOP)
        compose("kill", f"kafka{asyncio.run(_leader(compose.url, task_id))}")
        os.killpg(demo.pid, signal.SIGCONT)
        rest, _ = demo.communicate(timeout=PATIENCE_S)
        assert demo.returncode == 0, said + rest
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
            demo.communicate()


async def _leader(url: str, task_id: str) -> int:
    brokers, topic = url.removeprefix("kafka://").split("/")
    async with admin(brokers) as client:
        (described,) = await client.describe_topics([topic])
    partitions = described["partitions"]
    wanted = partition_of(task_id, len(partitions))
    return next(found["leader"] for found in partitions if found["partition"] == wanted)
