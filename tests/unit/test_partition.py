"""Kafka's murmur2 against the values of Kafka's own test (UtilsTest.testMurmur2)."""

from __future__ import annotations

import pytest

from journal.partition import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


@pytest.mark.parametrize("partitions", [2, 3, 12, 1000])
@pytest.mark.parametrize("task_id", ["21", "foobar", "abc", "tâche-é", "a"])
def test_the_partition_is_that_of_kafkas_default(task_id: str, partitions: int) -> None:
    # `toPositive` clears the sign bit: not the same as an absolute value, or as mod 2**32.
    assert partition_of(task_id, partitions) == murmur2(task_id.encode()) % 2**31 % partitions


def test_the_sign_bit_is_cleared_and_not_negated() -> None:
    assert partition_of("21", 10) == (-973932308 & 0x7FFFFFFF) % 10 == 0
    assert partition_of("21", 7) == 1173551340 % 7


def test_one_partition_needs_no_hash() -> None:
    assert partition_of("anything", 1) == 0


def test_kafkas_own_client_agrees() -> None:
    from aiokafka.partitioner import murmur2 as kafkas

    for n in range(300):
        key = f"task-{n}é"[: n % 12].encode()
        assert murmur2(key) == kafkas(key) % 2**32
