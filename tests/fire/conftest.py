"""Brokers of the tests' own, started: one, or three of a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.broker.cluster import Cluster
from tests.broker.java import JavaBroker
from tests.fire.scale import AGENTS


@pytest.fixture(autouse=True)
def attacked(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    """What stands in the table of attacks of a test that does not count its rounds."""
    if "rounds" not in request.fixturenames:
        record_property("attacks", f"{AGENTS} agents")


def _java() -> None:
    if reason := JavaBroker.missing():
        # On a build server a test that silently did not run is worse than one that fails.
        ci = os.environ.get("CI", "").lower() == "true"
        (pytest.fail if ci else pytest.skip)(reason)


@pytest.fixture
def broker() -> Iterator[JavaBroker]:
    """One broker, to be killed, frozen and so on."""
    _java()
    broker = JavaBroker({}, quick_restart=True)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers, with as many controllers as the parameter says, or three."""
    _java()
    cluster = Cluster(controllers=getattr(request, "param", 3))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
