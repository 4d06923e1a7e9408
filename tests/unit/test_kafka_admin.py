"""Finding a topic while a broker is away. A fake admin client fails as aiokafka's does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError, NodeNotReadyError, TopicAuthorizationFailedError

from journal.errors import LogUnavailable
from journal.kafka_admin import open_topic
from journal.kafka_client import Address, Clients


class DyingCluster(Clients):
    """One topic of one partition; each kind of request fails with the next of `errors`."""

    def __init__(self, *errors: KafkaError, connect_s: float = 5.0) -> None:
        self.address = Address("kafka://a:1/t", "a:1", "t")
        self.connect_s = connect_s
        self.failures = {name: list(errors) for name in ("list", "describe", "configs")}

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Any]:
        yield self

    def _fail(self, request: str) -> None:
        if self.failures[request]:
            raise self.failures[request].pop(0)

    async def list_topics(self) -> list[str]:
        self._fail("list")
        return ["t"]

    async def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        self._fail("describe")
        partitions = [{"leader": 1, "replicas": [1, 2, 3]}]
        return [{"error_code": 0, "partitions": partitions} for _ in topics]

    async def describe_configs(self, resources: list[Any]) -> list[Any]:
        self._fail("configs")
        entries = [("retention.ms", "-1")]
        return [SimpleNamespace(resources=[(0, None, 2, "t", entries)]) for _ in resources]


async def test_a_broker_that_has_just_died_is_asked_again() -> None:
    topic = await open_topic(DyingCluster(NodeNotReadyError(), NodeNotReadyError()))
    assert topic == (1, 3, {"retention.ms": "-1"})


async def test_what_no_second_try_can_mend_is_told_at_once() -> None:
    cluster = DyingCluster(TopicAuthorizationFailedError())
    with pytest.raises(LogUnavailable, match="TopicAuthorizationFailed"):
        await open_topic(cluster)
    assert not cluster.failures["list"]


async def test_the_last_failure_is_told_when_time_runs_out() -> None:
    cluster = DyingCluster(*[NodeNotReadyError("node 2")] * 1_000, connect_s=0.1)
    with pytest.raises(LogUnavailable, match=r"NodeNotReadyError.*node 2"):
        await open_topic(cluster)
