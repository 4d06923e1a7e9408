"""What goes over a projector's local socket, and where that is; both ends know it.

One request a connection: four bytes of length, then JSON. The answer is frames: a byte of kind,
four bytes of length, the payload.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import tempfile

import msgspec
from msgspec import Struct

LENGTH = struct.Struct(">I")
FRAME = struct.Struct(">cI")
DATA = b"d"
"""A piece of the answer: of an Arrow IPC stream, or of msgpack."""
FAILED = b"e"
"""The answer ends with an error, in words."""
END = b"."

_PATH_BYTES = 100
"""Less than what a socket's address can hold anywhere (104 on macOS)."""


class Request(Struct, omit_defaults=True):
    """Exactly one of: a SELECT, a task whose rows are wanted, the offsets, the health."""

    sql: str | None = None
    task_id: str | None = None
    offsets: bool = False
    health: bool = False


def socket_path(db: str) -> str:
    """Where the projector of this file listens: `FILE.sock`, or a name in the temporary folder
    where that is too long for a socket."""
    path = os.path.abspath(db) + ".sock"
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:24]
    return os.path.join(tempfile.gettempdir(), f"projector-{os.getuid()}-{name}.sock")


def send(connection: socket.socket, request: Request) -> None:
    """Ask."""
    data = msgspec.json.encode(request)
    connection.sendall(LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly so many bytes. Raises `EOFError` where the other end has gone."""
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
