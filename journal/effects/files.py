"""A file written whole, and a line appended once, whatever interrupts them.

Knows local files and locks on them; knows an idempotency key, but no task and no log.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any

from journal.content import Content
from journal.tools import tool


@tool(effect="idempotent")
def write_file(path: str, content: str | bytes | Content) -> dict[str, Any]:
    """Write a file as a whole: whoever reads it sees the old content or the new one.

    A text is written as UTF-8. A file that exists keeps its permissions, and a symbolic link
    stays one; owner, ACLs and other hard links are not kept. The folder must exist. A process that
    is killed in here may leave a `.….partial` beside the file.

    Returns `path` as it was given, `size` in bytes and `sha256` in hex, of what was written. When
    it runs again after a crash it writes again: what somebody else wrote in between is replaced.

    Raises `OSError`, `ValueError` where `path` is a device, a pipe or a socket.
    """
    data = _bytes(content)
    target = os.path.realpath(path)
    known = _regular(path, target)
    folder = os.path.dirname(target)
    partial = os.path.join(folder, f".{secrets.token_hex(8)}.partial")
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        try:
            if known is not None:
                os.fchmod(file, stat.S_IMODE(known.st_mode))
            _write(file, data)
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
    _sync_folder(folder)
    return {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@tool(effect="idempotent")
def append_line(path: str, line: str, idempotency_key: str) -> dict[str, Any]:
    """Append a line to a file, once for each idempotency key.

    Before a line is written its key, the file's size and the line are noted in `.NAME.appended`
    beside the file. When a call runs again, and before the next line, it is looked up whether the
    last one noted is in the file from that size on: one that was cut short is completed, one that
    is missing counts as never begun. Calls wait for each other by a lock on the notes, across
    threads and processes. A last line without an end is ended first.

    Others may append to the file without the lock, whole lines at a time. Where a crash came
    between note and line, and one of them has then written the same line, theirs counts as ours.
    Outside of what this can do: network file systems, somebody who edits, cuts or renames the file
    between a crash and the resumption, hard links (each name has notes of its own), and a call
    that failed, of a task that `journal retry` reopens: it has a new key. The notes hold every
    line, and each call reads them; they may be deleted while no call is unfinished.

    Returns `path` as it was given, and `size`, the bytes of the line with its end.

    Raises `ValueError` for a line with a line break in it, or where `path` is a device, a pipe or
    a socket; `OSError`.
    """
    if "\n" in line or "\r" in line:
        raise ValueError("append_line: the line has a line break in it; call it for each line")
    data = line.encode() + b"\n"
    target = os.path.realpath(path)
    known = _regular(path, target)
    mode = 0o666 if known is None else stat.S_IMODE(known.st_mode)
    folder, name = os.path.split(target)
    with (
        # They hold the lines, so nobody may read them who may not read the file.
        _opened(os.path.join(folder, f".{name}.appended"), mode) as notes_file,
        _locked(notes_file),
        _opened(target) as file,
    ):
        _no_wider(notes_file, file)
        notes = _Notes(notes_file)
        if notes.last is not None and not _is_there(file, *notes.last):
            notes.forget_last()
        if not notes.has(idempotency_key):
            size = os.fstat(file).st_size
            is_first = size == 0 or not notes.kept
            ended = size == 0 or os.pread(file, 1, size - 1) == b"\n"
            notes.add(idempotency_key, size, data)
            if is_first:
                # The notes must outlive a power cut as surely as the line.
                _sync_folder(folder)
            _write(file, data if ended else b"\n" + data)
        os.fsync(file)
    return {"path": path, "size": len(data)}


class _Notes:
    """What was begun, oldest first: `KEY SIZE LINE`, a line each. Only the last one may not have
    been carried out. A key is kept as its digest."""

    def __init__(self, file: int) -> None:
        self._file = file
        found = _read(file, 0)
        # A note without an end was not on disk when its writer died, so its line was not begun.
        self.kept = found[: found.rfind(b"\n") + 1]

    @property
    def last(self) -> tuple[int, bytes] | None:
        """The file's size before the last one, and its line. None where there is none."""
        if not self.kept:
            return None
        size, _, line = self.kept[self._last_at() :].partition(b" ")[2].partition(b" ")
        # A power cut may leave a note of zeros; its line was not begun either.
        return (int(size), line) if size.isdigit() else None

    def _last_at(self) -> int:
        return self.kept.rfind(b"\n", 0, -1) + 1

    def forget_last(self) -> None:
        self.kept = self.kept[: self._last_at()]

    def has(self, key: str) -> bool:
        start = _digest(key)
        return self.kept.startswith(start) or b"\n" + start in self.kept

    def add(self, key: str, size: int, line: bytes) -> None:
        os.ftruncate(self._file, len(self.kept))
        _write(self._file, b"%s%d %s" % (_digest(key), size, line))
        os.fsync(self._file)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).hexdigest().encode() + b" "


def _is_there(file: int, size: int, line: bytes) -> bool:
    """Whether the line is in what the file has grown by since it had this size. The beginning of
    one at the very end is completed."""
    # With the byte before, which tells whether a line begins there.
    grown = b"\n" * (size == 0) + _read(file, max(0, size - 1))
    if b"\n" + line in grown:
        return True
    _, ended, cut = grown.rpartition(b"\n")
    if not ended or not cut or not line.startswith(cut):
        return False
    _write(file, line[len(cut) :])
    return True


# --- files ------------------------------------------------------------------------------------


def _bytes(content: str | bytes | Content) -> bytes:
    if isinstance(content, Content):
        return content.data
    return content.encode() if isinstance(content, str) else content


def _regular(path: str, target: str) -> os.stat_result | None:
    """What is known of the file; None where it does not exist. Raises `ValueError`."""
    try:
        known = os.stat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(known.st_mode):
        raise ValueError(f"{path}: not a regular file; name one, or one that does not exist")
    return known


def _no_wider(notes: int, file: int) -> None:
    """The file may have been closed to some since the notes were made."""
    mode, most = (stat.S_IMODE(os.fstat(f).st_mode) for f in (notes, file))
    if mode & ~most:
        with contextlib.suppress(PermissionError):
            os.fchmod(notes, mode & most)


@contextlib.contextmanager
def _opened(path: str, mode: int = 0o666) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, mode)
    try:
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def _locked(file: int) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        # Closing would not do where a child was forked meanwhile: it holds the lock as well.
        fcntl.flock(file, fcntl.LOCK_UN)


def _read(file: int, start: int) -> bytes:
    data = b""
    while (left := os.fstat(file).st_size - start - len(data)) > 0:
        # All of it at once, in nearly every case.
        data += os.pread(file, left, start + len(data))
    return data


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
