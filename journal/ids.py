"""Ids and times: the one place where randomness and the clock enter events.

Ids are 128 random bits in hex from a pool, since a call to the system for each costs more than
the rest of an append. Task ids made here carry their birth time, so that a task can be found
in a topic without reading all of it. Knows nothing of events.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

_POOL_BYTES = 4096
_pool = b""
_used = 0


def new_id() -> str:
    """A fresh id: 32 hex digits, 128 random bits."""
    global _pool, _used
    if _used + 16 > len(_pool):
        _pool, _used = os.urandom(_POOL_BYTES), 0
    taken = _pool[_used : _used + 16]
    _used += 16
    return taken.hex()


def _forget() -> None:
    global _pool
    _pool = b""


# Two processes that share a pool would mint the same ids.
os.register_at_fork(after_in_child=_forget)


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


_text_of: tuple[int, str] = (-1, "")


def rfc3339(ms: int) -> str:
    """UTC, to the millisecond: `2026-11-30T09:15:00.250Z`."""
    global _text_of
    if _text_of[0] != ms:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
        _text_of = (ms, moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z")
    return _text_of[1]


_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PREFIX = "t-"
_TIME_DIGITS = 10


def new_task_id() -> str:
    """A task id that carries its birth time: `t-`, 10 digits of base 32 (milliseconds since
    the epoch), `-`, 20 hex digits (80 random bits)."""
    ms = now_ms()
    digits = "".join(_ALPHABET[ms >> 5 * i & 31] for i in reversed(range(_TIME_DIGITS)))
    return f"{_PREFIX}{digits}-{os.urandom(10).hex()}"


def birth_ms(task_id: str) -> int | None:
    """When an id of `new_task_id` was made (milliseconds); None for any other id."""
    end = len(_PREFIX) + _TIME_DIGITS
    if len(task_id) != end + 21 or not task_id.startswith(_PREFIX) or task_id[end] != "-":
        return None
    ms = 0
    for digit in task_id[len(_PREFIX) : end]:
        value = _ALPHABET.find(digit)
        if value < 0:
            return None
        ms = ms << 5 | value
    return ms
