"""What the embedded log's tests run in processes of their own. Each is a `main` function of
picklable arguments, so that it can be spawned."""

from __future__ import annotations

import asyncio
import resource
import sys
from multiprocessing.connection import Connection

from journal.errors import AppendRefused, LogUnavailable
from journal.log import NONE, Append, Cursor, append_and_wait
from journal.sqlite_log import SqliteLog


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
    """Use a handle that the parent opened: append, read back, close."""

    async def main() -> None:
        cursor = Cursor((await log.read_key(0, b"key"))[-1].offset)
        await append_and_wait(log, 0, b"key", b"child", 0, expect=cursor)
        pipe.send([record.value for record in await log.read_key(0, b"key")])
        await log.close()

    asyncio.run(main())
    sys.stdout.flush()
