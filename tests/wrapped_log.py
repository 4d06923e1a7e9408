"""A log that passes everything on to another: what a test's own log changes only in part."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from journal.log import Append, Log, Record


class WrappedLog:
    """Stands in front of `log`."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.url, self.conditional, self.partitions = log.url, log.conditional, log.partitions

    def append(self, partition: int, append: Append) -> None:
        self._log.append(partition, append)

    def read(
        self, partition: int, start: int, end: int | None = None
    ) -> AsyncIterator[list[Record]]:
        return self._log.read(partition, start, end)

    async def read_key(self, partition: int, key: bytes, start: int = 0) -> list[Record]:
        return await self._log.read_key(partition, key, start)

    def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
        return self._log.tail(partition, start)

    async def offset_at(self, partition: int, timestamp_ms: int) -> int:
        return await self._log.offset_at(partition, timestamp_ms)

    async def starts(self) -> Mapping[int, int]:
        return await self._log.starts()

    async def ends(self) -> Mapping[int, int]:
        return await self._log.ends()

    async def truncate(self, partition: int, before: int) -> None:
        await self._log.truncate(partition, before)

    async def close(self) -> None:
        await self._log.close()
