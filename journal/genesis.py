"""Whose log this is: the genesis record that opens each partition.

Partition 0's comes first and is read back; its winner goes to the others, so that any number
of processes may create a journal at once and all come to the same identity. Knows logs and the
one event; knows no tasks.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from journal.codec import decode_event, encode_event
from journal.errors import (
    BadRecord,
    EventTooNew,
    HistoryTruncated,
    LogReplaced,
    NotAJournal,
)
from journal.events import ACCEPTANCE_VERSION, Envelope, JournalCreated
from journal.ids import new_id, now_ms, rfc3339
from journal.log import Log, Record, append_and_wait, changed_partitions
from journal.upcasters import read_bodies
from journal.values import encode

GENESIS_KEY = b"\x00journal"
"""The key of records about a partition; no task id can be it, for its control character."""


class Identity(Struct, frozen=True):
    """A journal's id, and the partition count that places its tasks for ever."""

    journal_id: str
    partitions: int


async def identify(log: Log, *, create: bool = False) -> Identity:
    """Read the log's identity; give it one if it is empty and `create` says so.

    Raises `NotAJournal` where a partition does not open with a genesis record, `LogReplaced`
    where partitions disagree, `LogMisconfigured` where partitions were added or lost,
    `EventTooNew` where a newer release's acceptance rule holds.
    """
    identity = await first_identity(log, 0)
    if identity is None:
        if not create:
            if (await log.starts())[0]:
                raise NotAJournal(
                    f"{log.url}: all that was in it has been deleted; restore it, or begin another "
                    f"journal with: journal init"
                )
            raise NotAJournal(f"{log.url} is empty; make it a journal with: journal init")
        fresh = Identity(new_id(), log.partitions)
        await _write(log, 0, fresh)
        identity = await first_identity(log, 0)
        if identity is None:
            raise LogReplaced(f"{log.url} lost its first record; is something truncating it?")
    if identity.partitions != log.partitions:
        raise changed_partitions(log.url, log.partitions, identity.partitions)
    for partition in range(1, log.partitions):
        other = await first_identity(log, partition)
        if other is None:
            # A creator may have died between partitions: whoever comes next completes it.
            await _write(log, partition, identity)
            other = await first_identity(log, partition)
        if other != identity:
            raise LogReplaced(
                f"{log.url}: partition {partition} belongs to another journal than partition 0"
            )
    return identity


async def _write(log: Log, partition: int, identity: Identity) -> None:
    ms = now_ms()
    body = JournalCreated(identity.journal_id, identity.partitions, ACCEPTANCE_VERSION)
    event = Envelope("JournalCreated", 1, new_id(), at=rfc3339(ms), body=Raw(encode(body)))
    headers = (("type", b"JournalCreated"), ("v", b"1"))
    await append_and_wait(log, partition, GENESIS_KEY, encode_event(event), ms, headers=headers)


async def first_identity(log: Log, partition: int) -> Identity | None:
    """The identity that a partition opens with, None where it is empty. Only reads.

    Raises `NotAJournal` or `EventTooNew`.
    """
    start = (await log.starts())[partition]
    try:
        async for batch in log.read(partition, start, start + 1):
            if batch:
                return read_genesis(log.url, partition, batch[0])
        # Offsets may be sparse: the first record can lie past `start`.
        async for batch in log.read(partition, start):
            if batch:
                return read_genesis(log.url, partition, batch[0])
    except HistoryTruncated:
        return await first_identity(log, partition)
    return None


def read_genesis(url: str, partition: int, record: Record) -> Identity:
    """The identity in a partition's first record. Raises `NotAJournal` or `EventTooNew`."""
    where = f"{partition}:{record.offset}"
    refuse = NotAJournal(
        f"{url} is no journal: the record at {where} is not its genesis record; "
        f"name another log, or a new topic with: journal init"
    )
    if record.offset:
        refuse = NotAJournal(
            f"{url}: what stood before {where} has been deleted, and with it the record that says "
            f"whose journal this is; restore it, or name another log"
        )
    try:
        event = decode_event(record.value)
        if event.type != "JournalCreated":
            raise refuse
        (body,) = read_bodies(event, where)
    except BadRecord:
        raise refuse from None
    assert isinstance(body, JournalCreated)
    if body.acceptance > ACCEPTANCE_VERSION:
        raise EventTooNew("JournalCreated", body.acceptance, where)
    return Identity(body.journal_id, body.partitions)
