"""Looking at a Kafka cluster and a topic's first records without changing anything.

For whoever asks what is wrong: a topic whose settings are refused can be looked at, too. The
settings themselves are `kafka_admin`'s.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from aiokafka.errors import KafkaError

from journal.errors import EventTooNew, NotAJournal
from journal.genesis import Identity, first_identity
from journal.kafka_admin import Topic
from journal.kafka_client import Clients, words
from journal.kafka_log import KafkaLog

_PATIENCE_S = 10.0


class Cluster(NamedTuple):
    """What answers at the brokers of a URL."""

    cluster_id: str
    brokers: int
    round_trip_ms: float
    """Of one request for the cluster's metadata."""


async def look_at_cluster(clients: Clients) -> Cluster:
    """Raises `LogUnavailable`."""
    async with clients.admin() as admin:
        began = time.perf_counter()
        try:
            told = await admin.describe_cluster()
        except (KafkaError, TimeoutError) as error:
            raise clients.unavailable(words(error)) from None
        ms = (time.perf_counter() - began) * 1000
    return Cluster(str(told.get("cluster_id")), len(told["brokers"]), ms)


Opening = Identity | NotAJournal | EventTooNew | None
"""What a partition opens with: whose journal it is, why it is none, or nothing yet."""


async def look_at_openings(clients: Clients, topic: Topic) -> list[Opening]:
    """By partition. Raises `LogUnavailable`."""
    log = KafkaLog(clients, topic, _PATIENCE_S)
    found: list[Opening] = []
    try:
        for partition in range(topic.partitions):
            try:
                found.append(await first_identity(log, partition))
            except (NotAJournal, EventTooNew) as error:
                found.append(error)
    finally:
        await log.close()
    return found
