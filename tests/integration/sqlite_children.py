"""What the embedded log's tests run in processes of their own, and how they are started. Each is a
`main` function of picklable arguments, so that it can be spawned."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection

import apsw

from journal.errors import AppendRefused, JournalError, LogUnavailable
from journal.log import NONE, Append, Cursor, append_and_wait
from journal.sqlite_log import SqliteLog

SPAWN = multiprocessing.get_context("spawn")
FORK = multiprocessing.get_context("fork")


async def received(pipe: Connection) -> object:
    """The next thing that a child sends; `EOFError` once it is gone."""
    return await asyncio.to_thread(pipe.recv)


def started(
    context: multiprocessing.context.BaseContext, main: Callable[..., None], *arguments: object
) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    """A child that runs main(*arguments, pipe), and our end of the pipe."""
    here, there = context.Pipe()
    child = context.Process(target=main, args=(*arguments, there))  # type: ignore[attr-defined]
    child.start()
    there.close()
    return child, here


def chains(path: str) -> dict[bytes, list[int]]:
    """Each key's offsets, as `prev` links them from the last one; checks the file on the way."""
    db = apsw.Connection(path)
    assert db.pragma("integrity_check") == "ok"
    rows = db.execute("SELECT offset, key, prev FROM records ORDER BY offset").fetchall()
    db.close()
    found: dict[bytes, list[int]] = {}
    for offset, key, prev in rows:
        assert prev == found.get(key, [-1])[-1], (offset, key)
        found.setdefault(key, []).append(offset)
    return found


# --- what they run ----------------------------------------------------------------------------


class Acknowledged(Append):
    """Tells a pipe the offset and the value of each append that is written."""

    __slots__ = ("pipe",)

    pipe: Connection

    def written(self, offset: int) -> None:
        self.pipe.send((offset, self.value))

    def failed(self, error: Exception) -> None:
        self.pipe.send((NONE, repr(error).encode()))


def hammer(path: str, name: str, count: int, pipe: Connection) -> None:
    """Append `count` records to a key of one's own and as many to the key that all share, each
    conditionally; send the offsets of both."""

    async def main() -> None:
        log = await SqliteLog.open(path)

        async def own() -> list[int]:
            cursor = Cursor()
            key = name.encode()
            return [
                await append_and_wait(log, 0, key, b"%d" % n, 0, expect=cursor)
                for n in range(count)
            ]

        async def shared() -> list[int]:
            offsets: list[int] = []
            cursor = Cursor()
            while len(offsets) < count:
                value = b"%s %d" % (name.encode(), len(offsets))
                try:
                    offsets.append(
                        await append_and_wait(log, 0, b"shared", value, 0, expect=cursor)
                    )
                except AppendRefused:
                    cursor = Cursor((await log.read_key(0, b"shared"))[-1].offset)
            return offsets

        pipe.send(await asyncio.gather(own(), shared()))
        await log.close()

    asyncio.run(main())


def append_for_ever(path: str, pipe: Connection) -> None:
    """Append as fast as it goes, through ten cursors, telling every acknowledgement."""

    async def main() -> None:
        log = await SqliteLog.open(path)
        cursors = [Cursor() for _ in range(10)]
        number = 0
        while True:
            for task, cursor in enumerate(cursors):
                value = b"%d " % number + b"x" * 1_000
                append = Acknowledged(b"task-%d" % task, value, number, expect=cursor)
                append.pipe = pipe
                log.append(0, append)
                number += 1
            await asyncio.sleep(0)
            if number % 500 == 0:
                await append_and_wait(log, 0, b"pace", b"", 0)

    asyncio.run(main())


def fill_the_disk(path: str, most_bytes: int, pipe: Connection) -> None:
    """Append until files may not grow any more, then lift that limit and append again.

    Sends (offsets written, the error's type and text, the offset after the limit was lifted).
    """

    async def main() -> None:
        log = await SqliteLog.open(path)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
        offsets: list[int] = []
        cursor = Cursor()
        error: Exception | None = None
        while error is None:
            try:
                offsets.append(
                    await append_and_wait(log, 0, b"key", b"x" * 10_000, 0, expect=cursor)
                )
            except LogUnavailable as reason:
                error = reason
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        assert cursor.broken
        again = await append_and_wait(log, 0, b"key", b"y", 0, expect=Cursor(cursor.offset))
        pipe.send((offsets, type(error).__name__, str(error), again))
        await log.close()

    asyncio.run(main())


def append_after_fork(log: SqliteLog, pipe: Connection) -> None:
    """Use a handle that the parent opened: append, read back, append when told to, close."""

    async def main() -> None:
        cursor = Cursor((await log.read_key(0, b"key"))[-1].offset)
        await append_and_wait(log, 0, b"key", b"child", 0, expect=cursor)
        pipe.send([record.value for record in await log.read_key(0, b"key")])
        await asyncio.to_thread(pipe.recv)
        await append_and_wait(log, 0, b"key", b"child again", 0, expect=cursor)
        pipe.send("done")
        await asyncio.to_thread(pipe.recv)
        await log.close()

    asyncio.run(main())


class _BadDisk(apsw.VFS):
    """The system's files, but for a WAL that cannot be synced while `broken` is set."""

    def __init__(self) -> None:
        self.broken = False
        super().__init__("bad-disk", base="unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Every file goes through `_BadFile`."""
        return _BadFile(self, name, flags)


class _BadFile(apsw.VFSFile):
    def __init__(
        self, disk: _BadDisk, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__("unix", name, flags)
        self.disk = disk
        self.is_wal = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

    def xSync(self, flags: int) -> None:
        """Fails as an fsync fails: after everything was written."""
        if self.is_wal and self.disk.broken:
            error = apsw.IOError("the disk went away")
            error.extendedresult = apsw.SQLITE_IOERR_FSYNC  # type: ignore[attr-defined]
            raise error
        super().xSync(flags)


def lose_a_sync(path: str, pipe: Connection) -> None:
    """Append while the disk cannot be synced; send what each append was told."""
    disk = _BadDisk()

    async def main() -> None:
        log = await SqliteLog.open(path)
        told: list[object] = []
        cursor = Cursor()
        for broken, value in ((False, b"1"), (True, b"2"), (True, b"3"), (False, b"4")):
            disk.broken = broken
            try:
                told.append(await append_and_wait(log, 0, b"key", value, 0, expect=cursor))
            except JournalError as error:
                told.append((type(error).__name__, str(error)))
                cursor = Cursor((await log.read_key(0, b"key"))[-1].offset)
        pipe.send((told, [record.value for record in await log.read_key(0, b"key")]))
        await log.close()

    asyncio.run(main())
