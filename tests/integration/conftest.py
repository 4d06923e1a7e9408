"""A journal to connect to, on each log, for the tests of the agent's side; with spans, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import journal
from journal.blobs import DirectoryBlobs
from tests.damaging import projected, projector, projector_killed
from tests.tracing import Seen

__all__ = ["projected", "projector", "projector_killed"]

Connect = Callable[..., journal.Journal]


@pytest.fixture(
    params=[
        "sqlite",
        "memory",
        pytest.param("kafka", marks=pytest.mark.kafka),
        pytest.param("kafka-once", marks=pytest.mark.kafka),
    ]
)
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """Makes another connection to one journal: a second worker, or the first after a crash.
    Takes further options of `journal.connect`."""
    confirm = "once" if request.param == "kafka-once" else "always"
    if request.param == "sqlite":
        url = str(tmp_path / "journal.db")
    elif request.param == "memory":
        url = f"memory://{tmp_path}"
    else:
        url = request.getfixturevalue("kafka_url")
    blobs = DirectoryBlobs(tmp_path / "blobs")
    return lambda **options: journal.connect(
        url, create=True, confirm=confirm, blobs=blobs, **options
    )


@pytest.fixture
def seen() -> Seen:
    """What is told to OpenTelemetry."""
    return Seen()


@pytest.fixture
def j(connect: Connect, seen: Seen) -> journal.Journal:
    """A journal whose spans are `seen`."""
    return connect(tracer_provider=seen.provider)
