"""Standard output for a command that goes on for ever, without a write that blocks.

While whoever reads a pipe takes a rest, the event loop must still hear of a signal; and when
the reader goes, the command ends at once, not with the next event. Knows bytes and descriptors
only.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import Callable
from typing import TextIO

from journal.cli.escape import ESCAPE


class Output:
    """Text to the descriptor of `stream`. Belongs to the running event loop.

    `on_closed` is called when the reading end of a pipe has been closed.
    """

    def __init__(self, stream: TextIO, on_closed: Callable[[], None]) -> None:
        stream.flush()
        self._fd = stream.fileno()
        self._encoding = stream.encoding
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._waits = True
        self._on_closed = on_closed
        self._watched = stat.S_ISFIFO(os.fstat(self._fd).st_mode)
        if self._watched:
            # A writing end is never readable; the loop reports it so where it is broken.
            self._loop.add_reader(self._fd, self._broken)

    def close(self) -> None:
        """Stop looking at the pipe."""
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._fd)

    async def write(self, text: str) -> None:
        """All of `text`, before anybody else's. Raises `BrokenPipeError` and other `OSError`s."""
        rest = memoryview(text.encode(self._encoding, ESCAPE))
        async with self._turn:
            while rest:
                await self._writable()
                # A pipe that has room for anything has room for so much.
                rest = rest[os.write(self._fd, rest[: select.PIPE_BUF]) :]

    async def _writable(self) -> None:
        if not self._waits:
            return
        ready: asyncio.Future[None] = self._loop.create_future()
        try:
            self._loop.add_writer(self._fd, _settle, ready)
        except OSError:
            # A file: it has no reader to wait for.
            self._waits = False
            return
        try:
            await ready
        finally:
            self._loop.remove_writer(self._fd)

    def _broken(self) -> None:
        self.close()
        self._on_closed()


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
