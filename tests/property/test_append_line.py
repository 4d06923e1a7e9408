"""`append_line` in any history of kills, short writes, other keys and other writers.

Each call that may not come back runs in a forked child. In the end every key has run to its end,
and each has one line.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from journal.effects import append_line, files
from tests.killing import in_child

KEYS = {"a": "a line", "b": "a line", "c": "", "d": "a line, longer"}
BEFORE = "t" * 2000 + "\n"
"""Longer than all notes, which the limit on files' sizes must not hit."""

keys = st.sampled_from(sorted(KEYS))
killed = st.tuples(st.just("killed"), keys, st.integers(1, 34))
short = st.tuples(st.just("short"), keys, st.integers(0, 15))
whole = st.tuples(st.just("whole"), keys, st.just(0))
theirs = st.tuples(st.just("theirs"), st.sampled_from(["theirs\n", "no end"]), st.just(0))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(killed, short, whole, theirs), max_size=8))
def test_each_key_has_one_line(history: list[tuple[str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_text(BEFORE)
        others = 0
        for what, key, n in history:
            if what == "theirs":
                with path.open("a") as file:
                    file.write(key)
                others += key.endswith("\n")
                continue

            def append(key: str = key) -> None:
                append_line(str(path), KEYS[key], key)

            if what == "whole":
                append()
            elif what == "killed":
                in_child(append, source=files.__file__, kill_at=n)
            else:
                in_child(append, source=files.__file__, room=path.stat().st_size + n)
        for _ in range(2):
            for key, line in KEYS.items():
                append_line(str(path), line, key)
        text = path.read_text()
        assert text.startswith(BEFORE)
        lines = text.splitlines()
        # Theirs may follow what was cut short, but all of it is there.
        assert sum(line.endswith("theirs") for line in lines) == others
        assert lines.count("a line") == 2
        assert lines.count("a line, longer") == 1
        assert lines.count("") == 1
        mixed = any(what == "theirs" for what, _, _ in history)
        assert mixed or sorted(lines[1:]) == sorted(KEYS.values())
