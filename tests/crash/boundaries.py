"""Crash points at the edges of every commit, and the programs that die there.

Each point is put around what the journal and the projector call, from outside: they know none of
them. What is asked for on a line of stdin is run in a fork, which is as it would be in a process of
its own, without the time that the imports take; then its exit code is a line on stdout.

    STEP_JOURNAL_CRASH  MODE  URL  PLACE     separated by tabs

STEP_JOURNAL_CRASH is `NAME:N`, SIGKILL at the N-th passing of the point NAME, or empty. MODE is
`agent` (a life of the agent `live` of `agents`; PLACE is its trace), `project` (fold the log to its
end, in small batches, and tell its monitors; PLACE is the DuckDB file) or `rebuild` (the same
file). Knows the seams that it wraps; what must be left behind is the test's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiokafka.conn
import apsw

from journal.kafka_client import Clients
from journal.kafka_log import KafkaLog
from journal.pending import Pending
from journal.sqlite_writer import Writer
from projector.folding import Changes
from projector.rebuild import rebuild
from projector.reporting import Reporter, reader_name
from projector.runner import Runner
from projector.running import opened
from projector.store import Store
from tests.crash import agents

SQLITE = (
    "sqlite: before COMMIT",
    "sqlite: before a write to the WAL",
    "sqlite: before the WAL is synced",
    "sqlite: after the WAL is synced",
    "sqlite: after COMMIT",
)
KAFKA = (
    "kafka: before send",
    "kafka: handed to the client",
    "kafka: on the wire",
    "kafka: acknowledged",
)
CALLER = ("log: before the caller knows", "log: after the caller knows")
STORE = (
    "store: before BEGIN",
    "store: between rows and offsets",
    "store: before COMMIT",
    "store: after COMMIT",
)
MONITORS = ("log: before group offsets", "log: after group offsets")
REBUILD = (
    "rebuild: folded",
    "rebuild: whole without its WAL",
    "rebuild: before the old file has a second name",
    "rebuild: after the old file has a second name",
    "rebuild: before the WAL goes along",
    "rebuild: after the WAL has gone along",
    "rebuild: before the swap",
    "rebuild: after the swap",
)
POINTS = SQLITE + KAFKA + CALLER + STORE + MONITORS + REBUILD

BATCH_RECORDS = 100


class Killer:
    """SIGKILL of this process at the `nth` passing of the point `name`."""

    def __init__(self, name: str, nth: int) -> None:
        assert not name or name in POINTS, name
        self._name = name
        self._left = nth

    def point(self, name: str) -> None:
        assert name in POINTS, name
        if name == self._name:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str, before: str | None, after: str | None) -> None:
        """Points on both sides of a function of `owner`."""
        function = getattr(owner, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            if before:
                self.point(before)
            result = function(*args, **kwargs)
            if after:
                self.point(after)
            return result

        setattr(owner, name, called)

    # --- where the points are -----------------------------------------------------------------

    def install(self) -> None:
        self._sqlite()
        self._kafka()
        self.around(Pending, "written", *CALLER)
        self._store()
        self.around(Store, "checkpoint", *REBUILD[:2])
        self.around(os, "link", *REBUILD[2:4])
        self.around(os, "rename", *REBUILD[4:6])
        self.around(os, "replace", *REBUILD[6:8])

    def _sqlite(self) -> None:
        def commits(db: apsw.Connection) -> None:
            # The hook's answer is whether to roll back.
            db.set_commit_hook(lambda: bool(self.point(SQLITE[0])))

        apsw.connection_hooks.append(commits)
        self._disk = _Disk(self.point)
        self.around(Writer, "_write", None, SQLITE[4])

    def _kafka(self) -> None:
        point, make = self.point, Clients.producer

        async def producer(clients: Clients, batch_bytes: int) -> Any:
            made = await make(clients, batch_bytes)
            for name in ("send", "send_batch"):
                setattr(made, name, partial(sending, getattr(made, name)))
            return made

        async def sending(send: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            point(KAFKA[0])
            future = await send(*args, **kwargs)
            # Its first callback: the writer, which waits for it, adds its own later.
            future.add_done_callback(lambda _: point(KAFKA[3]))
            point(KAFKA[1])
            return future

        Clients.producer = producer  # type: ignore[method-assign]
        request = aiokafka.conn.AIOKafkaConnection.send

        def on_the_wire(connection: Any, asked: Any, *args: Any, **kwargs: Any) -> Any:
            answer = request(connection, asked, *args, **kwargs)
            if type(asked).__name__.startswith("ProduceRequest"):
                point(KAFKA[2])
            return answer

        aiokafka.conn.AIOKafkaConnection.send = on_the_wire
        report = KafkaLog.report

        async def reporting(log: KafkaLog, reader: str, positions: Mapping[int, int]) -> None:
            point(MONITORS[0])
            await report(log, reader, positions)
            point(MONITORS[1])

        KafkaLog.report = reporting  # type: ignore[method-assign]

    def _store(self) -> None:
        point, write = self.point, Store.write

        class Tables(dict[str, Any]):
            def items(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]
                for name, rows in super().items():
                    if name == "offsets":
                        point(STORE[1])
                    yield name, rows

        def writing(store: Store, changes: Changes, tables: dict[str, Any]) -> None:
            assert [*tables][-1] == "offsets"
            point(STORE[0])
            write(store, changes, Tables(tables))

        Store.write = writing  # type: ignore[method-assign]

    def commit(self, con: Any) -> None:
        """Ends a transaction of the store."""
        self.point(STORE[2])
        con.execute("COMMIT")
        self.point(STORE[3])


class _Disk(apsw.VFS):
    """The system's files, with points around what is done to a WAL."""

    def __init__(self, point: Callable[[str], None]) -> None:
        self.point = point
        super().__init__("points", base="unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: _Disk, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._point = disk.point if flags[0] & apsw.SQLITE_OPEN_WAL else lambda _: None

    def xWrite(self, data: bytes, offset: int) -> None:
        self._point(SQLITE[1])
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._point(SQLITE[2])
        super().xSync(flags)
        self._point(SQLITE[3])


# --- the programs ---------------------------------------------------------------------------


async def project(killer: Killer, url: str, db: str) -> None:
    """`projector run --once`, in small batches."""
    log, identity = await opened(url, None)
    open_store = partial(Store.open, db, identity.journal_id, commit=killer.commit)
    store = open_store()

    def positions() -> dict[int, int]:
        return {partition: offset.next_offset for partition, offset in store.offsets().items()}

    with contextlib.closing(store):
        async with Reporter(log, reader_name(identity.journal_id), positions, 0) as reporter:
            await Runner(
                log, identity, open_store, store=store, batch_records=BATCH_RECORDS,
                on_written=lambda _: reporter.written(),
            ).run(follow=False)  # fmt: skip
    await log.close()


async def run(killer: Killer, mode: str, url: str, place: str) -> None:
    if mode == "agent":
        await agents.main("live", url, Path(place))
    elif mode == "project":
        await project(killer, url, place)
    else:
        await rebuild(place, lambda: opened(url, None))


def forked(crash: str, mode: str, url: str, place: str) -> int:
    """Run one of them in a fork, and return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    name, _, nth = crash.rpartition(":")
    code = 1
    try:
        # What an agent says of its life is for other tests.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        killer = Killer(name, int(nth or 0))
        killer.install()
        asyncio.run(run(killer, mode, url, place))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


if __name__ == "__main__":
    for line in sys.stdin:
        print(forked(*line.rstrip("\n").split("\t")), flush=True)
