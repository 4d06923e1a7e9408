"""When the embedded log's writer tells what it has written: at the latest before it may wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from journal.log import Append
from journal.sqlite_file import prepare
from journal.sqlite_read import bounds
from journal.sqlite_seat import Seat
from journal.sqlite_writer import GROUP_RECORDS, Writer

GROUPS = 5
SECONDS = 10


class Told:
    """What the writer said, and where the file ended at that moment."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.ends: list[int] = []
        self.written: list[int] = []
        self.once = threading.Event()

    def __call__(
        self, written: list[Append], first: int, failed: list[tuple[Append, Exception]]
    ) -> None:
        assert not failed
        with closing(apsw.Connection(self._path)) as db:
            self.ends.append(bounds(db)[1])
        self.written.append(first + len(written))
        self.once.set()


@pytest.fixture
def told(tmp_path: Path) -> Told:
    path = str(tmp_path / "journal.db")
    prepare(path, create=True)
    return Told(path)


@pytest.fixture
def writer(told: Told) -> Iterator[Writer]:
    writer = Writer(Seat(told._path, 5.0), told)
    yield writer
    writer.call(writer.finish).result(SECONDS)


def _group(key: bytes) -> list[Append]:
    return [Append(key, b"value", 1) for _ in range(3)]


def test_a_group_is_told_of_before_the_next_one_is_written(writer: Writer, told: Told) -> None:
    go = threading.Event()
    writer.submit(lambda: None if go.wait(SECONDS) else pytest.fail("never"))
    for number in range(GROUPS):
        # As many as make a group by themselves, so that none of them are put together.
        writer.submit([Append(b"%d" % number, b"value", 1) for _ in range(GROUP_RECORDS)])
    go.set()
    writer.call(lambda: None).result(SECONDS)
    assert told.ends == told.written
    assert len(told.ends) == GROUPS


def test_a_group_is_told_of_before_a_job_that_takes_long(writer: Writer, told: Told) -> None:
    writer.submit(_group(b"key"))
    assert writer.call(lambda: told.once.wait(SECONDS)).result(2 * SECONDS)


def test_a_group_is_told_of_when_nothing_follows(writer: Writer, told: Told) -> None:
    writer.submit(_group(b"key"))
    assert told.once.wait(SECONDS)
