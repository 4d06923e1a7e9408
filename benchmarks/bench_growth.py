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


async def memory() -> None:
    """Print what an open task holds: one that grows, and one that was resumed at its end."""
    with tempfile.TemporaryDirectory() as folder:
        async with journal.connect(Path(folder, "journal.db")) as j:
            async with j.task("warm", "makes what is made once") as task:
                await steps(task, YOUNG)
            tracemalloc.start()
            before = _traced()
            async with j.task("grows", "grows") as task:
                for count in HELD_AT:
                    await steps(task, count - task.state.current_step)
                    held = _traced() - before
                    _say("grown", count, held, task)
        # What one journal keeps of the last task must not be taken for the next one's.
        del task
        for count in HELD_AT:
            async with journal.connect(Path(folder, f"{count}.db")) as j:
                async with j.task("grows", "grows") as task:
                    await steps(task, count)
                del task
            async with journal.connect(Path(folder, f"{count}.db")) as j:
                before = _traced()
                async with j.task("grows") as task:
                    held = _traced() - before
                    _say("resumed", count, held, task)
                del task
        tracemalloc.stop()


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _say(how: str, count: int, held: int, task: journal.Task) -> None:
    history = len(msgspec.json.encode(task.messages()))
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
