"""Fixtures for every test: a real Kafka broker, fresh topics, and a broker to kill.

What starts and stops brokers is `tests/broker`; this file decides when a test is skipped.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker import Broker, NoBroker, new_broker, session_address

pytest_plugins = ("tests.attacks",)


def _without_broker(reason: str) -> None:
    # On a build server a test that silently did not run is worse than one that fails.
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[str]:
    """ "host:port" of a real broker, one for the whole session."""
    try:
        with session_address() as address:
            yield address
    except NoBroker as error:
        _without_broker(str(error))


@pytest.fixture
def kafka_topic(kafka_broker: str) -> str:
    """A topic's name that nobody has used. The topic does not exist yet."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def kafka_url(kafka_broker: str, kafka_topic: str) -> str:
    """`kafka://host:port/topic` of `kafka_topic`."""
    return f"kafka://{kafka_broker}/{kafka_topic}"


@pytest.fixture(params=["sqlite", pytest.param("kafka", marks=pytest.mark.kafka)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a journal can be made, on each log that outlives a process."""
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    kafka_url: str = request.getfixturevalue("kafka_url")
    return kafka_url


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A started broker of this test's own, to `kill()` and `start()` again."""
    try:
        broker = new_broker(quick_restart=True)
    except NoBroker as error:
        _without_broker(str(error))
        raise
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
