"""A bar on stderr while a whole partition is read to find one task.

Only for people: nothing is shown, nor rich loaded, where stderr is no terminal or the scan is
short. Knows nothing of logs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

LONG = 50_000
"""Records. Fewer than these are read before a bar could be seen."""

_HINT = (
    "journal: {total:,} records were read to find this task; a projection answers without that "
    "(projector sql), and an id from journal.new_task_id() tells where to begin"
)


@contextlib.contextmanager
def scan_bar(
    out: TextIO | None = None, long: int = LONG
) -> Iterator[Callable[[int, int], None] | None]:
    """What to hand to `journal.connect(on_scan=…)` for as long as the block lasts."""
    out = out or sys.stderr
    if not out.isatty():
        yield None
        return
    with contextlib.ExitStack() as shown:
        bar: Any = None
        task: Any = None

        def on_scan(done: int, total: int) -> None:
            nonlocal bar, task
            if total < long:
                return
            if bar is None:
                from rich.console import Console
                from rich.progress import Progress

                bar = shown.enter_context(Progress(console=Console(file=out), transient=True))
                task = bar.add_task("looking for the task", total=total)
            bar.update(task, completed=done, total=total)
            if done == total:
                shown.close()
                bar = None
                print(_HINT.format(total=total), file=out)

        yield on_scan
