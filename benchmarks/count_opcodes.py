"""How many of Python's opcodes an append takes: the same on a machine that is busy.

Run `python -m benchmarks.count_opcodes`: those of one `record_step` of `bench_append` on the
embedded log, on the thread of the event loop, by who runs them. With one task each append has
turns of the loop of its own; with 100 they share them.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import journal
from benchmarks.bench_append import DECISION, RESULT, _task_id

STEPS = 200
WARM = 50
OURS = str(Path(journal.__file__).parent)


async def counted() -> Counter[str]:
    """Opcodes of `STEPS` appends, by file."""
    counts: Counter[str] = Counter()

    def each(frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            counts[frame.f_code.co_filename] += 1
        frame.f_trace_opcodes = True
        return each

    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder, "journal.db"))
        async with journal.connect(url) as j, j.task(_task_id(0), "bench") as task:
            for index in range(WARM):
                await task.record_step(index, DECISION, [RESULT])
            sys.settrace(each)
            for index in range(WARM, WARM + STEPS):
                await task.record_step(index, DECISION, [RESULT])
            sys.settrace(None)
    return counts


def main() -> None:
    """Print the figures."""
    parts: Counter[str] = Counter()
    for file, count in asyncio.run(counted()).items():
        if file.startswith(OURS):
            parts[Path(file).stem] += count
            parts["journal"] += count
        elif Path(file) != Path(__file__):
            parts["asyncio and the rest of the standard library"] += count
    for name, count in parts.most_common():
        print(f"{count / STEPS:8,.0f}  {name}")


if __name__ == "__main__":
    main()
