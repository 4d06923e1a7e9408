"""Which files the embedded log touches, which it refuses, and with what words."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import apsw
import duckdb
import pytest

from journal.errors import (
    JournalError,
    LogMisconfigured,
    LogNotFound,
    LogUnavailable,
    NotAJournal,
)
from journal.sqlite_file import APPLICATION_ID, SCHEMA_VERSION, network_type
from journal.sqlite_log import SqliteLog
from tests.contract.probe import everything, put, values


async def refused(path: str, kind: type[JournalError], create: bool = True) -> str:
    """Why `path` is not opened, and what to do: one line that names it."""
    with pytest.raises(kind) as caught:
        await SqliteLog.open(path, create=create)
    assert type(caught.value) is kind
    text = str(caught.value)
    assert "\n" not in text
    assert path in text
    return text


def sqlite_file(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def foreign_wal_file(path: Path) -> None:
    sqlite_file(path, "PRAGMA journal_mode = WAL", "CREATE TABLE t (x)", "INSERT INTO t VALUES (1)")


def duckdb_file(path: Path) -> None:
    db = duckdb.connect(str(path))
    db.execute("CREATE TABLE t AS SELECT 1 AS x")
    db.close()


FOREIGN = {
    "sqlite": lambda path: sqlite_file(path, "CREATE TABLE records (offset, key, value)"),
    "sqlite in WAL mode": foreign_wal_file,
    "another application": lambda path: sqlite_file(path, "PRAGMA application_id = 1234567"),
    "duckdb": duckdb_file,
    "text": lambda path: path.write_text("dear diary\n" * 100),
    "short": lambda path: path.write_bytes(b"SQLite format 3\0"),
    "zeros": lambda path: path.write_bytes(bytes(8_192)),
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("create", [True, False])
async def test_a_foreign_file_is_refused_and_left_alone(
    tmp_path: Path, what: str, create: bool
) -> None:
    path = tmp_path / "file"
    FOREIGN[what](path)
    before = path.read_bytes()
    stamp = path.stat().st_mtime_ns
    await refused(str(path), NotAJournal, create)
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == stamp
    assert os.listdir(tmp_path) == ["file"]


async def test_a_folder_is_no_journal(tmp_path: Path) -> None:
    await refused(str(tmp_path), NotAJournal)


async def test_a_missing_file_names_the_command_that_makes_it(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.db")
    assert "journal init" in await refused(path, LogNotFound, create=False)
    assert os.listdir(tmp_path) == []


async def test_a_missing_folder(tmp_path: Path) -> None:
    text = await refused(str(tmp_path / "none" / "journal.db"), LogNotFound)
    assert "folder" in text


async def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    await refused(str(tmp_path / "file" / "journal.db"), LogUnavailable)


async def test_an_empty_file_is_nothing_yet(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.touch()
    await refused(str(path), LogNotFound, create=False)
    log = await SqliteLog.open(path, create=True)
    await put(log, b"1")
    assert log.url == str(path)
    await log.close()


@pytest.mark.parametrize("in_wal", [False, True])
async def test_a_newer_release_is_named(tmp_path: Path, in_wal: bool) -> None:
    path = str(tmp_path / "journal.db")
    await (await SqliteLog.open(path, create=True)).close()
    newer = apsw.Connection(path)
    newer.pragma("user_version", SCHEMA_VERSION + 1)
    if not in_wal:
        newer.close()
    assert "upgrade" in await refused(path, LogMisconfigured)
    newer.close()


async def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    log = await SqliteLog.open(path, create=True)
    await put(log, *(b"x" * 1_000 for _ in range(100)))
    await log.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4_096] + b"\xa5" * (len(whole) - 4_096))
    try:
        log = await SqliteLog.open(path)
    except LogUnavailable as error:
        text = str(error)
    else:
        with pytest.raises(LogUnavailable) as caught:
            await everything(log)
        text = str(caught.value)
        await log.close()
    assert "damaged" in text
    assert "\n" not in text


async def test_many_may_make_one_journal_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    logs = await asyncio.gather(*(SqliteLog.open(path, create=True) for _ in range(8)))
    for log in logs:
        await put(log, b"x")
    assert [record.offset for record in await everything(logs[0])] == list(range(8))
    for log in logs:
        await log.close()


async def test_what_the_file_says_of_itself(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    log = await SqliteLog.open(path, create=True)
    with log._writer_seat.taken() as db:
        assert db.pragma("synchronous") == 2
        assert db.pragma("journal_mode") == "wal"
    await log.close()
    assert int.from_bytes(path.read_bytes()[68:72]) == APPLICATION_ID


# --- permissions ----------------------------------------------------------------------------


@pytest.fixture
def readable_folder() -> Iterator[Path]:
    """A folder that others may look into but not change."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def as_somebody_else(path: str, create: bool, pipe: Connection) -> None:
    """Open `path` without any privilege, and send what came of it."""
    if os.geteuid() == 0:
        os.setuid(65534)
    else:
        folder = os.path.dirname(path)
        if os.stat(folder).st_mode & 0o777 == 0o755:
            os.chmod(folder, 0o500)
        if os.path.exists(path):
            os.chmod(path, 0o400)

    async def main() -> None:
        try:
            log = await SqliteLog.open(path, create=create)
        except JournalError as error:
            pipe.send((type(error).__name__, str(error)))
        else:
            await log.close()
            pipe.send(("opened", ""))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("there", "folder_mode"),
    [(True, 0o755), (False, 0o755), (True, 0o777)],
    ids=["journal and folder", "folder", "journal"],
)
async def test_what_is_read_only_is_one_line(
    readable_folder: Path, there: bool, folder_mode: int
) -> None:
    path = readable_folder / "journal.db"
    if there:
        log = await SqliteLog.open(path, create=True)
        await put(log, b"1")
        await log.close()
        path.chmod(0o644)
    readable_folder.chmod(folder_mode)
    context = multiprocessing.get_context("fork")
    here, pipe = context.Pipe(duplex=False)
    child = context.Process(target=as_somebody_else, args=(str(path), True, pipe))
    child.start()
    kind, text = await asyncio.to_thread(here.recv)
    await asyncio.to_thread(child.join)
    os.chmod(readable_folder, 0o755)
    assert kind == "LogUnavailable"
    assert str(path) in text
    assert "permissions" in text
    assert "\n" not in text
    if there:
        os.chmod(path, 0o644)
        log = await SqliteLog.open(path)
        assert values(await everything(log)) == [b"1"]
        await log.close()
    else:
        assert os.listdir(readable_folder) == []


# --- network mounts -------------------------------------------------------------------------

LINUX = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:40 / /mnt/nfs rw,relatime shared:7 - nfs4 server:/export rw,vers=4.2
41 27 0:41 / /mnt/nfs/local rw,relatime - xfs /dev/vdb rw
42 27 0:42 / /mnt/with\040space rw - cifs //server/share rw
43 27 0:43 / /home/me/sshfs rw,nosuid - fuse.sshfs me@host: rw
44 27 0:44 / /home/me/ntfs rw - fuseblk /dev/sdb1 rw
45 27 0:45 / /mnt/c rw,noatime - 9p C:\134 rw
46 27 0:46 / /mnt/shadowed rw - nfs server:/a rw
47 27 254:0 / /mnt/shadowed rw - ext4 /dev/vdc rw
48 27 0:48 / /mnt/bucket rw - fuse.rclone remote: rw
"""
MACOS = """
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse, protect)
//me@server/share on /Volumes/My share (smbfs, nodev, nosuid, mounted by me)
server:/export on /Volumes/nfs (nfs, nodev, nosuid)
"""


@pytest.mark.parametrize(
    ("mounts", "path", "type_"),
    [
        (LINUX, "/home/me/journal.db", None),
        (LINUX, "/mnt/nfs/journal.db", "nfs4"),
        (LINUX, "/mnt/nfs-not/journal.db", None),
        (LINUX, "/mnt/nfs/local/journal.db", None),
        (LINUX, "/mnt/with space/a/journal.db", "cifs"),
        (LINUX, "/home/me/sshfs/journal.db", "fuse.sshfs"),
        (LINUX, "/home/me/ntfs/journal.db", None),
        (LINUX, "/mnt/c/journal.db", "9p"),
        (LINUX, "/mnt/shadowed/journal.db", None),
        (LINUX, "/mnt/bucket/journal.db", "fuse.rclone"),
        (MACOS, "/Users/me/journal.db", None),
        (MACOS, "/Volumes/My share/journal.db", "smbfs"),
        (MACOS, "/Volumes/nfs/x/journal.db", "nfs"),
        ("", "/home/me/journal.db", None),
        ("nonsense\n - \n1 2 3 - nfs\n", "/home/me/journal.db", None),
    ],
)
def test_the_mount_that_holds_a_path(mounts: str, path: str, type_: str | None) -> None:
    assert network_type(path, mounts) == type_


async def test_a_network_mount_is_refused_even_through_a_link(tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    (tmp_path / "link").symlink_to(far)
    table = f"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {far.resolve()} rw - nfs4 server:/x rw\n"
    for folder in (far, tmp_path / "link"):
        with pytest.raises(LogMisconfigured) as caught:
            await SqliteLog.open(folder / "journal.db", create=True, mounts=table)
        assert "nfs4" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert os.listdir(far) == []
    await (await SqliteLog.open(tmp_path / "journal.db", create=True, mounts=table)).close()
