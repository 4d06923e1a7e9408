"""What somebody may do to a log or a file behind the projector's back: one line that says what to
do, at the start and while `projector run` runs, and nothing false in the tables.

A topic that was made again is `test_kafka_replaced`, what is no projection `test_projector`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import NewPartitions
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from journal.errors import (
    HistoryTruncated,
    JournalError,
    LogMisconfigured,
    LogReplaced,
    LogUnavailable,
    NotAJournal,
    ProjectionError,
)
from journal.genesis import GENESIS_KEY, Identity
from journal.kafka_admin import settings_for
from journal.log import Log, Record, append_and_wait
from projector.running import Opened, Projection, opened
from projector.watching import Place, Watch
from tests.make_events import Writer
from tests.projecting import new_log, put_events, rows
from tests.projector_child import PATIENCE_S, running
from tests.topics import admin

NEXT = "SELECT sum(next_offset) FROM offsets"


def one_line(error: BaseException, *words: str) -> None:
    assert "\n" not in str(error)
    for word in words:
        assert word in str(error)


async def once(url: str, db: Path) -> None:
    projection = Projection(str(db), url, lambda: opened(url, None), lambda _: None)
    try:
        await projection.once()
    finally:
        await projection.close()


class Followed:
    """A projector that follows in this process and looks at its log every 50 ms."""

    def __init__(self, url: str, db: Path, open: Callable[[], Any] | None = None) -> None:
        self.said: list[str] = []
        self._begun, self._read = asyncio.Event(), asyncio.Event()
        opening = open or (lambda: opened(url, None))
        self._projection = Projection(str(db), url, opening, self._say, watch_s=0.05)
        self._projection.on_written = lambda _: self._read.set()
        self._task = asyncio.create_task(self._follow())

    def _say(self, line: str) -> None:
        self.said.append(line)
        self._begun.set()

    async def _follow(self) -> None:
        try:
            await self._projection.follow()
        finally:
            await self._projection.close()

    async def begun(self) -> None:
        await asyncio.wait_for(self._begun.wait(), PATIENCE_S)

    async def has_read(self) -> None:
        await asyncio.wait_for(self._read.wait(), PATIENCE_S)

    async def failed(self, kind: type[JournalError]) -> JournalError:
        with pytest.raises(kind) as caught:
            await asyncio.wait_for(self._task, PATIENCE_S)
        return caught.value


# --- partitions that were added ---------------------------------------------------------------


@pytest.mark.kafka
async def test_partitions_that_were_added(
    kafka_broker: str, kafka_topic: str, kafka_url: str, tmp_path: Path
) -> None:
    log, _ = await new_log(kafka_url, 2)
    await put_events(log, [Writer("t").start()])
    db = tmp_path / "r.duckdb"
    followed = Followed(kafka_url, db)
    await followed.begun()
    async with admin(kafka_broker) as client:
        await client.create_partitions({kafka_topic: NewPartitions(3)})
    wanted = f"{kafka_url} has 3 partitions and was created with 2", "into a new log of 2"
    one_line(await followed.failed(LogMisconfigured), *wanted)
    with pytest.raises(LogMisconfigured) as caught:
        await once(kafka_url, db)
    one_line(caught.value, *wanted)
    await log.close()


# --- settings that delete history -------------------------------------------------------------

SETTINGS = {
    "cleanup.policy": ("compact", "delete"),
    "retention.ms": ("604800000", "-1"),
    "retention.bytes": ("1000000", "-1"),
}


@pytest.mark.kafka
@pytest.mark.parametrize("setting", SETTINGS)
async def test_compaction_or_retention_switched_on_later(
    kafka_broker: str, kafka_topic: str, kafka_url: str, tmp_path: Path, setting: str
) -> None:
    value, wanted = SETTINGS[setting]
    log, _ = await new_log(kafka_url, 1)
    await log.close()
    db = tmp_path / "r.duckdb"
    followed = Followed(kafka_url, db)
    await followed.begun()
    async with admin(kafka_broker) as client:
        # Whatever is left out goes back to the broker's own.
        settings = settings_for(1) | {setting: value}
        change = ConfigResource(ConfigResourceType.TOPIC, kafka_topic, settings)
        await client.alter_configs([change])
    words = f"{setting} is {value}, must be {wanted}", f"--add-config {setting}={wanted}"
    one_line(await followed.failed(LogMisconfigured), *words)
    with pytest.raises(LogMisconfigured) as caught:
        await once(kafka_url, db)
    one_line(caught.value, *words)


class Told:
    """A log that can be checked, and says each of `errors` in turn, then nothing wrong."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked = asyncio.Event()

    async def check(self) -> None:
        if not self.errors:
            self.asked.set()
            return
        raise self.errors.pop(0)


async def test_a_log_that_is_away_is_looked_at_again() -> None:
    stop, log = asyncio.Event(), Told(LogUnavailable("gone"), LogUnavailable("gone"))
    async with Watch(log, Place("none.duckdb"), stop, every_s=0) as watch:
        await asyncio.wait_for(log.asked.wait(), PATIENCE_S)
    assert (watch.error, stop.is_set()) == (None, False)


# --- history that was deleted -----------------------------------------------------------------


async def filled(url: str, db: Path) -> tuple[Log, Identity]:
    """A journal of one partition with 4 records of which the file has the first 2."""
    log, identity = await new_log(url, 1)
    w = Writer("t")
    await put_events(log, [w.start()])
    await once(url, db)
    await put_events(log, [w.recorded(0), w.recorded(1)])
    return log, identity


async def begin_again(log: Log, before: int) -> None:
    """Delete what stands below, once the genesis record is written anew behind it."""
    (genesis,) = [batch[0] async for batch in log.read(0, 0, 1)]
    assert genesis.key == GENESIS_KEY
    assert genesis.value is not None
    assert await append_and_wait(log, 0, GENESIS_KEY, genesis.value, 0) == before
    await log.truncate(0, before)


async def test_history_that_was_deleted_before_it_was_read(url: str, tmp_path: Path) -> None:
    db = tmp_path / "r.duckdb"
    log, _ = await filled(url, db)
    await begin_again(log, 4)
    await log.close()
    with pytest.raises(HistoryTruncated) as caught:
        await once(url, db)
    one_line(caught.value, f"{url}: 0:2 was to be read next and has been deleted", "move the data")
    assert rows(db, NEXT) == [(2,)]


async def test_history_that_is_deleted_while_it_is_read(url: str, tmp_path: Path) -> None:
    db = tmp_path / "r.duckdb"
    log, _ = await filled(url, db)

    class Overtaken:
        """Its tail begins when what it was to give is gone."""

        def __init__(self, log: Log) -> None:
            self._log = log

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, name)

        async def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
            await begin_again(self._log, 4)
            async for batch in self._log.tail(partition, start):
                yield batch

    async def open() -> Opened:
        log, identity = await opened(url, None)
        return Overtaken(log), identity

    error = await Followed(url, db, open).failed(HistoryTruncated)
    one_line(error, url, "0:2", "move the database away")
    assert rows(db, NEXT) == [(2,)]
    await log.close()


async def test_history_that_is_gone_with_its_beginning(url: str, tmp_path: Path) -> None:
    db = tmp_path / "r.duckdb"
    log, _ = await filled(url, db)
    await log.truncate(0, 3)
    with pytest.raises(NotAJournal) as caught:
        await once(url, db)
    one_line(caught.value, f"{url}: what stood before 0:3 has been deleted", "restore it")
    await log.truncate(0, 4)
    with pytest.raises(NotAJournal) as caught:
        await once(url, db)
    one_line(caught.value, f"{url}: all that was in it has been deleted", "restore it")
    await log.close()
    assert rows(db, NEXT) == [(2,)]


# --- another log in its place -----------------------------------------------------------------


async def test_a_log_file_that_is_swapped(tmp_path: Path) -> None:
    path, other, db = tmp_path / "journal.db", tmp_path / "other.db", tmp_path / "r.duckdb"
    log, identity = await new_log(str(path))
    await put_events(log, [Writer("t").start()])
    await log.close()
    theirs, _ = await new_log(str(other))
    await put_events(theirs, [Writer("u").start(), Writer("v").start()])
    await theirs.close()
    followed = Followed(str(path), db)
    await followed.has_read()
    os.replace(other, path)
    one_line(await followed.failed(LogReplaced), "another file has taken its place", "again")
    assert rows(db, "SELECT task_id FROM tasks") == [("t",)]
    with pytest.raises(ProjectionError) as caught:
        await once(str(path), db)
    one_line(caught.value, f"belongs to journal {identity.journal_id}", "another file with --db")


# --- two projectors, or another file in its place ---------------------------------------------


async def test_a_second_projector_on_one_file(url: str, tmp_path: Path) -> None:
    db = tmp_path / "r.duckdb"
    log, _ = await filled(url, db)
    async with running(url, db) as first:
        await first.until("following")
        await first.has(NEXT, 4)
        async with running(url, db) as second:
            line = await second.until("projector: ")
            assert f"{db}: another process holds it" in line
            assert await second.process.wait() == 1
        # The first one goes on, and answers.
        await put_events(log, [Writer("u").start()])
        await first.has(NEXT, 5)
        assert await first.ended() == 0
    await log.close()


@pytest.mark.parametrize("how", ["moved away", "replaced"])
async def test_a_file_that_is_taken_away_while_it_is_used(how: str, tmp_path: Path) -> None:
    path, db = str(tmp_path / "journal.db"), tmp_path / "r.duckdb"
    log, _ = await filled(path, db)
    copy = shutil.copy(db, tmp_path / "copy.duckdb")
    followed = Followed(path, db)
    await followed.begun()
    if how == "replaced":
        os.replace(copy, db)
    else:
        os.rename(db, tmp_path / "elsewhere.duckdb")
    one_line(
        await followed.failed(ProjectionError), f"{db}: was moved away or replaced", "start again"
    )
    # What was committed meanwhile is in the other file; here the log makes up for it.
    await once(path, db)
    assert rows(db, NEXT) == [(4,)]
    await log.close()


async def test_a_file_that_is_replaced_while_brokers_are_away(tmp_path: Path) -> None:
    path, db = str(tmp_path / "journal.db"), tmp_path / "r.duckdb"
    log, _ = await filled(path, db)
    copy = shutil.copy(db, tmp_path / "copy.duckdb")

    class Away:
        """Is gone as soon as it is followed, with another file in the place of the tables."""

        def __init__(self, log: Log) -> None:
            self._log = log

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, name)

        async def tail(self, partition: int, start: int) -> AsyncIterator[list[Record]]:
            os.replace(copy, db)
            raise LogUnavailable("gone")
            yield []

    tries = 0

    async def open() -> Opened:
        nonlocal tries
        tries += 1
        log, identity = await opened(path, None)
        return (Away(log) if tries == 1 else log), identity

    projection = Projection(str(db), "kafka://x/t", open, lambda _: None, watch_s=0.05)
    try:
        with pytest.raises(ProjectionError) as caught:
            await asyncio.wait_for(projection.follow(), PATIENCE_S)
    finally:
        await projection.close()
    one_line(caught.value, f"{db}: was moved away or replaced", "start again")
    assert tries == 2
    await log.close()
