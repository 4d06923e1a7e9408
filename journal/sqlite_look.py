"""Looking at the embedded log's file without changing it or anything beside it.

The log's own connections make a WAL and tidy it up when they close; this one only reads, for
whoever asks what is wrong with a file. Everything here blocks, so callers run it in a thread.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import NamedTuple
from urllib.parse import quote

import apsw

from journal.errors import LogError, LogUnavailable
from journal.log import Record
from journal.sqlite_file import check, explain, patience, prepare
from journal.sqlite_read import bounds, read_batch

_TRIES = 3
_FAULTS = 3
_STEPS = 1_000
"""SQLite's steps between two looks at the clock."""


class Look(NamedTuple):
    """What the file tells of itself."""

    first: int
    end: int
    """Offset that the next record gets."""
    genesis: Record | None
    """The first record."""
    faults: tuple[str, ...] | None
    """What SQLite's quick check finds, at most a few; None where it was not finished in time."""


def library_version() -> str:
    """Of the SQLite that apsw brings."""
    return apsw.sqlite_lib_version()


def look(path: str, seconds: float) -> Look | None:
    """Look at the file at `path` (absolute), with a quick check of at most `seconds`. None where
    a WAL waits to be recovered, which only an opening for writing does.

    Raises `LogNotFound`, `NotAJournal`, `LogMisconfigured` (a newer release) or `LogUnavailable`.
    Whether it is on a network mount is not looked at.
    """
    prepare(path, create=False, mounts="")
    for _ in range(_TRIES):
        shared = _size(f"{path}-wal") > 0
        if shared and not os.path.exists(f"{path}-shm"):
            return None
        before = _stamp(path)
        try:
            found: Look | LogError = _look(path, shared, seconds)
        except apsw.Error as error:
            found = explain(path, error)
        # Without a WAL nobody has the file open, and SQLite is told that it does not change.
        if shared or before == _stamp(path):
            if isinstance(found, LogError):
                raise found
            return found
    raise LogUnavailable(f"{path}: changes while it is looked at; try again")


def _look(path: str, shared: bool, seconds: float) -> Look:
    # An ordinary connection would make the WAL anew.
    how = "mode=ro" if shared else "immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with contextlib.closing(apsw.Connection(f"file:{quote(path)}?{how}", flags=flags)) as db:
        db.set_busy_handler(patience())
        check(path, db)
        first, end = bounds(db)
        records = read_batch(db, path, first, first + 1)[0]
        return Look(first, end, records[0] if records else None, _faults(db, seconds))


def _faults(db: apsw.Connection, seconds: float) -> tuple[str, ...] | None:
    deadline = time.monotonic() + seconds
    found: list[str] = []
    db.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        for (text,) in db.execute(f"PRAGMA quick_check({_FAULTS})"):
            found.append(" ".join(str(text).split()))
    except apsw.InterruptError:
        return None
    except apsw.CorruptError as error:
        # The check stops where it cannot even read on.
        found.append(str(error))
    finally:
        db.set_progress_handler(None)
    return () if found == ["ok"] else tuple(found)


def _stamp(path: str) -> tuple[int, int, int, int]:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, _size(f"{path}-wal")


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
