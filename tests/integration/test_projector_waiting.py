"""`projector run` while Kafka, or its topic, is not there: it waits, serves its file, goes on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from journal.backends import open_log
from journal.errors import LogUnavailable
from journal.genesis import identify
from journal.log import Log
from projector import connect
from projector.running import Opened, Projection, opened
from tests.broker import Broker
from tests.make_events import Writer
from tests.projecting import new_log, put_events
from tests.projector_child import PATIENCE_S, running

COUNT = "SELECT count(*) AS n FROM events"


@pytest.mark.kafka
async def test_it_waits_for_the_topic_and_ends_cleanly(kafka_url: str, tmp_path: Path) -> None:
    async with running(kafka_url, tmp_path / "r.duckdb") as child:
        line = await child.line()
        assert f"waiting for {kafka_url}: no topic" in line
        assert f"make it with: journal init --log {kafka_url}" in line
        # Healthy: it answers while it waits.
        assert await connect(child.db).checkpoint("t1", "any") is None
        log = await open_log(kafka_url, create=True, partitions=1)
        await identify(log, create=True)
        assert "following" in await child.line()
        assert await child.ended() == 0
        await log.close()


@pytest.mark.kafka
async def test_it_outlives_its_broker(own_broker: Broker, tmp_path: Path) -> None:
    url = f"kafka://{own_broker.address}/t"
    writer = Writer("t1")
    start, step = writer.start(), list(writer.step(0))
    log, _ = await new_log(url, 2)
    await put_events(log, [start])
    await log.close()
    await asyncio.to_thread(own_broker.kill)
    once = await asyncio.to_thread(_once, url, tmp_path / "once.duckdb")
    assert once.returncode == 1
    assert once.stderr.startswith(f"projector: cannot use Kafka at {own_broker.address}")
    assert once.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    async with running(url, tmp_path / "r.duckdb") as child:
        assert f"waiting for {url}: cannot use Kafka" in await child.line()
        assert await child.answers(COUNT) == [{"n": 0}]
        await asyncio.to_thread(own_broker.start)
        assert "following" in await child.line()
        await child.has(COUNT, 1)
        # And away once more, while it follows.
        await asyncio.to_thread(own_broker.kill)
        await child.until("is away")
        await asyncio.to_thread(own_broker.start)
        log = await open_log(url)
        await put_events(log, step)
        await log.close()
        await child.has(COUNT, 1 + len(step))
        assert await child.ended() == 0
    assert [line for line in child.said if "Unable connect" in line] == []


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--once",), 143)])
async def test_it_stops_at_once_while_a_broker_does_not_answer(
    options: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    called, silent = asyncio.Event(), asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        await silent.wait()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = tmp_path / "kafka.properties"
    config.write_text("request.timeout.ms=600000\n")
    env = os.environ | {"JOURNAL_KAFKA_CONFIG": str(config)}
    url = f"kafka://127.0.0.1:{port}/t"
    async with running(url, tmp_path / "r.duckdb", *options, env=env) as child:
        await called.wait()
        assert await child.ended() == status
    silent.set()
    server.close()


class Away:
    """Stands before a log that does not say where it starts."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def starts(self) -> Mapping[int, int]:
        raise LogUnavailable("gone for a minute")


async def test_an_answer_that_takes_too_long_is_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.db")
    log, _ = await new_log(path)
    await log.close()
    said: list[str] = []

    async def open() -> Opened:
        log, identity = await opened(path, None)
        return (log if said else Away(log)), identity  # type: ignore[return-value]

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 3:
            projection.stop.set()

    projection = Projection(str(tmp_path / "r.duckdb"), "kafka://there/t", open, say)
    await projection.follow()
    await projection.close()
    assert [line.split()[0] for line in said] == ["following", "waiting", "following", "0"]
    assert said[1] == "waiting for kafka://there/t: gone for a minute"


async def test_an_embedded_log_is_not_waited_for(tmp_path: Path) -> None:
    async def open() -> Opened:
        raise LogUnavailable("cannot be read; check its permissions")

    projection = Projection(str(tmp_path / "r.duckdb"), "journal.db", open, print)
    with pytest.raises(LogUnavailable, match="permissions"):
        await asyncio.wait_for(projection.follow(), PATIENCE_S)
    await projection.close()
    assert list(tmp_path.iterdir()) == []


def _once(url: str, db: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "projector.cli", "run", "--once", "--log", url]
    return subprocess.run(
        [*command, "--db", str(db)], capture_output=True, text=True, timeout=60, check=False
    )
