"""How a running projector is: what it says of itself, and how a probe asks it.

The question goes to its local socket and is answered by its event loop, so that a process that
hangs does not pass for one that works. Loads nothing heavy: a probe asks every few seconds. Knows
neither the file nor the log.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final

import msgspec
from msgspec import Struct

from journal.errors import ProjectionError
from projector.frames import DATA, FRAME, Request, receive, send, socket_path

OPENING: Final = "opening"
FOLLOWING: Final = "following"
WAITING: Final = "waiting"

PATIENCE_S = 5.0
"""How long a probe waits for each part of an answer."""

PULSE_S = 4.0
"""How long the socket waits for the event loop: less, so that the probe is still there to hear."""


class Health(Struct, frozen=True):
    """`state` is opening (the log, the file), following, or waiting, for what `detail` says in
    one line: a log that is away, or room on the disk."""

    state: str = OPENING
    detail: str = ""

    @property
    def ready(self) -> bool:
        """Whether what is appended to the log comes into the tables."""
        return self.state == FOLLOWING


class Figures(Struct):
    """How a projector stands: each partition's next offset in the file and, where the log says it,
    its end there."""

    ready: bool
    next_offsets: Mapping[int, int]
    ends: Mapping[int, int]


class Pulse:
    """The health of one event loop's projector. Made on that loop; `now` is for other threads."""

    def __init__(self, patience_s: float = PULSE_S) -> None:
        self.health = Health()
        self._loop = asyncio.get_running_loop()
        self._patience_s = patience_s

    def now(self) -> Health:
        """What it is. Raises `ProjectionError` where the event loop does not turn."""
        answer: Future[Health] = Future()
        try:
            self._loop.call_soon_threadsafe(lambda: answer.set_result(self.health))
            return answer.result(self._patience_s)
        except (TimeoutError, RuntimeError):
            raise ProjectionError(
                f"the projector has done nothing for {self._patience_s:.0f} s; restart it"
            ) from None


def ask(db: str, patience_s: float = PATIENCE_S) -> Health:
    """The health of the projector that holds the file `db`.

    Raises `ProjectionError` where none runs, or it does not answer within `patience_s` seconds.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience_s)
        try:
            connection.connect(socket_path(db))
            send(connection, Request(health=True))
            kind, length = FRAME.unpack(receive(connection, FRAME.size))
            payload = receive(connection, length)
        except (FileNotFoundError, ConnectionRefusedError):
            raise ProjectionError(
                f"{db}: no projector runs; start it with: projector run"
            ) from None
        except TimeoutError:
            raise ProjectionError(
                f"{db}: the projector does not answer; restart it if that lasts"
            ) from None
        except (EOFError, OSError) as error:
            raise ProjectionError(f"{db}: cannot ask the projector ({error}); try again") from None
    if kind != DATA:
        raise ProjectionError(f"{db}: {payload.decode()}")
    return msgspec.msgpack.decode(payload, type=Health)
