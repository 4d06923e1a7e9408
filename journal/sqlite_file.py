"""The embedded log's file: whether it may be touched, how it is opened, what its errors mean.

Knows paths, mounts, headers, pragmas and the schema. Knows nothing of appends, cursors, event
loops or threads. Everything here blocks, so callers run it in a thread.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable

import apsw

from journal.errors import (
    LogError,
    LogMisconfigured,
    LogNotFound,
    LogReplaced,
    LogUnavailable,
    NotAJournal,
)

APPLICATION_ID = int.from_bytes(b"StJl")
SCHEMA_VERSION = 1
PAGE_BYTES = 8_192
CHECKPOINT_PAGES = 4_096
BUSY_SECONDS = 5.0

# `value` comes last: SQLite reads the columns before it without following a long value's
# overflow pages. The key has no index, since one would halve group commit; `prev` and `heads`
# stand in for it. Offsets begin at 0, hence a sequence that begins at -1.
SCHEMA = f"""
CREATE TABLE records (
    offset INTEGER PRIMARY KEY AUTOINCREMENT,
    key BLOB NOT NULL,
    timestamp_ms INTEGER NOT NULL,
    prev INTEGER NOT NULL,
    value BLOB NOT NULL
);
CREATE TABLE heads (key BLOB PRIMARY KEY, offset INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE meta (heads_to INTEGER NOT NULL);
INSERT INTO sqlite_sequence (name, seq) VALUES ('records', -1);
INSERT INTO meta VALUES (-1);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

NETWORK_TYPES = frozenset(
    {"9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "lustre"}
    | {"ncpfs", "nfs", "nfs4", "ocfs2", "smb", "smb2", "smb3", "smbfs", "webdav"}
)
LOCAL_FUSE_TYPES = frozenset(
    {"fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuse.ntfs", "fuseblk", "fuse.bindfs", "fuse.lxcfs"}
)


# --- mounts ---------------------------------------------------------------------------------


def read_mounts() -> str:
    """The mount table as this system tells it, or "" where it does not."""
    try:
        if sys.platform == "darwin":
            return subprocess.run(
                ["/sbin/mount"], capture_output=True, text=True, check=False, timeout=5
            ).stdout
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            return table.read()
    except (OSError, subprocess.SubprocessError):
        return ""


def network_type(path: str, mounts: str) -> str | None:
    """The type of the network file system that holds `path` (absolute, resolved), or None.

    `mounts` is the text of /proc/self/mountinfo, or what macOS's `mount` prints.
    """
    found, found_type = "", ""
    for line in mounts.splitlines():
        if mac := re.match(r".* on (/.*) \((\w+)[,)]", line):
            point, type_ = mac[1], mac[2]
        else:
            before, dash, after = line.partition(" - ")
            fields = before.split()
            if not dash or len(fields) < 5 or not after:
                continue
            point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
            type_ = after.split()[0]
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # A later mount on the same point hides the one before.
        if inside and len(point) >= len(found):
            found, found_type = point, type_
    if found_type in NETWORK_TYPES:
        return found_type
    if found_type.startswith("fuse.") and found_type not in LOCAL_FUSE_TYPES:
        return found_type
    return None


# --- opening --------------------------------------------------------------------------------


def prepare(path: str, create: bool, mounts: str | None = None) -> None:
    """Check that the file at `path` (absolute) is a journal of this release, or make it one.

    A file that is something else is only read. Raises `LogNotFound`, `NotAJournal`,
    `LogMisconfigured` (network mount, newer release) or `LogUnavailable`.
    """
    real = os.path.realpath(path)
    if type_ := network_type(real, read_mounts() if mounts is None else mounts):
        raise LogMisconfigured(
            f"{path}: is on a network mount ({type_}), where SQLite can lose data; "
            f"put it on a local disk, or use a kafka:// log"
        )
    try:
        present = _looks_like_ours(path)
    except OSError as error:
        raise LogUnavailable(f"{path}: {error.strerror}; check path and permissions") from error
    if not present:
        if not create:
            raise LogNotFound(
                f"{path}: no journal there; make one with `journal init --log {path}`"
            )
        _create(path)


def check(path: str, db: apsw.Connection) -> None:
    """Whether the file is ours, as SQLite sees it, and of this release.

    Raises `NotAJournal` or `LogMisconfigured`.
    """
    if db.pragma("application_id") != APPLICATION_ID:
        raise NotAJournal(f"{path}: is not a journal; choose another path")
    version = db.pragma("user_version")
    if version != SCHEMA_VERSION:
        raise LogMisconfigured(
            f"{path}: was written by a newer release (file version {version}, this release reads "
            f"{SCHEMA_VERSION}); upgrade step-journal to read it"
        )


def connect(path: str, patience_s: float = BUSY_SECONDS) -> apsw.Connection:
    """A connection to an existing file, with what durability needs set.

    It waits `patience_s` seconds for another process that holds the file.
    """
    try:
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as error:
        raise explain(path, error) from error
    try:
        _configure(path, db, patience_s)
    except BaseException as error:
        db.close()
        if isinstance(error, apsw.Error):
            raise explain(path, error) from error
        raise
    return db


def identity(path: str) -> tuple[int, int]:
    """What tells this very file from another one of the same name."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise LogReplaced(f"{path}: the file was removed while in use; open it again") from None
    except OSError as error:
        raise LogUnavailable(f"{path}: {error.strerror}; check path and permissions") from error
    return found.st_dev, found.st_ino


def _looks_like_ours(path: str) -> bool:
    """False where there is nothing yet, or an empty file. Never opens the file with SQLite."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        parent = os.path.dirname(path)
        if not os.path.isdir(parent):
            raise LogNotFound(
                f"{path}: the folder {parent} does not exist; make it first"
            ) from None
        return False
    if not stat.S_ISREG(mode):
        raise NotAJournal(f"{path}: is not a regular file; choose another path")
    with open(path, "rb") as file:
        head = file.read(100)
    if not head:
        return False
    if head[8:12] == b"DUCK":
        raise NotAJournal(f"{path}: is a DuckDB file, not a journal; choose another path")
    if head[:16] != b"SQLite format 3\0" or len(head) < 100:
        raise NotAJournal(f"{path}: is not a journal; choose another path")
    if int.from_bytes(head[68:72]) != APPLICATION_ID:
        raise NotAJournal(f"{path}: is another program's SQLite file; choose another path")
    return True


def _create(path: str) -> None:
    """Make the schema in one transaction, so that of many who try at once one does it."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    try:
        with contextlib.closing(apsw.Connection(path, flags=flags)) as db:
            db.set_busy_handler(patience())
            _durable(db)
            db.pragma("page_size", PAGE_BYTES)
            db.execute("BEGIN EXCLUSIVE")
            if db.pragma("application_id") == 0:
                if db.execute("SELECT 1 FROM sqlite_schema").fetchall():
                    raise NotAJournal(f"{path}: is another program's SQLite file")
                db.execute(SCHEMA)
            db.execute("COMMIT")
    except apsw.Error as error:
        raise explain(path, error) from error


def _durable(db: apsw.Connection) -> None:
    db.pragma("synchronous", "FULL")
    if sys.platform == "darwin":
        db.pragma("fullfsync", True)
        db.pragma("checkpoint_fullfsync", True)


def _configure(path: str, db: apsw.Connection, patience_s: float) -> None:
    if db.readonly("main"):
        raise LogUnavailable(f"{path}: cannot be written; check the permissions")
    db.set_busy_handler(patience(patience_s))
    _durable(db)
    deadline = time.monotonic() + patience_s
    while True:
        # While somebody else makes the same switch, SQLite answers "busy" without asking the
        # busy handler.
        try:
            mode = db.pragma("journal_mode", "WAL")
            break
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)
    if mode != "wal":
        raise LogMisconfigured(f"{path}: this file system cannot hold a WAL; use a local disk")
    db.wal_autocheckpoint(CHECKPOINT_PAGES)
    # Nobody needs what a truncation deletes, and somebody may have wanted it gone.
    db.pragma("secure_delete", True)


def patience(seconds: float = BUSY_SECONDS) -> Callable[[int], bool]:
    """A busy handler that waits about a millisecond at a time, and at most `seconds`.

    SQLite's own backs off to 100 ms, which starves one of two busy processes.
    """
    deadline = 0.0

    def wait(already: int) -> bool:
        nonlocal deadline
        now = time.monotonic()
        if already == 0:
            deadline = now + seconds
        if now >= deadline:
            return False
        time.sleep(random.uniform(0.0002, 0.001))
        return True

    return wait


# --- errors ---------------------------------------------------------------------------------

# These come before a transaction's last frame is whole. Others, such as a failed fsync or a
# failed growth of the shared memory, may come after: a crash could then bring the frames back.
_ROLLED_BACK = frozenset(
    {
        apsw.SQLITE_BUSY,
        apsw.SQLITE_LOCKED,
        apsw.SQLITE_FULL,
        apsw.SQLITE_READONLY,
        apsw.SQLITE_CANTOPEN,
        apsw.SQLITE_PERM,
        apsw.SQLITE_TOOBIG,
        apsw.SQLITE_CONSTRAINT,
        apsw.SQLITE_CORRUPT,
        apsw.SQLITE_NOTADB,
    }
)
_ROLLED_BACK_IO = frozenset(
    {
        apsw.SQLITE_IOERR_WRITE,
        apsw.SQLITE_IOERR_READ,
        apsw.SQLITE_IOERR_SHORT_READ,
        apsw.SQLITE_IOERR_LOCK,
    }
)


def _code(error: apsw.Error) -> int:
    # apsw's own errors have none; 0 is no error's code.
    return int(getattr(error, "extendedresult", 0))


def certain(error: apsw.Error) -> bool:
    """True where a transaction that failed like this is surely not in the file."""
    code = _code(error)
    return code & 0xFF in _ROLLED_BACK or code in _ROLLED_BACK_IO


def explain(path: str, error: apsw.Error) -> LogError:
    """The one line that says what SQLite's error means here."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            reason = "another process holds it locked; try again, or end that process"
        case apsw.FullError():
            reason = "the disk is full; free some space and try again"
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            reason = "cannot be opened for writing; check file, folder and permissions"
        case apsw.NotADBError() | apsw.CorruptError():
            reason = "is damaged; restore it from a backup"
        case apsw.IOError():
            name = apsw.mapping_extended_result_codes.get(_code(error), "SQLITE_IOERR")
            reason = f"the disk reports an error ({name}); check free space, quota and disk"
        case _:
            reason = f"SQLite reports {type(error).__name__}: {error}".splitlines()[0]
    return LogUnavailable(f"{path}: {reason}")
