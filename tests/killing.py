"""Work in a forked child that is killed between two of its system calls, or whose disk is full.

For code that calls the system by way of builtins (`os.write`); knows nothing of what it runs.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

KILLED = -signal.SIGKILL
DISK_FULL = 28


def in_child(
    work: Callable[[], Any], *, source: str, kill_at: int | None = None, room: int | None = None
) -> int:
    """Run it in a forked child; the child's exit code: 0, `KILLED` or `DISK_FULL`.

    source   the file whose system calls count
    kill_at  SIGKILL at this moment, from 1; each call has two, before and after it
    room     bytes that a file may have. The write that would exceed it is cut short
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        moments = 0

        def moment(frame: FrameType, event: str, called: Any) -> None:
            nonlocal moments
            if event in ("c_call", "c_return") and _is_ours(frame, called, source):
                moments += 1
                if moments == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(moment)
        work()
        code = 0
    except OSError:
        code = DISK_FULL
    finally:
        os._exit(code)


def system_calls(work: Callable[[], Any], source: str) -> list[str]:
    """The names of the system calls that `source` makes while this runs."""
    names: list[str] = []

    def note(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and _is_ours(frame, function, source):
            names.append(function.__name__)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return names


def _is_ours(frame: FrameType, called: Any, source: str) -> bool:
    return frame.f_code.co_filename == source and called.__module__ in ("posix", "fcntl")
