"""Ids and times: unique in threads and across forks, and of one written form."""

from __future__ import annotations

import os
import re
import sys
import threading

import pytest

from journal.codec import check_task_id
from journal.ids import birth_ms, new_id, new_task_id, now_ms, rfc3339


def test_ids_have_128_bits_and_never_repeat() -> None:
    ids = [new_id() for _ in range(5_000)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[0-9a-f]{32}", id) for id in ids)


def test_threads_never_mint_the_same_id() -> None:
    made: list[list[str]] = [[] for _ in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda m=mine: m.extend(new_id() for _ in range(5_000)))
            for mine in made
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    ids = [id for mine in made for id in mine]
    assert len(set(ids)) == len(ids) == 20_000


def test_a_forked_child_mints_other_ids() -> None:
    new_id()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, ",".join(new_id() for _ in range(50)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        theirs = pipe.read().split(",")
    os.waitpid(child, 0)
    assert len(theirs) == 50
    assert not set(theirs) & {new_id() for _ in range(600)}


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_796_030_100_250, "2026-11-30T09:15:00.250Z"),
        (1_796_030_100_999, "2026-11-30T09:15:00.999Z"),
        (4_102_444_799_007, "2099-12-31T23:59:59.007Z"),
    ],
)
def test_times_are_utc_to_the_millisecond(ms: int, text: str) -> None:
    assert rfc3339(ms) == text
    assert rfc3339(ms ^ 1) != text
    assert [rfc3339(ms), rfc3339(ms)] == [text, text]


def test_a_task_id_carries_its_birth_time() -> None:
    before = now_ms()
    task_id = new_task_id()
    born = birth_ms(task_id)
    assert born is not None
    assert before <= born <= now_ms()
    assert check_task_id(task_id) == task_id
    assert new_task_id() != task_id


@pytest.mark.parametrize(
    "task_id",
    ["", "research-42", "t-0123456789", "t-012345678i-" + "0" * 20, "x-0123456789-" + "0" * 20],
)
def test_any_other_id_has_no_birth_time(task_id: str) -> None:
    assert birth_ms(task_id) is None
