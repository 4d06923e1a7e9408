"""The bar that is shown while a partition is read to find one task."""

from __future__ import annotations

import io
import subprocess
import sys

from journal.cli.progress import scan_bar

HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"
"""What hides a terminal's cursor, and shows it again."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_scan_is_a_bar_and_then_a_hint() -> None:
    out = Terminal()
    with scan_bar(out, long=100) as on_scan:
        assert on_scan is not None
        on_scan(20, 100)
        shown = out.getvalue()
        on_scan(100, 100)
        rest = out.getvalue()[len(shown) :]
    assert HIDDEN in shown
    assert "looking for the task" in shown + rest
    assert SHOWN in rest
    hint = rest.splitlines()[-1]
    assert hint.endswith("an id from journal.new_task_id() tells where to begin")
    assert "100 records were read to find this task; a projection answers" in hint


def test_one_that_is_cut_off_gives_the_cursor_back() -> None:
    out = Terminal()
    with scan_bar(out, long=100) as on_scan:
        assert on_scan is not None
        on_scan(20, 100)
    assert out.getvalue().rindex(SHOWN) > out.getvalue().rindex(HIDDEN)
    assert "records were read" not in out.getvalue()


def test_a_second_one_is_a_bar_of_its_own() -> None:
    out = Terminal()
    with scan_bar(out, long=100) as on_scan:
        assert on_scan is not None
        for _ in range(2):
            on_scan(50, 200)
            on_scan(200, 200)
    assert out.getvalue().count("200 records were read") == 2
    assert out.getvalue().count(HIDDEN) == 2


def test_a_short_scan_shows_nothing() -> None:
    out = Terminal()
    with scan_bar(out, long=100) as on_scan:
        assert on_scan is not None
        on_scan(99, 99)
        on_scan(0, 0)
    assert out.getvalue() == ""


def test_without_a_terminal_there_is_no_bar() -> None:
    with scan_bar(io.StringIO(), long=0) as on_scan:
        assert on_scan is None


def test_rich_is_loaded_only_for_a_bar() -> None:
    code = (
        "import sys\n"
        "from journal.cli.progress import scan_bar\n"
        "sys.stderr.isatty = lambda: True\n"
        "with scan_bar(long=10) as on_scan:\n"
        "    on_scan(9, 9)\n"
        "    print('rich' in sys.modules)\n"
        "    on_scan(5, 10)\n"
        "print('rich' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\nTrue\n"
