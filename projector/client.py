"""Reading a projection, whoever holds it: through a running projector's socket, else the file.

Read-only. Knows the `frames` and how `entries` makes a state of rows; the file itself
is the store's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import msgspec

from journal.errors import ProjectionError
from journal.partition import partition_of
from journal.resume import Checkpoint
from journal.state import TaskState
from projector.entries import rebuilt
from projector.frames import DATA, FAILED, FRAME, Request, receive, send, socket_path
from projector.serve import Answer


class Checkpoints:
    """The checkpoints in the projection `db`: a `journal.resume.CheckpointStore`."""

    def __init__(self, db: str | os.PathLike[str]) -> None:
        self.db = os.fspath(db)

    async def checkpoint(self, task_id: str, journal_id: str) -> Checkpoint | None:
        """See `CheckpointStore.checkpoint`. None, too, where there is no file yet."""
        return await asyncio.to_thread(self._checkpoint, task_id, journal_id)

    def _checkpoint(self, task_id: str, journal_id: str) -> Checkpoint | None:
        if not os.path.exists(self.db):
            return None
        answer = ask(self.db, Request(task_id=task_id))
        for offset in answer.offsets.values():
            if offset.journal_id != journal_id:
                raise ProjectionError(
                    f"{self.db}: belongs to journal {offset.journal_id}, the log is journal "
                    f"{journal_id}; resume with the projection of this log, or without one"
                )
        if not answer.offsets:
            return None
        if answer.task is not None:
            state = rebuilt(answer.task).state
        else:
            partition = partition_of(task_id, len(answer.offsets))
            state = TaskState(task_id, partition=partition)
        offset = answer.offsets[state.partition]
        return Checkpoint(state, offset.next_offset, offset.last_checksum)


def ask(db: str, request: Request) -> Answer:
    """A task's rows or the offsets. Raises `ProjectionError`."""
    with _connected(db) as connection:
        if connection is not None:
            data = b"".join(_frames(connection, request))
            return msgspec.msgpack.decode(data, type=Answer)
    from projector.store import Store

    store = Store.open_for_reading(db)
    try:
        if request.task_id is not None:
            return Answer(*store.task(request.task_id))
        return Answer(None, store.offsets())
    finally:
        store.close()


@contextlib.contextmanager
def query(db: str, sql: str) -> Iterator[Any]:
    """The result of one SELECT, as a `pyarrow.RecordBatchReader`, while the block lasts.

    Raises `ProjectionError`, also while the result is being read.
    """
    with _connected(db) as connection:
        if connection is not None:
            import pyarrow as pa

            frames = _File(_frames(connection, Request(sql)))
            with pa.ipc.open_stream(pa.PythonFile(frames, mode="r")) as reader:
                yield reader
            return
    from projector.store import Store

    store = Store.open_for_reading(db)
    try:
        with store.query(sql) as reader:
            yield reader
    finally:
        store.close()


@contextlib.contextmanager
def _connected(db: str) -> Iterator[socket.socket | None]:
    """A connection to the projector that holds `db`; None where none runs."""
    path = socket_path(db)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            yield None
            return
        except OSError as error:
            raise ProjectionError(
                f"{path}: cannot ask the projector ({error.strerror}); run as its user"
            ) from None
        yield connection
    finally:
        connection.close()


def _frames(connection: socket.socket, request: Request) -> Iterator[bytes]:
    """The answer's data, piece by piece."""
    try:
        send(connection, request)
        while True:
            kind, length = FRAME.unpack(receive(connection, FRAME.size))
            payload = receive(connection, length)
            if kind == FAILED:
                raise ProjectionError(payload.decode())
            if kind != DATA:
                return
            yield payload
    except (EOFError, OSError):
        raise ProjectionError("the projector went away while it answered; try again") from None


class _File:
    """Data frames as a file to read from."""

    closed = False

    def __init__(self, frames: Iterator[bytes]) -> None:
        self._frames = frames
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; fewer only at the end."""
        while size < 0 or len(self._left) < size:
            piece = next(self._frames, None)
            if piece is None:
                break
            self._left += piece
        if size < 0:
            size = len(self._left)
        taken, self._left = self._left[:size], self._left[size:]
        return taken

    def close(self) -> None:
        """The connection is closed by whoever opened it."""
