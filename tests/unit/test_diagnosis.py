"""What the facts about an installation, a file and a blob store are taken to mean."""

from __future__ import annotations

from typing import Any

import pytest

from journal.cli.diagnosis import (
    FREE_BYTES,
    WAL_BYTES,
    Check,
    Contents,
    File,
    Folder,
    Versions,
    file,
    folder,
    unimportable,
    versions,
)
from journal.errors import (
    LogMisconfigured,
    LogNotFound,
    LogUnavailable,
    NotAJournal,
)
from journal.genesis import Identity

OURS = Identity("j", 1)


def by_name(checks: list[Check]) -> dict[str, Check]:
    names = [check.check for check in checks]
    assert len(set(names)) == len(names)
    for check in checks:
        assert "\n" not in check.detail
        assert check.detail
        # A remedy where nothing is wrong would be noise.
        assert check.remedy is None or check.status != "ok"
    return {check.check: check for check in checks}


def statuses(checks: list[Check]) -> dict[str, str]:
    return {check.check: check.status for check in by_name(checks).values()}


# --- versions -----------------------------------------------------------------------------------

GOOD = Versions(
    "3.11.7",
    ">=3.11,<3.15",
    "0.1.0",
    {"aiokafka[zstd]<0.15,>=0.14": "0.14.2", "pyarrow>=22": "26.0"},
    "3.51.3",
)


def test_versions_in_range_are_fine() -> None:
    names = ["python", "step-journal", "aiokafka", "pyarrow", "sqlite"]
    assert statuses(versions(GOOD)) == dict.fromkeys(names, "ok")


@pytest.mark.parametrize(
    ("change", "name", "words", "remedy"),
    [
        ({"python": "3.10.9"}, "python", "3.10.9, must be ", None),
        ({"python": "3.15.0"}, "python", "3.15.0", None),
        (
            {"sqlite": "3.51.2"},
            "sqlite",
            "must be >=3.51.3",
            "pip install --upgrade 'apsw>=3.51.3'",
        ),
        ({"sqlite": "3.9.0"}, "sqlite", "3.9.0", "pip install --upgrade 'apsw>=3.51.3'"),
        (
            {"packages": {"aiokafka[zstd]<0.15,>=0.14": "0.15.0"}},
            "aiokafka",
            "0.15.0, must be ",
            "pip install 'aiokafka[zstd]<0.15,>=0.14'",
        ),
        ({"packages": {"rich>=14": None}}, "rich", "is missing", "pip install 'rich>=14'"),
    ],
)
def test_a_version_out_of_range_is_wrong(
    change: dict[str, Any], name: str, words: str, remedy: str | None
) -> None:
    found = by_name(versions(GOOD._replace(**change)))[name]
    assert (found.status, found.remedy) == ("wrong", remedy)
    assert words in found.detail


def test_a_version_of_many_digits_is_newer_and_a_test_release_counts() -> None:
    facts = GOOD._replace(sqlite="3.100.0", packages={"duckdb<3,>=2.0.1": "2.1.0.dev7"})
    assert set(statuses(versions(facts)).values()) == {"ok"}


def test_without_metadata_nothing_can_be_compared() -> None:
    found = statuses(versions(Versions("3.11.7", "", None, {}, None)))
    assert found == {"python": "ok", "step-journal": "warning", "sqlite": "wrong"}


def test_a_client_that_cannot_be_imported_is_wrong_and_what_needs_it_skipped() -> None:
    found = by_name(unimportable(["broker", "topic", "genesis"], "aiokafka"))
    assert [check.status for check in found.values()] == ["wrong", "skipped", "skipped"]
    assert {check.detail for check in found.values()} == {"aiokafka cannot be imported"}


# --- folders ------------------------------------------------------------------------------------

PLACE = Folder("/a b/c", "/a b/c", True, True, True, False, FREE_BYTES)


@pytest.mark.parametrize(
    ("change", "status", "words", "remedy"),
    [
        ({}, "ok", "/a b/c", None),
        ({"is_folder": False}, "wrong", "no folder", None),
        ({"existing": "/a b"}, "wrong", "does not exist", "mkdir -p '/a b/c'"),
        ({"writable": False}, "wrong", "cannot be written", "chmod u+rwx '/a b/c'"),
        ({"writable": False, "owned": False}, "wrong", "another user", None),
        ({"writable": False, "read_only": True}, "wrong", "mounted read-only", None),
    ],
)
def test_a_folder_that_must_be_there(
    change: dict[str, Any], status: str, words: str, remedy: str | None
) -> None:
    found = by_name(folder("log", PLACE._replace(**change)))["log folder"]
    assert (found.status, found.remedy) == (status, remedy)
    assert words in found.detail


def test_a_folder_that_can_be_made() -> None:
    facts = PLACE._replace(existing="/a b")
    assert statuses(folder("blobs", facts, made_by="us"))["blobs folder"] == "ok"
    (found, _) = folder("blobs", facts._replace(writable=False), made_by="us")
    assert (found.status, found.remedy) == ("wrong", "chmod u+rwx '/a b'")


def test_a_disk_with_less_than_a_gibibyte_is_a_warning() -> None:
    assert statuses(folder("log", PLACE))["log disk"] == "ok"
    found = by_name(folder("log", PLACE._replace(free_bytes=FREE_BYTES - 1)))["log disk"]
    assert found.status == "warning"
    assert "less than 1.0 GiB" in found.detail
    assert "5 MiB free" in folder("log", PLACE._replace(free_bytes=5 << 20))[1].detail


# --- a file -------------------------------------------------------------------------------------

INSIDE = Contents(0, 7, (), OURS)
FILE = File("/d/j.db", None, True, True, 40_960, 0, INSIDE)
OF_A_FILE = ["mount", "log", "wal", "integrity", "genesis", "partitions"]


def test_a_file_that_is_in_order() -> None:
    assert statuses(file(FILE)) == dict.fromkeys(OF_A_FILE, "ok")
    assert "7 records" in by_name(file(FILE))["log"].detail


@pytest.mark.parametrize(
    ("error", "words", "remedy"),
    [
        (LogNotFound("x"), "no journal at /d/j.db", "journal init --log /d/j.db"),
        (NotAJournal("not ours"), "not ours", None),
        (LogMisconfigured("newer"), "newer", "pip install --upgrade step-journal"),
        (LogUnavailable("broken"), "broken", None),
    ],
)
def test_a_file_that_cannot_be_looked_into(error: Any, words: str, remedy: str | None) -> None:
    found = by_name(file(FILE._replace(contents=error)))
    assert list(found) == OF_A_FILE
    assert (found["log"].status, found["log"].remedy) == ("wrong", remedy)
    assert words in found["log"].detail
    assert {found[name].status for name in OF_A_FILE[2:]} == {"skipped"}
    assert {found[name].detail for name in OF_A_FILE[2:]} == {"the log is wrong"}


@pytest.mark.parametrize(
    ("change", "name", "status", "words", "remedy"),
    [
        ({"network": "nfs4"}, "mount", "wrong", "nfs4", None),
        ({"writable": False}, "log", "wrong", "cannot be written", "chmod u+rw /d/j.db"),
        ({"writable": False, "owned": False}, "log", "wrong", "another user", None),
        ({"wal_bytes": WAL_BYTES}, "wal", "ok", "256 MiB", None),
        ({"wal_bytes": WAL_BYTES + 1}, "wal", "warning", "reading", None),
        (
            {"contents": INSIDE._replace(faults=None)},
            "integrity",
            "skipped",
            "2 s",
            "sqlite3 -readonly /d/j.db 'PRAGMA quick_check'",
        ),
        (
            {"contents": INSIDE._replace(faults=("Page 3: x", "Page 4: y"))},
            "integrity",
            "wrong",
            "Page 3: x; Page 4: y",
            None,
        ),
        ({"contents": INSIDE._replace(opening=NotAJournal("no"))}, "genesis", "wrong", "no", None),
        (
            {"contents": INSIDE._replace(opening=None)},
            "genesis",
            "wrong",
            "empty",
            "journal init --log /d/j.db",
        ),
        ({"contents": INSIDE._replace(opening=Identity("j", 2))}, "partitions", "wrong", "2", None),
    ],
)
def test_one_thing_about_a_file(
    change: dict[str, Any], name: str, status: str, words: str, remedy: str | None
) -> None:
    found = by_name(file(FILE._replace(**change)))
    assert list(found) == OF_A_FILE
    assert (found[name].status, found[name].remedy) == (status, remedy)
    assert words in found[name].detail
    others = {check.status for check in found.values() if check.check != name}
    assert others <= {"ok", "skipped"}


def test_a_wal_that_was_left_behind_is_no_fault() -> None:
    found = statuses(file(FILE._replace(contents=None, wal_bytes=5)))
    assert [found[name] for name in OF_A_FILE] == ["ok", "ok", "ok", *["skipped"] * 3]
