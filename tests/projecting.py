"""What the projector's tests share: logs filled with events, runs to the end, sorted tables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from journal.backends import open_log
from journal.events import Envelope
from journal.genesis import Identity, identify
from journal.log import Log, append_and_wait
from journal.partition import partition_of
from projector.rows import TABLES
from projector.runner import Runner
from projector.store import Store
from tests.make_events import Pair, many, pair


async def new_log(url: str, partitions: int | None = None) -> tuple[Log, Identity]:
    """A fresh journal."""
    log = await open_log(url, create=True, partitions=partitions)
    return log, await identify(log, create=True)


async def put(log: Log, pairs: Iterable[Pair]) -> None:
    """Append records in order, each in its key's partition."""
    waiting = []
    for key, value in pairs:
        partition = partition_of(key.decode(), log.partitions)
        waiting.append(append_and_wait(log, partition, key, value, 1_767_225_600_000))
        if len(waiting) == 2_000:
            await asyncio.gather(*waiting)
            waiting.clear()
    await asyncio.gather(*waiting)


async def put_events(log: Log, events: Iterable[Envelope]) -> None:
    """Append events in order."""
    await put(log, map(pair, events))


async def project(log: Log, identity: Identity, db: Path, **options: Any) -> Runner:
    """Fold up to the end; the file is closed again."""
    runner = Runner(
        log,
        identity,
        options.pop("open_store", lambda: Store.open(str(db), identity.journal_id)),
        retry_s=0,
        **options,
    )
    try:
        await runner.run(follow=False)
    finally:
        await runner.close()
    return runner


async def filled(url: str, folder: Path, tasks: int, partitions: int | None = None) -> Log:
    """A log of so many tasks, about 15 events each; in calm.duckdb what a projection of it is."""
    log, identity = await new_log(url, partitions)
    await put(log, many(tasks))
    await project(log, identity, folder / "calm.duckdb")
    return log


def tables(db: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every table's rows, sorted."""
    store = Store.open_for_reading(str(db))
    try:
        with store.snapshot() as cursor:
            return {
                name: cursor.execute(f"SELECT * FROM {name} ORDER BY ALL").fetchall()
                for name in TABLES
            }
    finally:
        store.close()


def rows(db: Path, sql: str) -> list[tuple[Any, ...]]:
    """The rows of one SELECT."""
    store = Store.open_for_reading(str(db))
    try:
        with store.snapshot() as cursor:
            return cursor.execute(sql).fetchall()
    finally:
        store.close()


def failing_commit(fail: Callable[[int], str | None]) -> Callable[[Any], None]:
    """A COMMIT that fails where `fail(number)` says "before" or "after" it is done."""
    count = 0

    def commit(con: Any) -> None:
        nonlocal count
        count += 1
        how = fail(count)
        if how == "before":
            con.execute("SELECT error('the disk was pulled out')")
        con.execute("COMMIT")
        if how == "after":
            con.execute("SELECT error('the answer was lost')")

    return commit
