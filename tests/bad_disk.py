"""Disks that fail: a small one to be filled, and one that does not sync.

Both are the system's own means, so that any library under test meets them: a tmpfs of a few
megabytes, and a filter on system calls. Where the system does not allow that, the test is skipped
with the reason. Knows nothing of what is tested.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# --- a full disk ----------------------------------------------------------------------------


class SmallDisk:
    """A disk of `size` bytes at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self, spare: int = 0) -> None:
        """Leave `spare` bytes of it."""
        with self._filler.open("ab", buffering=0) as file:
            disk = os.statvfs(self.path)
            left = disk.f_bavail * disk.f_frsize - spare
            file.write(bytes(left))

    def make_room(self) -> None:
        """Take away what `fill` has put there."""
        self._filler.unlink()


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[SmallDisk]:
    """Mount one at `path`, which is made."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only Linux's root can mount a small disk")
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


# --- a disk that does not sync --------------------------------------------------------------

_SYNCS = {"x86_64": (74, 75), "aarch64": (82, 83)}
"""The numbers of fsync and fdatasync."""

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_NO_NEW_PRIVILEGES = 38
_LOAD_NUMBER, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.POINTER(_Instruction)))


needs_failing_syncs = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in _SYNCS,
    reason="only Linux, on x86_64 and aarch64, filters system calls here",
)


def fail_syncs() -> None:
    """From here on every fsync and fdatasync of this process fails, as on a broken disk."""
    fsync, fdatasync = _SYNCS[platform.machine()]
    code = (
        _Instruction(_LOAD_NUMBER, 0, 0, 0),
        _Instruction(_IF_EQUAL, 2, 0, fsync),
        _Instruction(_IF_EQUAL, 1, 0, fdatasync),
        _Instruction(_RETURN, 0, 0, _ALLOW),
        _Instruction(_RETURN, 0, 0, _FAIL | errno.EIO),
    )
    program = _Program(len(code), (_Instruction * len(code))(*code))
    libc = ctypes.CDLL(None, use_errno=True)
    number = _SECCOMP[platform.machine()]
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(
        number, _SET_MODE_FILTER, _ALL_THREADS, ctypes.byref(program)
    ):
        raise OSError(ctypes.get_errno(), "no filter on system calls")
