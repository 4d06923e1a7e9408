"""A topic as the journal needs it: making it, checking its settings, deleting its beginning.

The rules about settings are pure and stand first. Knows nothing of appends and reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    KafkaError,
    TopicAlreadyExistsError,
    for_code,
)

from journal.errors import LogMisconfigured, LogNotFound, UsageError
from journal.kafka_client import Address, Clients, parse_url, words
from journal.kafka_config import Config, client_options

_LONG_MAX = str(2**63 - 1)

FIXED: Mapping[str, tuple[str, str]] = {
    "cleanup.policy": ("delete", "compaction would drop all but the last event of a task"),
    "retention.ms": ("-1", "Kafka would delete events by age, of tasks that go on too"),
    "retention.bytes": ("-1", "Kafka would delete events by size, of tasks that go on too"),
    "message.timestamp.type": ("CreateTime", "a task is found by the time that it was born"),
    "message.timestamp.after.max.ms": (
        _LONG_MAX,
        "an event would be refused when this machine's clock is ahead of the broker's",
    ),
    "unclean.leader.election.enable": ("false", "acknowledged events could be lost"),
}
"""Setting to the only value that keeps the journal's promises, and what another one breaks."""


class Finding(NamedTuple):
    """One setting of a topic that breaks a promise."""

    setting: str
    value: str
    wanted: str
    reason: str
    remedy: str
    """A command of Kafka's own tools."""


class Topic(NamedTuple):
    """What a cluster tells about a topic."""

    partitions: int
    replication_factor: int
    settings: Mapping[str, str]
    """Empty where this user may not read them."""


def min_insync_replicas(replication_factor: int) -> int:
    """As many as survive the loss of one broker without a stop of the writers."""
    return 2 if replication_factor >= 3 else 1


def settings_for(replication_factor: int) -> dict[str, str]:
    fixed = {name: wanted for name, (wanted, _) in FIXED.items()}
    return fixed | {"min.insync.replicas": str(min_insync_replicas(replication_factor))}


def findings(address: Address, topic: Topic) -> list[Finding]:
    """What is wrong with a topic's settings. One that the broker does not know is no finding."""
    wrong = [
        (name, topic.settings[name], wanted, reason)
        for name, (wanted, reason) in FIXED.items()
        if topic.settings.get(name, wanted) != wanted
    ]
    least = min_insync_replicas(topic.replication_factor)
    replicas = topic.settings.get("min.insync.replicas", str(least))
    if int(replicas) < least:
        reason = "the loss of one machine could lose acknowledged events"
        wrong.append(("min.insync.replicas", replicas, str(least), reason))
    elif int(replicas) > topic.replication_factor:
        reason = f"with {topic.replication_factor} replicas nothing could be appended"
        wrong.append(("min.insync.replicas", replicas, str(least), reason))
    return [Finding(*found, _remedy(address, {found[0]: found[2]})) for found in wrong]


def misconfigured(address: Address, found: list[Finding]) -> LogMisconfigured:
    what = "; ".join(f"{f.setting} is {f.value}, must be {f.wanted} ({f.reason})" for f in found)
    remedy = _remedy(address, {f.setting: f.wanted for f in found})
    return LogMisconfigured(f"topic {address.topic}: {what}; fix it with: {remedy}")


def _remedy(address: Address, settings: Mapping[str, str]) -> str:
    pairs = ",".join(f"{name}={value}" for name, value in settings.items())
    return (
        f"kafka-configs.sh --bootstrap-server {address.brokers} --alter "
        f"--entity-type topics --entity-name {address.topic} --add-config {pairs}"
    )


async def check_topic(url: str, *, config: Config | None = None) -> list[Finding]:
    """What is wrong with the settings of a log's topic; empty where all is well.

    Raises `UsageError`, `LogUnavailable`, `LogNotFound`.
    """
    clients = Clients(parse_url(url), client_options(config))
    return findings(clients.address, await open_topic(clients))


async def open_topic(
    clients: Clients,
    *,
    create: bool = False,
    partitions: int = 12,
    replication_factor: int | None = None,
) -> Topic:
    """The topic; made first if it is missing and `create` says so.

    Without a replication factor it is 3, or less where there are fewer brokers. Raises
    `LogNotFound`, `LogUnavailable`, and `UsageError` where the cluster cannot have that topic.
    """
    address = clients.address
    why = f"topic {address.topic} has a partition without a leader"
    async with clients.admin() as admin:
        try:
            async with asyncio.timeout(clients.connect_s):
                while True:
                    try:
                        if not await _exists(admin, address.topic):
                            if not create:
                                raise not_found(address)
                            await _create(admin, clients, partitions, replication_factor)
                        found = await _describe(admin, address.topic)
                        if found is not None:
                            return found
                        # It is there, but not every partition has a leader yet.
                    except KafkaError as error:
                        # Any broker is asked, even one that has just died: for some seconds
                        # the others still count it among the living.
                        why = words(error)
                        if not error.retriable:
                            raise
                    await asyncio.sleep(0.02)
        except (KafkaError, TimeoutError):
            raise clients.unavailable(why) from None


def not_found(address: Address) -> LogNotFound:
    return LogNotFound(
        f"no topic {address.topic} at {address.brokers}; "
        f"make it with: journal init --log {address.url}"
    )


async def delete_before(clients: Clients, partition: int, before: int) -> None:
    """Delete a partition's records below an offset, which must be above 0 and not past its end.

    Raises `LogUnavailable`.
    """
    wanted = {TopicPartition(clients.address.topic, partition): RecordsToDelete(before)}
    async with clients.admin() as admin:
        try:
            await admin.delete_records(wanted)
        except (KafkaError, TimeoutError) as error:
            raise clients.unavailable(f"nothing was deleted: {words(error)}") from None


async def _exists(admin: AIOKafkaAdminClient, topic: str) -> bool:
    # Asking for one topic by name would make it, on a broker that makes topics by itself.
    return topic in await admin.list_topics()


async def _describe(admin: AIOKafkaAdminClient, topic: str) -> Topic | None:
    """None where it is not known to all yet, or a partition has no leader."""
    (described,) = await admin.describe_topics([topic])
    partitions: list[dict[str, Any]] = described["partitions"]
    if described["error_code"] or not partitions or any(p["leader"] < 0 for p in partitions):
        return None
    (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    ((error_code, _, _, _, entries),) = response.resources
    settings = {} if error_code else {name: value for name, value, *_ in entries}
    return Topic(len(partitions), min(len(p["replicas"]) for p in partitions), settings)


async def _create(
    admin: AIOKafkaAdminClient, clients: Clients, partitions: int, replication_factor: int | None
) -> None:
    brokers = len((await admin.describe_cluster())["brokers"])
    replicas = min(3, brokers) if replication_factor is None else replication_factor
    topic = NewTopic(
        clients.address.topic, partitions, replicas, topic_configs=settings_for(replicas)
    )
    response = await admin.create_topics([topic])
    ((_, error_code, message, *_),) = response.topic_errors
    error = for_code(error_code)
    if error_code == 0 or error is TopicAlreadyExistsError:
        return
    if error is InvalidReplicationFactorError:
        raise UsageError(
            f"{replicas} replicas of topic {topic.name} need as many brokers, and "
            f"{clients.address.brokers} has {brokers}; give another --replication-factor"
        )
    if error is InvalidPartitionsError:
        raise UsageError(f"topic {topic.name} cannot have {partitions} partitions")
    raise clients.unavailable(f"topic {topic.name} was not made: {message or words(error())}")
