"""`journal doctor` on a topic, as its users meet it, and that it changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from journal.genesis import GENESIS_KEY
from journal.kafka_admin import FIXED, settings_for
from journal.kafka_log import KafkaLog
from journal.log import append_and_wait
from tests.broker.base import free_ports
from tests.commands import doctor, wrong
from tests.projecting import new_log

OF_A_TOPIC = ["broker", "topic", "settings", "replication", "genesis", "partitions"]
SETTINGS = [*FIXED, "min.insync.replicas"]


@asynccontextmanager
async def admin(broker: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=broker)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.kafka
async def test_a_topic_on_one_broker_is_in_order_with_a_warning(kafka_url: str) -> None:
    log, identity = await new_log(kafka_url, 3)
    code, checks = await asyncio.to_thread(doctor, kafka_url)
    await log.close()
    assert (code, wrong(checks)) == (0, [])
    names = ["broker", "topic", *SETTINGS, "genesis", "partitions", "blobs folder"]
    assert {checks[name]["status"] for name in names} == {"ok"}
    assert checks["replication"]["status"] == "warning"
    assert "not that of a machine" in checks["replication"]["detail"]
    assert "1 broker, " in checks["broker"]["detail"]
    assert identity.journal_id in checks["genesis"]["detail"]


@pytest.mark.kafka
async def test_every_wrong_setting_of_a_topic_is_listed_at_once(
    kafka_broker: str, kafka_topic: str, kafka_url: str
) -> None:
    change = {
        "cleanup.policy": "compact,delete",
        "retention.ms": "604800000",
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "2",
    }
    async with admin(kafka_broker) as client:
        settings = settings_for(1) | change
        await client.create_topics([NewTopic(kafka_topic, 1, 1, topic_configs=settings)])
    code, checks = await asyncio.to_thread(doctor, kafka_url)
    assert code == 1
    assert wrong(checks) == [
        *(name for name in SETTINGS if name in change),
        # Nothing could be appended, and nothing has been.
        "replication",
        "genesis",
    ]
    for name, value in change.items():
        assert checks[name]["detail"].startswith(f"{value}, must be ")
        assert f"--entity-name {kafka_topic} --add-config {name}=" in checks[name]["remedy"]
    assert {checks[name]["status"] for name in SETTINGS if name not in change} == {"ok"}


@pytest.mark.kafka
async def test_an_absent_topic_is_named_and_not_made(
    kafka_broker: str, kafka_topic: str, kafka_url: str
) -> None:
    code, checks = await asyncio.to_thread(doctor, kafka_url)
    assert (code, wrong(checks)) == (1, ["topic"])
    assert checks["broker"]["status"] == "ok"
    assert checks["topic"]["remedy"] == f"journal init --log {kafka_url}"
    assert {checks[name]["detail"] for name in OF_A_TOPIC[2:]} == {"there is no topic"}
    async with admin(kafka_broker) as client:
        assert kafka_topic not in await client.list_topics()


def test_an_absent_broker_is_named_and_the_rest_skipped() -> None:
    (port,) = free_ports(1)
    code, checks = doctor(f"kafka://127.0.0.1:{port}/t")
    assert (code, wrong(checks)) == (1, ["broker"])
    assert f"127.0.0.1:{port}" in checks["broker"]["detail"]
    assert [checks[name]["status"] for name in OF_A_TOPIC[1:]] == ["skipped"] * 5
    assert {checks[name]["detail"] for name in OF_A_TOPIC[1:]} == {"the broker does not answer"}


@pytest.mark.kafka
async def test_the_records_that_open_the_partitions_are_not_written_here(kafka_url: str) -> None:
    log = await KafkaLog.open(kafka_url, create=True, partitions=3)
    code, checks = await asyncio.to_thread(doctor, kafka_url)
    assert (code, wrong(checks)) == (1, ["genesis"])
    assert checks["genesis"]["remedy"] == f"journal init --log {kafka_url}"
    assert checks["partitions"]["status"] == "skipped"
    assert await log.ends() == dict.fromkeys(range(3), 0)
    # As left by a creator that died after the first one.
    genesis = (
        b'{"type":"JournalCreated","v":1,"id":"i",'
        b'"body":{"journal_id":"j","partitions":3,"acceptance":1}}'
    )
    await append_and_wait(log, 0, GENESIS_KEY, genesis, 1)
    code, checks = await asyncio.to_thread(doctor, kafka_url)
    assert (code, checks["genesis"]["status"]) == (0, "warning")
    assert "partition 1, 2" in checks["genesis"]["detail"]
    assert await log.ends() == {0: 1, 1: 0, 2: 0}
    await append_and_wait(log, 2, b"key", b"something else", 1)
    code, checks = await asyncio.to_thread(doctor, kafka_url)
    assert (code, wrong(checks)) == (1, ["genesis"])
    assert "2:0 is not its genesis record" in checks["genesis"]["detail"]
    await log.close()


@pytest.mark.kafka
async def test_a_newer_rule_of_acceptance_is_wrong(kafka_url: str) -> None:
    log = await KafkaLog.open(kafka_url, create=True, partitions=1)
    genesis = (
        b'{"type":"JournalCreated","v":1,"id":"i",'
        b'"body":{"journal_id":"j","partitions":1,"acceptance":99}}'
    )
    await append_and_wait(log, 0, GENESIS_KEY, genesis, 1)
    await log.close()
    code, checks = await asyncio.to_thread(doctor, kafka_url)
    assert (code, wrong(checks)) == (1, ["genesis"])
    assert "newer release" in checks["genesis"]["detail"]
    assert checks["genesis"]["remedy"] == "pip install --upgrade step-journal"


@pytest.mark.kafka
async def test_partitions_that_were_added_are_wrong(
    kafka_broker: str, kafka_topic: str, kafka_url: str
) -> None:
    log, _ = await new_log(kafka_url, 2)
    await log.close()
    async with admin(kafka_broker) as client:
        await client.create_partitions({kafka_topic: NewPartitions(3)})
    code, checks = await asyncio.to_thread(doctor, kafka_url)
    assert (code, wrong(checks)) == (1, ["partitions"])
    assert checks["partitions"]["detail"].startswith("3, made with 2")
