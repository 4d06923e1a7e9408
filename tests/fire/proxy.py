"""A way to a server that can be bad: it drops connections, keeps what is said, or trickles.

Plain TCP on 127.0.0.1; knows nothing of what goes through it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

_TRICKLE_BYTES = 16
_TRICKLE_S = 0.02


class Proxy:
    """`address` ("host:port") leads to `target`, once that is set. Good until told otherwise."""

    def __init__(self) -> None:
        self.address = ""
        self.target = ""
        self._pairs: set[asyncio.StreamWriter] = set()
        self._ways = {"there": asyncio.Event(), "back": asyncio.Event()}
        self._trickles = False
        self.mend()

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls) -> AsyncIterator[Proxy]:
        proxy = cls()
        server = await asyncio.start_server(proxy._connected, "127.0.0.1", 0)
        proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield proxy
        finally:
            server.close()
            proxy.mend()
            proxy.drop()

    def mend(self) -> None:
        """Let everything through, what was kept as well."""
        self._trickles = False
        for way in self._ways.values():
            way.set()

    def stall(self) -> None:
        """Keep what comes, from either side; connections stay open."""
        for way in self._ways.values():
            way.clear()

    def mute(self) -> None:
        """Let requests through and keep the answers."""
        self._ways["back"].clear()

    def trickle(self) -> None:
        """Let through a few bytes at a time, 800 a second."""
        self._trickles = True

    def drop(self) -> None:
        """Reset every connection, with all that was kept."""
        for writer in list(self._pairs):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self.target.split(":")
        try:
            there, server = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._pairs |= {writer, server}
        try:
            await asyncio.wait(
                [
                    asyncio.ensure_future(self._carry(reader, server, self._ways["there"])),
                    asyncio.ensure_future(self._carry(there, writer, self._ways["back"])),
                ]
            )
        finally:
            self._pairs -= {writer, server}

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_TRICKLE_BYTES if self._trickles else 65_536):
                await way.wait()
                writer.write(data)
                await writer.drain()
                if self._trickles:
                    await asyncio.sleep(_TRICKLE_S)
        writer.close()
