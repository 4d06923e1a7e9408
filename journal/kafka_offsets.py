"""Group offsets of a topic: how far a reader has come, for lag monitors; nobody reads them back.

Knows one consumer that joins no group and fetches nothing. Knows nothing of who reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from journal.kafka_client import Clients, words

_PATIENCE_S = 5.0


class GroupOffsets:
    """Commits offsets for one group at a time."""

    def __init__(self, clients: Clients, partitions: int) -> None:
        self._clients = clients
        self._partitions = [TopicPartition(clients.address.topic, p) for p in range(partitions)]
        self._group: str | None = None
        self._consumer: AIOKafkaConsumer | None = None

    async def commit(self, group: str, offsets: Mapping[int, int]) -> None:
        """Commit `offsets`, by partition. Raises `LogUnavailable`, after 5 s at the latest."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                consumer = await self._of(group)
                # The client tries again for as long as Kafka is away.
                await consumer.commit({self._partitions[p]: at for p, at in offsets.items()})
        except (KafkaError, TimeoutError) as error:
            await self.close()
            why = "no answer" if isinstance(error, TimeoutError) else words(error)
            raise self._clients.unavailable(f"group {group} was not moved on: {why}") from None

    async def close(self) -> None:
        """Release the consumer."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()

    async def _of(self, group: str) -> AIOKafkaConsumer:
        if group != self._group:
            await self.close()
        if self._consumer is None:
            consumer = await self._clients.consumer(group=group)
            # In one turn of the loop: it may commit only for what it has, and must not fetch.
            consumer.assign(self._partitions)
            for partition in self._partitions:
                consumer.seek(partition, 0)
            consumer.pause(*self._partitions)
            self._group, self._consumer = group, consumer
        return self._consumer
