"""The genesis record: one identity, however many creators, and what is no journal of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import Raw

from journal.codec import decode_event, encode_event
from journal.errors import (
    EventTooNew,
    HistoryTruncated,
    LogMisconfigured,
    LogReplaced,
    NotAJournal,
)
from journal.events import ACCEPTANCE_VERSION, Envelope, JournalCreated
from journal.genesis import GENESIS_KEY, Identity, identify
from journal.log import Append, Record
from journal.values import encode


class MemoryLog:
    """A log in memory: lists of records, written on the next turn of the loop. `dead_after`
    appends, the process that writes dies."""

    url = "memory"
    conditional = False

    def __init__(self, partitions: int = 1, dead_after: int = 99) -> None:
        self.partitions = partitions
        self.records: list[list[Record]] = [[] for _ in range(partitions)]
        self.first = 0
        self.left = dead_after

    def put(self, partition: int, value: bytes | None, key: bytes | None = GENESIS_KEY) -> None:
        records = self.records[partition]
        records.append(Record(self.first + 2 * len(records), key, value, 0))

    def append(self, partition: int, append: Append) -> None:
        def write() -> None:
            if self.left == 0:
                append.failed(OSError("dead"))
                return
            self.left -= 1
            self.put(partition, append.value, append.key)
            append.written(self.records[partition][-1].offset)

        asyncio.get_running_loop().call_soon(write)

    async def read(
        self, partition: int, start: int, end: int | None = None
    ) -> AsyncIterator[list[Record]]:
        await asyncio.sleep(0)
        yield [
            r
            for r in self.records[partition]
            if r.offset >= start and (end is None or r.offset < end)
        ]

    async def starts(self) -> dict[int, int]:
        return dict.fromkeys(range(self.partitions), self.first)


def genesis(journal_id: str = "j", partitions: int = 1, acceptance: int = 1, v: int = 1) -> bytes:
    body = Raw(encode(JournalCreated(journal_id, partitions, acceptance)))
    return encode_event(Envelope("JournalCreated", v, "g", body=body))


async def test_an_empty_log_is_given_an_identity_once() -> None:
    log = MemoryLog(3)
    made = await identify(log, create=True)
    assert made.partitions == 3
    assert await identify(log) == made
    assert await identify(log, create=True) == made
    assert [len(records) for records in log.records] == [1, 1, 1]
    (record,) = log.records[2]
    assert record.key == GENESIS_KEY
    event = decode_event(record.value, record.key)
    assert (event.type, event.v, event.task_id) == ("JournalCreated", 1, None)
    assert bytes(event.body) == encode(JournalCreated(made.journal_id, 3, ACCEPTANCE_VERSION))


async def test_creators_at_the_same_moment_come_to_one_identity() -> None:
    log = MemoryLog(2)
    found = await asyncio.gather(*(identify(log, create=True) for _ in range(5)))
    assert len(set(found)) == 1
    assert len(log.records[0]) == 5  # all wrote, the first one counts
    assert await identify(log) == found[0]


async def test_whoever_comes_next_completes_what_a_dead_creator_left() -> None:
    log = MemoryLog(3, dead_after=1)
    with pytest.raises(OSError, match="dead"):
        await identify(log, create=True)
    log.left = 99
    identity = await identify(log)
    assert [len(records) for records in log.records] == [1, 1, 1]
    assert await identify(log) == identity


async def test_an_empty_log_is_no_journal_and_stays_empty() -> None:
    log = MemoryLog(2)
    with pytest.raises(NotAJournal, match=r"memory is empty; .*journal init"):
        await identify(log)
    assert log.records == [[], []]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"hello",
        b'{"type":"Other","v":1,"id":"i"}',
        encode_event(Envelope("TaskStarted", 1, "i", "t", 0, "o")),
        encode_event(Envelope("JournalCreated", 1, "i")),
        genesis().replace(b'"j"', b"5"),
    ],
)
async def test_another_first_record_is_refused_with_its_position(value: bytes | None) -> None:
    log = MemoryLog()
    log.first = 4
    log.put(0, value)
    log.put(0, genesis())
    with pytest.raises(NotAJournal, match="0:4"):
        await identify(log, create=True)
    assert len(log.records[0]) == 2


@pytest.mark.parametrize(
    ("first", "version"), [(genesis(v=2), 2), (genesis(acceptance=ACCEPTANCE_VERSION + 1), 2)]
)
async def test_a_later_rule_of_acceptance_stops_the_reader(first: bytes, version: int) -> None:
    log = MemoryLog()
    log.put(0, first)
    with pytest.raises(EventTooNew) as raised:
        await identify(log)
    assert (raised.value.type, raised.value.v, raised.value.position) == (
        "JournalCreated",
        version,
        "0:0",
    )


@pytest.mark.parametrize("created_with", [1, 3, 0, -2])
async def test_another_partition_count_is_refused(created_with: int) -> None:
    log = MemoryLog(2)
    log.put(0, genesis(partitions=created_with))
    with pytest.raises(LogMisconfigured, match=f"created with {created_with}"):
        await identify(log, create=True)
    assert log.records[1] == []


@pytest.mark.parametrize("other", [genesis("k", 2), genesis("j", 3)])
async def test_partitions_of_two_journals_are_refused(other: bytes) -> None:
    log = MemoryLog(2)
    log.put(0, genesis("j", 2))
    log.put(1, other)
    with pytest.raises(LogReplaced, match="partition 1"):
        await identify(log)


async def test_the_first_of_two_counts() -> None:
    log = MemoryLog()
    log.put(0, genesis("first"))
    log.put(0, genesis("second"))
    assert await identify(log, create=True) == Identity("first", 1)


async def test_the_first_record_may_lie_past_the_start() -> None:
    log = MemoryLog()
    log.first = 3
    log.put(0, genesis("first"))
    log.put(0, genesis("second"))
    log.first = 0
    assert await identify(log) == Identity("first", 1)


async def test_a_start_that_moves_while_it_is_read_is_read_again() -> None:
    class Moving(MemoryLog):
        moved = False

        def read(
            self, partition: int, start: int, end: int | None = None
        ) -> AsyncIterator[list[Record]]:
            if not self.moved:
                self.moved = True
                raise HistoryTruncated("gone")
            return super().read(partition, start, end)

    log = Moving()
    log.put(0, genesis())
    assert await identify(log) == Identity("j", 1)
    assert log.moved
