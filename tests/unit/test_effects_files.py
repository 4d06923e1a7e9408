"""What `write_file` and `append_line` leave behind, each killed at every moment of its work.

Crashes here are forked children; whole agents are tests/crash's business.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

import pytest

from journal import Content
from journal.effects import append_line, files, write_file
from tests.killing import DISK_FULL, KILLED, in_child, system_calls

SOURCE = files.__file__
MOMENTS = range(1, 200)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- write_file -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "data"),
    [
        ("née\n", "née\n".encode()),
        (b"\x00\xff", b"\x00\xff"),
        (Content(b"\x89PNG", "image/png"), b"\x89PNG"),
        ("", b""),
    ],
    ids=["text", "bytes", "content", "empty"],
)
def test_a_file_is_written_and_told_of(
    content: str | bytes | Content, data: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "report"
    for _ in range(2):
        assert write_file(str(path), content) == {
            "path": str(path),
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        assert path.read_bytes() == data
        assert names(tmp_path) == ["report"]


def test_a_file_keeps_its_permissions_and_a_new_one_has_the_usual(tmp_path: Path) -> None:
    old, new, usual = tmp_path / "old", tmp_path / "new", tmp_path / "usual"
    usual.touch()
    old.touch()
    old.chmod(0o640)
    for path in (old, new):
        write_file(str(path), "x")
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert stat.S_IMODE(new.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_text("old")
    write_file(str(tmp_path / "link"), "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ValueError, match="not a regular file"):
            write_file(str(place), "x")
        with pytest.raises(ValueError, match="not a regular file"):
            append_line(str(place), "x", "k")
    with pytest.raises(FileNotFoundError):
        write_file(str(tmp_path / "none" / "file"), "x")
    assert names(tmp_path) == ["pipe"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_text("old")
    code = in_child(lambda: write_file(str(path), "n" * 1000), source=SOURCE, room=500)
    assert code == DISK_FULL
    assert path.read_text() == "old"
    assert names(tmp_path) == ["report"]


def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "report"
    seen = set()
    for moment in MOMENTS:
        path.write_text("old")
        code = in_child(lambda: write_file(str(path), "new"), source=SOURCE, kill_at=moment)
        seen.add((code, path.read_text()))
        if code != KILLED:
            break
    assert seen == {(KILLED, "old"), (KILLED, "new"), (0, "new")}


def test_a_name_appears_after_its_bytes_are_on_disk(tmp_path: Path) -> None:
    calls = system_calls(lambda: write_file(str(tmp_path / "report"), "x"), SOURCE)
    did = [call for call in calls if call in ("write", "fsync", "replace")]
    assert did == ["write", "fsync", "replace", "fsync"]


# --- append_line ------------------------------------------------------------------------------


def test_a_line_is_appended_once_for_each_key(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for key in ("a", "b", "a", "née", "b", "née"):
        assert append_line(str(path), "né", key) == {"path": str(path), "size": 4}
    assert path.read_text() == "né\n" * 3
    assert names(tmp_path) == [".log.appended", "log"]


@pytest.mark.parametrize("line", ["two\nlines", "end\n", "\n", "a\rb"])
def test_a_line_with_a_break_is_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^append_line: the line has a line break in it"
    ) as refused:
        append_line(str(tmp_path / "log"), line, "k")
    assert "\n" not in str(refused.value)
    assert names(tmp_path) == []


def test_an_empty_line_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("last, without an end")
    for key in ("a", "b", "a"):
        append_line(str(path), "", key)
    assert path.read_text() == "last, without an end\n\n\n"


def test_a_last_line_without_an_end_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("theirs")
    for _ in range(2):
        append_line(str(path), "ours", "k")
    assert path.read_text() == "theirs\nours\n"


def test_two_names_of_one_file_share_its_notes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("log")
    for name in ("log", "link"):
        append_line(str(tmp_path / name), "once", "k")
    assert (tmp_path / "log").read_text() == "once\n"


def test_a_line_is_noted_on_disk_before_it_is_written(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    first = system_calls(lambda: append_line(path, "x", "a"), SOURCE)
    second = system_calls(lambda: append_line(path, "x", "b"), SOURCE)
    again = system_calls(lambda: append_line(path, "x", "b"), SOURCE)
    did = [[c for c in calls if c in ("write", "fsync")] for calls in (first, second, again)]
    # The note, the names of new files, the line; no names; and what is found is on disk too.
    assert did == [["write", "fsync", "fsync", "write", "fsync"], ["write", "fsync"] * 2, ["fsync"]]


@pytest.mark.parametrize("between", ["nothing", "another key", "somebody else", "an open end"])
@pytest.mark.parametrize("before", ["", "to\n", "to"], ids=["new", "ended", "open"])
def test_a_kill_at_any_moment_leaves_a_line_that_is_once_there(
    before: str, between: str, tmp_path: Path
) -> None:
    for moment in MOMENTS:
        path = tmp_path / f"log-{moment}"
        path.write_text(before)
        expected = [before.rstrip()] if before else []

        def append(key: str = "k", path: Path = path) -> None:
            append_line(str(path), "ours", key)

        code = in_child(append, source=SOURCE, kill_at=moment)
        if between == "another key":
            append("l")
            expected.append("ours")
        elif between == "somebody else":
            with path.open("a") as file:
                file.write("more\n")
        elif between == "an open end":
            with path.open("a") as file:
                file.write("mo")
        append()
        append()
        lines = path.read_text().splitlines()
        ours = [line for line in lines if line == "ours"]
        assert len(ours) == 1 + (between == "another key"), f"moment {moment}: {lines}"
        if between in ("nothing", "another key"):
            assert lines == [*expected, "ours"], f"moment {moment}"
        if code != KILLED:
            break
    assert code == 0
    assert moment > 20


@pytest.mark.parametrize("again", ["k", "l"], ids=["the same", "another"])
@pytest.mark.parametrize("cut", range(7))
def test_a_line_that_was_cut_short_is_completed(cut: int, again: str, tmp_path: Path) -> None:
    """By the next call, whichever that is."""
    path = tmp_path / "log"
    path.write_text("t" * 1000)
    code = in_child(
        lambda: append_line(str(path), "ours", "k"), source=SOURCE, room=path.stat().st_size + cut
    )
    assert (code, path.stat().st_size) == (0 if cut == 6 else DISK_FULL, 1000 + cut)
    for key in (again, "k"):
        append_line(str(path), "ours", key)
    assert path.read_text() == "t" * 1000 + "\nours" * (1 + (again != "k")) + "\n"


def test_notes_that_a_crash_has_torn_are_none(tmp_path: Path) -> None:
    append_line(str(tmp_path / "other"), "second", "b")
    torn = (tmp_path / ".other.appended").read_bytes()
    cuts = [torn[:length] for length in range(len(torn))]
    for n, left in enumerate([*cuts, b"\0" * 70 + b"\n", b"\0" * 70]):
        path, notes = tmp_path / f"log-{n}", tmp_path / f".log-{n}.appended"
        append_line(str(path), "first", "a")
        notes.write_bytes(notes.read_bytes() + left)
        for key, line in (("b", "second"), ("a", "first"), ("c", "third"), ("b", "second")):
            append_line(str(path), line, key)
        assert path.read_text() == "first\nsecond\nthird\n", left


def test_processes_that_append_at_once_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()

    def work(worker: int) -> None:
        with path.open("ab", buffering=0) as file:
            for n in range(20):
                append_line(str(path), f"shared {n}", f"shared {n}")
                append_line(str(path), f"own {worker}.{n}", f"own {worker}.{n}")
                file.write(f"unlocked {worker}.{n}\n".encode())

    children = []
    for worker in range(3):
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                work(worker)
                os._exit(0)
            os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    own = [f"{what} {w}.{n}" for what in ("own", "unlocked") for w in range(3) for n in range(20)]
    expected = sorted([f"shared {n}" for n in range(20)] + own)
    assert sorted(path.read_text().splitlines()) == expected


def test_a_file_that_was_cut_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append_line(str(path), "first", "a")
    append_line(str(path), "second", "b")
    path.write_text("")
    append_line(str(path), "third", "c")
    append_line(str(path), "first", "a")
    assert path.read_text() == "third\n"


def test_nobody_reads_the_notes_who_may_not_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "secret.log"
    path.touch(mode=0o600)
    append_line(str(path), "a line", "k")
    notes = tmp_path / ".secret.log.appended"
    assert stat.S_IMODE(notes.stat().st_mode) == 0o600
    path.chmod(0o644)
    append_line(str(path), "another", "l")
    assert stat.S_IMODE(notes.stat().st_mode) == 0o600


def test_notes_are_closed_with_the_file_that_they_are_of(tmp_path: Path) -> None:
    path = tmp_path / "once-public.log"
    path.touch(mode=0o644)
    append_line(str(path), "a line", "k")
    path.chmod(0o600)
    append_line(str(path), "a secret", "l")
    assert stat.S_IMODE((tmp_path / ".once-public.log.appended").stat().st_mode) == 0o600
