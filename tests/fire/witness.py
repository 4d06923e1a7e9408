"""A log that notes each append, and each outcome that its writer was told.

Knows the log's protocol; knows no events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from journal.errors import EventTooLarge, LogUnavailable
from journal.log import NONE, Append, Log, Record
from tests.wrapped_log import WrappedLog


@dataclass(eq=False)
class Sent:
    """One append."""

    partition: int
    value: bytes
    outcomes: list[int | Exception] = field(default_factory=list)


class _Noted(Append):
    __slots__ = ("append", "sent")

    def __init__(self, append: Append, sent: Sent) -> None:
        super().__init__(
            append.key,
            append.value,
            append.timestamp_ms,
            expect=append.expect,
            headers=append.headers,
        )
        self.append = append
        self.sent = sent

    def written(self, offset: int) -> None:
        self.sent.outcomes.append(offset)
        self.append.written(offset)

    def failed(self, error: Exception) -> None:
        self.sent.outcomes.append(error)
        self.append.failed(error)


class Witness(WrappedLog):
    """Stands in front of `log`; `sent` is added to, and `told` of that."""

    def __init__(self, log: Log, sent: list[Sent], told: Callable[[], None]) -> None:
        super().__init__(log)
        self.sent = sent
        self._told = told

    def append(self, partition: int, append: Append) -> None:
        sent = Sent(partition, append.value)
        self.sent.append(sent)
        self._log.append(partition, _Noted(append, sent))
        self._told()


def lies(sent: Sequence[Sent], records: dict[int, list[Record]]) -> list[str]:
    """What writers were told of their appends and is not so in the log."""
    found: list[str] = []
    places: dict[bytes | None, list[tuple[int, int]]] = {}
    for partition, there in records.items():
        for record in there:
            places.setdefault(record.value, []).append((partition, record.offset))
    by_value: dict[bytes, list[Sent]] = {}
    for one in sent:
        by_value.setdefault(one.value, []).append(one)
    for value, tries in by_value.items():
        at = places.get(value, [])
        may = 0
        for one in tries:
            if len(one.outcomes) != 1:
                found.append(f"{len(one.outcomes)} outcomes of {value[:200]!r}: {one.outcomes}")
                continue
            (outcome,) = one.outcomes
            may += not isinstance(outcome, LogUnavailable | EventTooLarge)
            if isinstance(outcome, Exception):
                continue
            if not at or (outcome != NONE and (one.partition, outcome) not in at):
                found.append(f"acknowledged at {one.partition}:{outcome}, is {at}: {value[:200]!r}")
        if len(at) > may:
            found.append(f"{len(at)} times in the log, may be {may} times: {value[:200]!r}")
    return found
