"""Which partition a task lives in: Kafka's murmur2 over the key, as Kafka's own clients do it.

The journal computes this itself, from the partition count in the genesis record, so that a
topic whose partitions were added to later still sends every task where it always was.
Source of the rule: `org.apache.kafka.common.utils.Utils.murmur2` and `toPositive`. Pure.
"""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2 of `key`, as an unsigned integer."""
    length = len(key)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if length & 3:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of(task_id: str, partitions: int) -> int:
    """The partition of a task: Kafka's default for a record with this key."""
    if partitions == 1:
        return 0
    return (murmur2(task_id.encode()) & 0x7FFFFFFF) % partitions
