"""Figures for Prometheus: what `projector run --metrics HOST:PORT` answers.

The only place that imports prometheus_client. Counts committed batches; how far the log is ahead
is asked at the moment of a scrape. Knows neither the file nor the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily, Metric

from journal.errors import UsageError
from projector.health import Figures
from projector.runner import Written

_ADDRESS = re.compile(r"((\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:\[\]]*)):)?(?P<port>[0-9]{1,5})")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Served over HTTP from `serve` to `close`; `figures` is asked from other threads."""

    def __init__(self, figures: Callable[[], Figures]) -> None:
        self._figures = figures
        self._server: Any = None
        # When a counter began is known by the process's start.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"step_journal_{name}", text, labels, registry=self.registry)

        self._records = counter("records", "Records read, in committed batches.")
        self._events = counter("events", "Events accepted and folded, in committed batches.")
        self._anomalies = counter("anomalies", "Rows added to the table anomalies.", "label")
        self._batches = Histogram(
            "step_journal_batch_seconds",
            "Time to fold and write a batch.",
            registry=self.registry,
            buckets=_SECONDS,
        )
        # Last: the counters are then of no later moment than the offsets beside them.
        self.registry.register(self)

    def written(self, batch: Written) -> None:
        """A batch was committed."""
        self._records.inc(batch.records)
        self._events.inc(batch.events)
        for label, count in batch.anomalies.items():
            self._anomalies.labels(label).inc(count)
        self._batches.observe(batch.seconds)

    def collect(self) -> Iterator[Metric]:
        """What is asked at a scrape. Called by the registry."""
        figures = self._figures()
        ready = GaugeMetricFamily("step_journal_ready", "Whether it follows the log: 1 or 0.")
        ready.add_metric([], figures.ready)
        yield ready
        lag = {p: max(0, end - figures.next_offsets.get(p, 0)) for p, end in figures.ends.items()}
        for name, text, values in (
            ("next_offset", "The offset that is read next.", figures.next_offsets),
            ("end_offset", "The offset that the log's next record gets.", figures.ends),
            ("lag_records", "How many offsets the log is ahead of the file.", lag),
        ):
            gauge = GaugeMetricFamily(f"step_journal_{name}", text, labels=["partition"])
            for partition, value in sorted(values.items()):
                gauge.add_metric([str(partition)], value)
            yield gauge

    def describe(self) -> Iterator[Metric]:
        """Nothing: registering it must not ask for figures."""
        return iter(())

    def serve(self, address: tuple[str, int]) -> int:
        """Answer there; returns the port, which the system chooses for 0. Raises `UsageError`."""
        host, port = address
        try:
            self._server, _ = start_http_server(port, host, self.registry)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--metrics {host}:{port}: cannot listen there ({reason})") from None
        return int(self._server.server_port)

    def close(self) -> None:
        """Answer no longer."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def parsed(text: str) -> tuple[str, int]:
    """`HOST:PORT`, or `PORT` on 127.0.0.1. Raises `UsageError`."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise UsageError(f"--metrics {text}: give HOST:PORT, or PORT for 127.0.0.1")
    return found["host"] or found["ipv6"] or "127.0.0.1", int(found["port"])
