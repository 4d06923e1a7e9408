"""Ids and times: the one place where randomness and the clock enter events.

Ids are 128 random bits in hex from a pool, since a call to the system for each costs more than
the rest of an append. Task ids made here carry their birth time, so that a task can be found
in a topic without reading all of it. Knows nothing of events.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_POOL_IDS = 256
_pool: list[str] = []


def new_id() -> str:
    """A fresh id: 32 hex digits, 128 random bits. Safe in threads: `pop` is one step."""
    try:
        return _pool.pop()
    except IndexError:
        fresh = os.urandom(16 * _POOL_IDS).hex()
        mine, *rest = (fresh[i : i + 32] for i in range(0, len(fresh), 32))
        _pool.extend(rest)
        return mine


# Two processes that share a pool would mint the same ids.
os.register_at_fork(after_in_child=_pool.clear)


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def now() -> datetime:
    """The same moment, UTC, to the microsecond; by the one clock, that a test may replace."""
    return _EPOCH + timedelta(microseconds=time.time_ns() // 1_000)


_second: tuple[int, str] = (0, "1970-01-01T00:00:00")
_moment: tuple[int, str] = (0, "1970-01-01T00:00:00.000Z")


def rfc3339(ms: int) -> str:
    """UTC, to the millisecond: `2026-11-30T09:15:00.250Z`."""
    global _second, _moment
    moment, text = _moment
    if moment != ms:
        whole, part = divmod(ms, 1000)
        known, date = _second
        if known != whole:
            date = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            _second = (whole, date)
        text = f"{date}.{part:03d}Z"
        _moment = (ms, text)
    return text


_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PREFIX = "t-"
_TIME_DIGITS = 10


def new_task_id(born_ms: int | None = None) -> str:
    """A task id that carries its birth time, by default now: `t-`, 10 digits of base 32
    (milliseconds since the epoch), `-`, 20 hex digits (80 random bits)."""
    ms = now_ms() if born_ms is None else born_ms
    digits = "".join(_ALPHABET[ms >> 5 * i & 31] for i in reversed(range(_TIME_DIGITS)))
    return f"{_PREFIX}{digits}-{os.urandom(10).hex()}"


def birth_ms(task_id: str) -> int | None:
    """When an id of `new_task_id` was made (milliseconds), or that of the task whose sub-task has
    this id; None for any other id."""
    task_id = task_id.partition(":")[0]
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
