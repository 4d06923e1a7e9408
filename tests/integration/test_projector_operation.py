"""`projector run` as an operator meets it: probes, figures, lines, and how it ends."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
import threading
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from journal.errors import ProjectionError, UsageError
from journal.log import Log, Record
from projector.health import FOLLOWING, Figures, Health, Pulse, ask
from projector.metrics import Metrics, parsed
from projector.runner import Runner, Written
from projector.running import Opened, Projection, opened
from tests.broker.base import free_ports
from tests.integration.test_projector_cli import projector
from tests.make_events import Writer
from tests.projecting import new_log, put, put_events, rows
from tests.projector_child import PATIENCE_S, Child, running

READ = "step_journal_records_total"


async def health(child: Child, *options: str) -> tuple[int, str, str]:
    """Exit status, and what `projector health` prints on both streams."""
    arguments = ("health", "--db", str(child.db), *options)
    done = await asyncio.to_thread(projector, *arguments, cwd=child.db.parent)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


# --- health ---------------------------------------------------------------------------------------


async def test_health_of_one_that_follows_and_of_none(tmp_path: Path) -> None:
    log, _ = await new_log(str(tmp_path / "journal.db"))
    await log.close()
    async with running(str(tmp_path / "journal.db"), tmp_path / "r.duckdb") as child:
        await child.until("following")
        for options in ((), ("--ready",)):
            assert await health(child, *options) == (0, "following\n", "")
        child.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(ProjectionError, match="does not answer; restart it"):
                await asyncio.to_thread(ask, str(child.db), 0.2)
        finally:
            child.process.send_signal(signal.SIGCONT)
        assert await health(child) == (0, "following\n", "")
        assert await child.ended() == 0
    status, out, err = await health(child)
    assert (status, out) == (1, "")
    assert re.fullmatch(r"projector: \S+: no projector runs; start it with: .*\n", err)


async def test_one_that_waits_is_healthy_and_not_ready(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"kafka://127.0.0.1:{port}/t"
    async with running(url, tmp_path / "r.duckdb") as child:
        await child.until("waiting for")
        for options, wanted in (((), 0), (("--ready",), 1)):
            status, out, err = await health(child, *options)
            assert (status, err) == (wanted, "")
            assert out.startswith(f"waiting: waiting for {url}: cannot use Kafka")
            assert out.count("\n") == 1
        assert await child.ended() == 0


async def test_an_event_loop_that_does_not_turn_is_not_healthy() -> None:
    pulse = Pulse(patience_s=0.05)
    assert await asyncio.to_thread(pulse.now) == Health()
    pulse.health = Health(FOLLOWING)
    assert (await asyncio.to_thread(pulse.now)).ready
    failed: list[Exception] = []
    told = threading.Event()

    def probe() -> None:
        try:
            pulse.now()
        except ProjectionError as error:
            failed.append(error)
        told.set()

    threading.Thread(target=probe).start()
    # The loop is held up here.
    assert told.wait(PATIENCE_S)
    assert "restart it" in str(failed[0])


async def test_the_file_can_be_asked_for_while_its_runner_goes() -> None:
    class Going(Projection):
        """Its runner is there at the first look only."""

        looks = 0

        @property
        def _runner(self) -> Runner | None:
            self.looks += 1
            return runner if self.looks == 1 else None

        @_runner.setter
        def _runner(self, runner: Runner | None) -> None:
            pass

    store: Any = object()
    runner: Any = SimpleNamespace(store=store)

    async def open() -> Opened:
        raise AssertionError

    projection = Going("r.duckdb", "journal.db", open, lambda _: None)
    assert projection._held() is store


# --- how it ends ----------------------------------------------------------------------------------


class Endless:
    """Stands before a log whose tail never comes to an end."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        for offset in itertools.count(start, 100):
            self.read = offset + 100
            yield [Record(offset + n, b"t", b"no event", 0) for n in range(100)]


async def test_it_ends_within_its_batch_however_much_there_is_to_read(tmp_path: Path) -> None:
    path, db = str(tmp_path / "journal.db"), tmp_path / "r.duckdb"
    log, _ = await new_log(path)
    await log.close()
    batches: list[Written] = []

    async def open() -> Opened:
        log, identity = await opened(path, None)
        return Endless(log), identity  # type: ignore[return-value]

    def written(batch: Written) -> None:
        batches.append(batch)
        projection.stop.set()

    said: list[str] = []
    projection = Projection(str(db), path, open, said.append)
    projection.on_written = written
    await asyncio.wait_for(projection.follow(), PATIENCE_S)
    await projection.close()
    # The one that was being folded meanwhile is written, and one more that was put together.
    assert len(batches) <= 3
    total = sum(batch.records for batch in batches)
    assert rows(db, "SELECT next_offset FROM offsets") == [(total,)]
    assert rows(db, "SELECT count(*) FROM anomalies") == [(total,)]
    assert said[-1].startswith(f"{total:,} records read")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_it_reads_ends_it_with_0(number: int, tmp_path: Path) -> None:
    log, identity = await new_log(str(tmp_path / "journal.db"))
    await put(log, itertools.repeat((b"t", b"no event"), 60_000))
    await log.close()
    db = tmp_path / "r.duckdb"
    async with running(str(tmp_path / "journal.db"), db) as child:
        await child.until("following")
        assert await child.ended(number) == 0
    (said,) = re.findall(r"projector: ([\d,]+) records read", child.said[-1])
    ((at, journal),) = rows(db, "SELECT next_offset, journal_id FROM offsets")
    assert (at, journal) == (int(said.replace(",", "")), identity.journal_id)
    (anomalies,) = rows(db, "SELECT count(*) FROM anomalies")
    # All but the genesis record.
    assert anomalies == (max(0, at - 1),)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_once_that_a_signal_stops_is_not_done(
    number: int, status: int, tmp_path: Path
) -> None:
    log, _ = await new_log(str(tmp_path / "journal.db"))
    await put(log, itertools.repeat((b"t", b"no event"), 60_000))
    await log.close()
    # It says where its figures are before it opens anything, with the handlers in place.
    options = ("--once", "--metrics", "0")
    async with running(str(tmp_path / "journal.db"), tmp_path / "r.duckdb", *options) as child:
        await child.until("metrics at")
        assert await child.ended(number) == status
    assert "records read" in child.said[-1]
    assert "60,001 records" not in child.said[-1]


# --- lines ----------------------------------------------------------------------------------------


async def test_lines_as_json(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.db")
    log, _ = await new_log(path)
    await log.close()
    async with running(path, tmp_path / "r.duckdb", "--log-format", "json") as child:
        await child.until("following")
        assert await child.ended() == 0
    lines = [json.loads(line) for line in child.said]
    assert [line["message"].split()[0] for line in lines] == ["following", "0"]
    for line in lines:
        assert line.keys() == {"time", "level", "logger", "message"}
        assert (line["level"], line["logger"]) == ("info", "projector")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])


async def test_what_ends_it_is_a_line_too_and_no_line_has_a_secret(tmp_path: Path) -> None:
    done = await asyncio.to_thread(
        projector, "run", "--log-format", "json", "--log", "none.db", cwd=tmp_path
    )
    line = json.loads(done.stderr)
    assert (done.returncode, line["level"]) == (1, "error")
    assert "journal init" in line["message"]

    (port,) = free_ports(1)
    config = tmp_path / "kafka.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=whoever\nsasl.password=hush-hush\n"
    )
    options = ("--log-format", "json", "--kafka-config", str(config))
    async with running(f"kafka://127.0.0.1:{port}/t", tmp_path / "r.duckdb", *options) as child:
        await child.until("waiting for")
        assert await child.ended() == 0
    lines = [json.loads(line) for line in child.said]
    assert [line["level"] for line in lines] == ["warning", "info"]
    assert "hush-hush" not in "".join(child.said)


# --- figures --------------------------------------------------------------------------------------


def scraped(text: str) -> dict[str, float]:
    """Sample to value, as Prometheus reads them."""
    found: dict[str, float] = {}
    for family in prometheus(text):
        assert family.documentation
        for sample in family.samples:
            labels = ",".join(sample.labels.values())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def get(url: str, accept: str = "") -> str:
    with urllib.request.urlopen(
        urllib.request.Request(url, headers={"Accept": accept}), timeout=PATIENCE_S
    ) as answer:
        text: str = answer.read().decode()
        return text


async def test_figures_of_what_was_folded(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.db")
    log, _ = await new_log(path)
    w = Writer("t")
    start, step = w.start(), list(w.step(0))
    await put_events(log, [start, start, *step, *step])
    await put(log, [(b"t", b"no event")])
    async with running(path, tmp_path / "r.duckdb", "--metrics", "0") as child:
        (url,) = re.findall(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", await child.line())
        await child.until("following")
        records = 3 + 2 * len(step) + 1
        async with asyncio.timeout(PATIENCE_S):
            # A batch is counted just after it can be seen.
            while (found := scraped(await asyncio.to_thread(get, url)))[READ] != records:
                pass
        assert {k: v for k, v in found.items() if not k.startswith(_OTHERS)} == {
            READ: records,
            "step_journal_events_total": 1 + len(step),
            "step_journal_anomalies_total{duplicate}": 2,
            "step_journal_anomalies_total{stale}": len(step) - 1,
            "step_journal_anomalies_total{undecodable}": 1,
            "step_journal_ready": 1,
            "step_journal_next_offset{0}": records,
            "step_journal_end_offset{0}": records,
            "step_journal_lag_records{0}": 0,
        }
        assert found["step_journal_batch_seconds_count"] >= 1
        text = await asyncio.to_thread(get, url, "application/openmetrics-text")
        assert {family.name for family in openmetrics(text)} > {"step_journal_records"}
        assert await child.ended() == 0
    await log.close()


_OTHERS = ("process_", "step_journal_batch_seconds")


def test_figures_of_a_log_that_is_away_are_left_out() -> None:
    figures = Figures(False, {0: 5, 1: 7}, {})
    metrics = Metrics(lambda: figures)
    sample = metrics.registry.get_sample_value
    assert sample("step_journal_ready") == 0
    assert sample("step_journal_next_offset", {"partition": "1"}) == 7
    assert sample("step_journal_lag_records", {"partition": "1"}) is None
    figures = Figures(True, {0: 5}, {0: 8, 1: 2})
    assert sample("step_journal_lag_records", {"partition": "0"}) == 3
    assert sample("step_journal_lag_records", {"partition": "1"}) == 2
    for family in metrics.registry.collect():
        assert family.name.startswith(("step_journal_", "process_"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:80", ("::1", 80)),
        ("", None),
        ("here", None),
        ("here:", None),
        ("::1", None),
    ],
)
def test_where_figures_are(text: str, wanted: tuple[str, int] | None) -> None:
    if wanted is not None:
        assert parsed(text) == wanted
        return
    with pytest.raises(UsageError, match="give HOST:PORT"):
        parsed(text)


def test_a_port_that_is_taken_or_is_none_is_one_line(tmp_path: Path) -> None:
    metrics = Metrics(lambda: Figures(True, {}, {}))
    taken = metrics.serve(("127.0.0.1", 0))
    try:
        for port in (str(taken), "70000", "nowhere.invalid:1"):
            done = projector("run", "--metrics", port, cwd=tmp_path)
            assert done.returncode == 2
            assert done.stderr.startswith(b"projector: --metrics "), done.stderr
            assert done.stderr.count(b"\n") == 1
    finally:
        metrics.close()
    assert list(tmp_path.iterdir()) == []
