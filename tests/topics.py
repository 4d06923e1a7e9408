"""Topics for tests of the Kafka log alone: opened, filled, read, deleted and made again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from journal.kafka_admin import settings_for
from journal.kafka_log import KafkaLog
from journal.log import Record, append_and_wait

T = 1_700_000_000_000
"""Some moment, in milliseconds."""


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncIterator[KafkaLog]:
    log = await KafkaLog.open(url, **options)  # type: ignore[arg-type]
    try:
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def admin(broker: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=broker)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def put(log: KafkaLog, value: bytes, *, partition: int = 0, at: int = T) -> int:
    return await append_and_wait(log, partition, b"key", value, at)


async def everything(log: KafkaLog, partition: int = 0) -> list[Record]:
    start = (await log.starts())[partition]
    return [record async for batch in log.read(partition, start) for record in batch]


async def remake(broker: str, topic: str, partitions: int = 1) -> None:
    """Delete the topic and make it anew."""
    async with admin(broker) as client:
        await client.delete_topics([topic])
        new = NewTopic(topic, partitions, 1, topic_configs=settings_for(1))
        # Until the broker has forgotten the old one it refuses a new one.
        while (await client.create_topics([new])).topic_errors[0][1]:
            pass
