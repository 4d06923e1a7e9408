"""When the embedded log's writer tells what it has written: at the latest before it may wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from journal.log import Append, Cursor
from journal.sqlite_file import prepare
from journal.sqlite_read import bounds
from journal.sqlite_seat import Seat
from journal.sqlite_writer import (
    GROUP_RECORDS,
    SAVE_HEADS_EVERY,
    WAL_AFTER_GROUPS,
    WAL_STEP_BYTES,
    Writer,
)

GROUPS = 5
SECONDS = 10


class Told:
    """What the writer said, and how the file was at that moment: where it ended, up to where its
    table of heads was saved, and how large its WAL was."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.ends: list[int] = []
        self.written: list[int] = []
        self.saved: list[int] = []
        self.wal: list[int] = []
        self.refused = 0
        self.once = threading.Event()

    def __call__(
        self, written: list[Append], first: int, failed: list[tuple[Append, Exception]]
    ) -> None:
        with closing(apsw.Connection(self._path)) as db:
            self.ends.append(bounds(db)[1])
            ((saved,),) = db.execute("SELECT heads_to FROM meta").fetchall()
            self.saved.append(saved)
        self.wal.append(Path(self._path + "-wal").stat().st_size)
        self.written.append(first + len(written))
        self.refused += len(failed)
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


def write(writer: Writer, groups: list[list[Append]]) -> None:
    """Write groups that have all been queued before the first of them is begun. Those of
    `GROUP_RECORDS` are not put together with others."""
    go = threading.Event()
    writer.submit(lambda: None if go.wait(SECONDS) else pytest.fail("never"))
    for group in groups:
        writer.submit(group)
    go.set()
    writer.call(lambda: None).result(SECONDS)


def full(number: int) -> list[Append]:
    return [Append(b"%d" % number, b"value", 1) for _ in range(GROUP_RECORDS)]


def test_a_group_is_told_of_before_the_next_one_is_written(writer: Writer, told: Told) -> None:
    write(writer, [full(number) for number in range(GROUPS)])
    assert told.ends == told.written
    assert (len(told.ends), told.refused) == (GROUPS, 0)


def test_a_group_is_told_of_before_one_that_may_have_to_wait(writer: Writer, told: Told) -> None:
    """What does not fit is decided under the file's lock, for which others may make it wait."""
    groups = [full(number) for number in range(GROUPS)]
    for group in groups:
        group[-1].expect = Cursor(10**6)
    write(writer, groups)
    assert told.ends == told.written
    assert (len(told.ends), told.refused) == (GROUPS, GROUPS)


def test_a_group_is_told_of_before_the_files_upkeep(writer: Writer, told: Told) -> None:
    # The second time that they are saved the WAL has its length.
    groups = 2 * SAVE_HEADS_EVERY // GROUP_RECORDS + 2
    write(writer, [full(number) for number in range(groups)])
    assert told.saved[-1] > told.saved[0], "the heads were saved on the way"
    assert all(saved < end - 1 for saved, end in zip(told.saved, told.ends, strict=True))
    assert max(told.wal) > WAL_STEP_BYTES, "the WAL was lengthened on the way"
    assert told.wal[WAL_AFTER_GROUPS] < WAL_STEP_BYTES


def test_a_group_is_told_of_though_the_next_one_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    prepare(str(path), create=True)
    told: list[tuple[int, int]] = []

    def settle(written: list[Append], _: int, failed: list[tuple[Append, Exception]]) -> None:
        told.append((len(written), len(failed)))
        if len(told) == 1:
            # While the second group is on its way: only the third finds another file, or none.
            path.rename(tmp_path / "moved.db")

    writer = Writer(Seat(str(path), 5.0), settle)
    write(writer, [full(number) for number in range(3)])
    writer.call(writer.finish).result(SECONDS)
    assert told == [(GROUP_RECORDS, 0), (GROUP_RECORDS, 0), (0, GROUP_RECORDS)]


def test_a_group_is_told_of_before_a_job_that_takes_long(writer: Writer, told: Told) -> None:
    writer.submit(full(0))
    assert writer.call(lambda: told.once.wait(SECONDS)).result(2 * SECONDS)


def test_a_group_is_told_of_when_nothing_follows(writer: Writer, told: Told) -> None:
    writer.submit(full(0))
    assert told.once.wait(SECONDS)
