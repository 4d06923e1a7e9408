"""A place for one connection, and what becomes of it when the process forks.

SQLite keeps its file locks in process-wide tables, and a child that inherits them believes in
locks that it does not hold: even opening the file anew would then be unsafe. So every connection
is closed before a fork, and both sides open theirs again when they next need one.
(`subprocess` forks without running any Python in the child, and is not affected.)

Knows connections and locks; knows nothing of records.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from journal.errors import LogReplaced
from journal.sqlite_file import connect, identity


class Seat:
    """One connection to the file at `path`, opened on first use, for one thread at a time.

    `known` is the identity that the file must have; as of now unless given.
    """

    def __init__(self, path: str, patience_s: float, known: tuple[int, int] | None = None) -> None:
        self.path = path
        self.patience_s = patience_s
        self.known = known or identity(path)
        self._lock = threading.Lock()
        self._db: apsw.Connection | None = None
        # Not while another thread forks: what opens then would be open in the child.
        with _fork:
            _seats.add(self)

    @contextmanager
    def taken(self) -> Iterator[apsw.Connection]:
        """The connection, for the time of the block.

        Raises `LogReplaced` where the path leads to another file by now, or to none, and
        `LogUnavailable` where the file cannot be opened.
        """
        with self._lock:
            if identity(self.path) != self.known:
                raise LogReplaced(f"{self.path}: another file has taken its place; open it again")
            if self._db is None:
                self._db = connect(self.path, self.patience_s)
            yield self._db

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        with self._lock:
            self._shut()

    def _shut(self) -> None:
        if self._db is not None:
            db, self._db = self._db, None
            db.close()


_seats: weakref.WeakSet[Seat] = weakref.WeakSet()
_emptied: list[Seat] = []
_fork = threading.Lock()


@contextmanager
def no_fork() -> Iterator[None]:
    """Inside, no thread forks: for a connection that has no seat."""
    with _fork:
        yield


def _before_fork() -> None:
    _fork.acquire()
    for seat in list(_seats):
        seat._lock.acquire()
        _emptied.append(seat)
        seat._shut()


def _after_fork() -> None:
    for seat in _emptied:
        seat._lock.release()
    _emptied.clear()
    _fork.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
