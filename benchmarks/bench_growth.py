"""Whether a step costs more as a run grows: step 10,000 beside step 100, CPU time and bytes, and
what memory an open task holds beside the bytes of its messages.

Run `python -m benchmarks.bench_growth`. A task that has 10,000 steps and fresh ones that have 100
take turns, `STEPS` steps each; the figures are medians of the pairs. A step is a decision, a tool
call and its result, recorded as granular events. What `task.messages()` costs, which is the whole
history by nature, is left out. Embedded log, in a temporary folder. Memory is what `tracemalloc`
counts, in a run of its own, since it slows everything.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path

import msgspec

import journal
from journal.events import Decision, ToolCall, Usage

PAIRS = 12
STEPS = 100
YOUNG, OLD = 100, 10_000
HELD_AT = (1_000, 5_000, 10_000)
DECISION = Decision(
    "t" * 400, [ToolCall("fetch", {"url": "p" * 100}, "call_1")], Usage(input_tokens=9)
)


@journal.tool(effect="none")
async def fetch(url: str) -> str:
    """A tool that costs nothing."""
    return "r" * 300


async def steps(task: journal.Task, count: int) -> None:
    """So many whole steps."""
    for _ in range(count):
        async with task.step() as step:
            reply = await step.decide(lambda: DECISION)
            await step.call(fetch, **reply.tool_calls[0].arguments)


async def cost(task: journal.Task) -> float:
    """CPU seconds of the process for one step, as a mean of `STEPS`."""
    start = time.process_time()
    await steps(task, STEPS)
    return (time.process_time() - start) / STEPS


async def grown(folder: Path, counts: tuple[int, ...]) -> list[tuple[int, int]]:
    """(bytes that an open task holds, bytes of its messages) at each of these counts of steps."""
    async with journal.connect(folder / "grown.db") as j:
        async with j.task("warm", "makes what is made once") as task:
            await steps(task, YOUNG)
        async with j.task("grows", "grows") as task:
            # Only now: until it is appended to, a journal keeps the last task that it had open.
            before = _traced()
            return [await _at(task, count, before) for count in counts]


async def _at(task: journal.Task, count: int, before: int) -> tuple[int, int]:
    await steps(task, count - task.state.current_step)
    return _traced() - before, _history(task)


async def resumed(folder: Path, count: int) -> tuple[int, int]:
    """The same of a task that was resumed at its end."""
    async with journal.connect(folder / f"{count}.db") as j, j.task("grows", "grows") as task:
        await steps(task, count)
    del j, task
    async with journal.connect(folder / f"{count}.db") as j:
        before = _traced()
        async with j.task("grows") as task:
            return _traced() - before, _history(task)


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _history(task: journal.Task) -> int:
    return len(msgspec.json.encode(task.messages()))


async def memory() -> None:
    """Print what an open task holds: one that grows, and one that was resumed at its end."""
    with tempfile.TemporaryDirectory() as folder:
        tracemalloc.start()
        found = [("grown", await grown(Path(folder), HELD_AT))]
        found.append(("resumed", [await resumed(Path(folder), count) for count in HELD_AT]))
        tracemalloc.stop()
    for how, figures in found:
        for count, (held, history) in zip(HELD_AT, figures, strict=True):
            print(
                f"{how} to {count:,} steps: {held:,} bytes, {held / count:,.0f} a step; "
                f"messages {history:,}, ratio {held / history:.2f}"
            )


async def main() -> None:
    """Print the figures."""
    await memory()
    with tempfile.TemporaryDirectory() as folder:
        async with journal.connect(Path(folder, "journal.db")) as j:
            async with j.task("old", "grows") as old:
                await steps(old, OLD)
                pairs = []
                for n in range(PAIRS):
                    async with j.task(f"young-{n}", "is young") as young:
                        await steps(young, YOUNG)
                        pairs.append((await cost(young), await cost(old)))
            sizes = {}
            for name in ("young-0", "old"):
                events = [len(r.value or b"") for r in await j.records(name)]
                sizes[name] = sum(events[-4 * STEPS :]) / STEPS
    young_s, old_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(old / young for young, old in pairs)
    print(
        f"step {YOUNG}: {young_s * 1e6:,.0f} us of CPU, {sizes['young-0']:,.0f} bytes; "
        f"step {OLD:,}: {old_s * 1e6:,.0f} us, {sizes['old']:,.0f} bytes; "
        f"ratios {ratio:.2f} and {sizes['old'] / sizes['young-0']:.3f}"
    )


if __name__ == "__main__":
    asyncio.run(main())
