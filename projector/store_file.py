"""How the projection's DuckDB file is attached, and what DuckDB's errors mean.

Knows paths and connections; knows neither rows nor changes.
"""

from __future__ import annotations

import fcntl
import os
from typing import Any

import duckdb

from journal.errors import DiskFailed, DiskFull, ProjectionError
from projector.store_schema import (
    HEAD_BYTES,
    SIDES,
    check_place,
    damaged,
    followed,
    held,
    looks_new,
    was_ours,
)

_ROW_GROUP = 16_384
_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "checkpoint_threshold": "256MB",
    "threads": "1",
}

_DAMAGE = (
    ("WAL does not match database file", "its WAL is another file's"),
    ("Could not read enough bytes", "it was cut short"),
    ("Corrupt database file", "a checksum is wrong"),
    ("Corrupt WAL file", "a checksum of its WAL is wrong"),
    ("Failure while replaying WAL file", "its WAL cannot be read"),
)


def lock(file: int, kind: int, path: str) -> None:
    """Lock an open file as DuckDB does, whether or not DuckDB can read it.

    `kind` is `fcntl.LOCK_SH` or `LOCK_EX`. Closing any handle to the file in this process drops it.
    Raises `ProjectionError` where somebody else holds the file, or `path` leads to another by now.
    """
    try:
        fcntl.lockf(file, kind | fcntl.LOCK_NB)
        same = os.path.samestat(os.fstat(file), os.stat(path))
    except OSError:
        same = False
    if not same:
        raise held(path)


def clear(path: str) -> None:
    """Remove a file that DuckDB has not finished making: it would refuse it."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        lock(file, fcntl.LOCK_EX, path)
        if os.fstat(file).st_size < HEAD_BYTES:
            os.unlink(path)
    finally:
        os.close(file)


def attach(path: str, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(":memory:", config={**_CONFIG, "temp_directory": path + ".tmp"})
    name = os.path.abspath(path).replace("'", "''")
    try:
        options = "READ_ONLY" if read_only else f"ROW_GROUP_SIZE {_ROW_GROUP}"
        con.execute(f"ATTACH '{name}' AS d ({options})")
    except duckdb.Error as error:
        con.close()
        raise explained(path, error) from error
    return con


def check_journal(con: Any, path: str, journal_id: str | None) -> None:
    if journal_id is None:
        return
    for (found,) in con.execute("SELECT DISTINCT journal_id FROM d.offsets").fetchall():
        if found != journal_id:
            raise ProjectionError(
                f"{path}: belongs to journal {found}, the log is journal {journal_id}; "
                f"name another file with --db"
            )


def settle(path: str, journal_id: str) -> None:
    """Bring what a killed projector has left beside a projection of this journal into its file.

    A file that is refused is only read. Raises `ProjectionError`: none of ours, whichever its
    version, another journal's, held by somebody; `ProjectionDamaged` where it cannot be read.
    """
    path = followed(path)
    check_place(path)
    if looks_new(path):
        raise ProjectionError(f"{path}: no projection there; make one with: projector run")
    con = attach(path, read_only=True)
    try:
        if was_ours(con, path):
            check_journal(con, path, journal_id)
        if any(os.path.exists(path + side) for side in SIDES):
            con.close()
            con = attach(path)
            con.execute("CHECKPOINT d")
    except duckdb.Error as error:
        raise explained(path, error) from error
    finally:
        con.close()


def explained(path: str, error: duckdb.Error) -> ProjectionError:
    """One line on what DuckDB says, and what to do."""
    text = " ".join(str(error).split("\n\n")[0].split())
    if "Could not set lock" in text or "Conflicting lock" in text:
        return held(path)
    for words in ("No space left on device", "Disk quota exceeded", "File too large"):
        if words in text:
            return DiskFull(f"{path}: the disk is full ({words}); free some space")
    for words in ("fsync failed", "Input/output error"):
        if words in text:
            return DiskFailed(
                f"{path}: the disk reports an error ({words}); check it, then run this again"
            )
    if "Permission denied" in text or "Read-only file system" in text:
        return ProjectionError(f"{path}: cannot be opened; check its permissions and its folder's")
    for words, what in _DAMAGE:
        if words in text and "Out of Memory" not in text:
            return damaged(path, what)
    return ProjectionError(f"{path}: {text}")
