"""Answers for this machine's own user while a projector holds the file: a local socket beside it.

Everything is read-only. Knows the store, not the log; what goes over the socket is `frames`, and
what the other end does is in `client` and `health`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from journal.errors import JournalError, ProjectionError
from projector.entries import Offset, TaskRows
from projector.frames import (
    DATA,
    END,
    FAILED,
    FRAME,
    LENGTH,
    Request,
    receive,
    socket_path,
)
from projector.health import Health

if TYPE_CHECKING:
    from projector.store import Store

_REQUEST_BYTES = 1 << 20
_PATIENCE_S = 10.0

_log = logging.getLogger("projector")


class Answer(Struct):
    """About a task or the offsets: the task's rows (None where there are none), and all offsets,
    of one moment."""

    task: TaskRows | None
    offsets: dict[int, Offset]


class Server(socketserver.ThreadingUnixStreamServer):
    """Listens beside `db` until `close`; `store` gives the open store, or None while there is
    none, and `health` how the projector is. Start it only while that store is held: then what
    stands in its place is stale."""

    daemon_threads = True
    block_on_close = False
    # A probe does not wait for its turn: it would take a full queue for a projector that hangs.
    request_queue_size = 128

    def __init__(
        self, db: str, store: Callable[[], Store | None], health: Callable[[], Health] = Health
    ) -> None:
        self.path = socket_path(db)
        self.store = store
        self.health = health
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
        if request.health:
            self._send(DATA, msgspec.msgpack.encode(self.server.health()))
            return
        store = self.server.store()
        if store is None:
            raise ProjectionError("the projection is being opened; try again")
        if request.sql is not None:
            import pyarrow as pa

            with store.query(request.sql, self._cut) as reader:
                sink = pa.PythonFile(_Frames(self), mode="w")
                # Closed only when all is written: closing says that this was the whole answer, and
                # whoever reads would not wait to hear of an error.
                stream = pa.ipc.new_stream(sink, reader.schema)
                for batch in _read(reader):
                    stream.write_batch(batch)
                stream.close()
        elif request.task_id is not None:
            self._send(DATA, msgspec.msgpack.encode(Answer(*store.task(request.task_id))))
        else:
            self._send(DATA, msgspec.msgpack.encode(Answer(None, store.offsets())))

    def _cut(self) -> None:
        with contextlib.suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)

    def _send(self, kind: bytes, payload: bytes) -> None:
        self.request.sendall(FRAME.pack(kind, len(payload)) + payload)


def _read(batches: Iterable[Any]) -> Iterator[Any]:
    """Them; what DuckDB says in between comes as whatever error Arrow makes of it."""
    try:
        yield from batches
    except Exception as error:
        raise ProjectionError(" ".join(str(error).split("\n\n")[0].split())) from error


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
