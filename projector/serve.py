"""Answers for this machine's own user while a projector holds the file: a local socket beside it.

One request a connection: four bytes of length, then JSON. The answer is frames: a byte of kind,
four bytes of length, the payload. Everything is read-only. Knows the store, not the log; what
the other end does is in `client`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
import socketserver
import struct
import tempfile
import threading
from collections.abc import Callable

import msgspec
from msgspec import Struct

from journal.errors import JournalError, ProjectionError
from projector.entries import TaskRows
from projector.store import Offset, Store

LENGTH = struct.Struct(">I")
FRAME = struct.Struct(">cI")
DATA = b"d"
"""A piece of the answer: of an Arrow IPC stream, or of msgpack."""
FAILED = b"e"
"""The answer ends with an error, in words."""
END = b"."

_REQUEST_BYTES = 1 << 20
_PATH_BYTES = 100
"""Less than what a socket's address can hold anywhere (104 on macOS)."""
_PATIENCE_S = 10.0

_log = logging.getLogger("projector")


class Request(Struct, omit_defaults=True):
    """Exactly one of: a SELECT, a task whose rows are wanted, or the offsets."""

    sql: str | None = None
    task_id: str | None = None
    offsets: bool = False


class Answer(Struct):
    """To anything but SQL: a task's rows (None where there are none), and all offsets, of one
    moment."""

    task: TaskRows | None
    offsets: dict[int, Offset]


def socket_path(db: str) -> str:
    """Where the projector of this file listens: `FILE.sock`, or a name in the temporary folder
    where that is too long for a socket."""
    path = os.path.abspath(db) + ".sock"
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:24]
    return os.path.join(tempfile.gettempdir(), f"projector-{os.getuid()}-{name}.sock")


class Server(socketserver.ThreadingUnixStreamServer):
    """Listens beside `db` until `close`; `store` gives the open store, or None while there is
    none. Start it only while that store is held: then what stands in its place is stale."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, db: str, store: Callable[[], Store | None]) -> None:
        self.path = socket_path(db)
        self.store = store
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        # The mode has to be right from the first moment on.
        before = os.umask(0o177)
        try:
            super().__init__(self.path, _Handler)
        except OSError as error:
            raise ProjectionError(
                f"{self.path}: cannot listen there ({error.strerror}); check the folder"
            ) from None
        finally:
            os.umask(before)
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Listen no longer. What is being answered ends with the store."""
        self.shutdown()
        self.server_close()
        self._thread.join()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say what went wrong, and go on."""
        _log.exception("answering on %s failed", self.path)


class _Handler(socketserver.BaseRequestHandler):
    server: Server
    request: socket.socket

    def handle(self) -> None:
        try:
            self.request.settimeout(_PATIENCE_S)
            request = self._read()
            # A reader may take its time over a long answer.
            self.request.settimeout(None)
            try:
                self._answer(request)
            except JournalError as error:
                self._send(FAILED, str(error).encode())
            else:
                self._send(END, b"")
        except (OSError, EOFError):
            # They went away.
            return

    def _read(self) -> Request:
        (length,) = LENGTH.unpack(receive(self.request, LENGTH.size))
        if length > _REQUEST_BYTES:
            raise EOFError
        data = receive(self.request, length)
        try:
            return msgspec.json.decode(data, type=Request)
        except msgspec.MsgspecError:
            raise EOFError from None

    def _answer(self, request: Request) -> None:
        store = self.server.store()
        if store is None:
            raise ProjectionError("the projection is being opened; try again")
        if request.sql is not None:
            import pyarrow as pa

            with store.query(request.sql) as reader:
                sink = pa.PythonFile(_Frames(self), mode="w")
                with pa.ipc.new_stream(sink, reader.schema) as stream:
                    for batch in reader:
                        stream.write_batch(batch)
        elif request.task_id is not None:
            self._send(DATA, msgspec.msgpack.encode(Answer(*store.task(request.task_id))))
        else:
            self._send(DATA, msgspec.msgpack.encode(Answer(None, store.offsets())))

    def _send(self, kind: bytes, payload: bytes) -> None:
        self.request.sendall(FRAME.pack(kind, len(payload)) + payload)


class _Frames:
    """A file that sends what is written to it as frames of data."""

    closed = False

    def __init__(self, handler: _Handler) -> None:
        self._handler = handler

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        for start in range(0, len(view), 1 << 20):
            self._handler._send(DATA, bytes(view[start : start + (1 << 20)]))
        return len(view)

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """The connection outlives it."""


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
