"""Agents to be killed and to race each other, each run as a process of its own.

Knows the public API of the journal, and files to leave traces in; knows nothing of the tests.

    agents.py live URL TRACE     one life of the agent of task "t"; a line on stdout per moment
    agents.py durable URL TRACE  the same of one with durable calls, sub-tasks, a question, a timer
    agents.py effects URL TRACE  the same of one with ready effects
    agents.py race URL FOLDER    for each task id on stdin: open it, run it, print what came of it
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import journal
from journal.blobs import DirectoryBlobs
from journal.effects import append_line, http_request, write_file
from journal.errors import CallUncertain, TaskEnded, TaskFenced, TaskNotFound, UsageError

STEPS = 5
RACE_STEPS = 3
PARTS = 4
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Trace:
    """A file of what was really done. A line is on disk before anything goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)

    def add(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())
        os.fsync(self._file)

    def holds(self, line: str) -> bool:
        return line in self.path.read_text().splitlines()


def moment(line: str) -> None:
    """Tell the killer where this life is."""
    print(line, flush=True)


async def named(j: journal.Journal) -> str | None:
    """A trace to begin task "t" in; whoever resumes it has to find that in the log."""
    try:
        await j.state("t")
    except TaskNotFound:
        return TRACEPARENT
    return None


async def live(j: journal.Journal, trace: Trace) -> None:
    """Work on task "t" until it has ended, or this process has."""

    def model(index: int) -> journal.Decision:
        trace.add(f"model {index}")
        if index == STEPS:
            return journal.Decision(text=f"paid {STEPS} times")
        asked = [journal.ToolCall("pay", {"n": index}), journal.ToolCall("note", {"n": index})]
        usage = journal.Usage(input_tokens=10 + index, output_tokens=5)
        return journal.Decision(text=f"step {index}", tool_calls=asked, usage=usage)

    @journal.tool(effect="once")
    def pay(n: int) -> str:
        moment(f"paying {n}")
        trace.add(f"pay {n}")
        moment(f"paid {n}")
        return f"receipt {n}"

    @journal.tool(effect="idempotent")
    def note(n: int) -> int:
        trace.add(f"note {n}")
        moment(f"noted {n}")
        return n * n

    async with j.task("t", "pay and note", traceparent=await named(j)) as task:
        moment("open")
        while task.running:
            async with task.step() as step:
                index = step.index
                decision = await step.decide(model, index)
                moment(f"decided {index}")
                if not decision.tool_calls:
                    await task.complete(decision.text)
                    break
                try:
                    receipt = await step.call(pay, n=index)
                except CallUncertain as unsure:
                    trace.add(f"unsure {index}")
                    if trace.holds(f"pay {index}"):
                        await step.resolve(unsure.position, result=f"receipt {index}")
                    else:
                        await step.resolve(unsure.position, run_again=True)
                    moment(f"resolved {index}")
                    receipt = await step.call(pay, n=index)
                await task.set_result(f"r{index}", [receipt, await step.call(note, n=index)])
                moment(f"set {index}")
            trace.add(f"ack {index}")
            moment(f"ack {index}")


async def durable(j: journal.Journal, trace: Trace) -> None:
    """The life of a task without steps: it fetches, has children, asks and sleeps."""

    async def fetch(n: int) -> int:
        trace.add(f"fetch {n}")
        moment(f"fetched {n}")
        return n * n

    async def halve(n: int) -> int:
        trace.add(f"halve {n}")
        moment(f"halved {n}")
        return n // 2

    async def work(child: journal.Task, n: int) -> int:
        moment(f"child {n}")
        half: int = await child.run(halve, n)
        trace.add(f"ack half {n}")
        await child.sleep(0.001)
        moment(f"slept {n}")
        return half

    async def answer() -> None:
        async with journal.connect(j.url, blobs=j.blobs) as other:
            while not (await other.state("t")).pending:
                pass
            # Another life may have been answered meanwhile.
            with contextlib.suppress(UsageError):
                await other.answer("t", ["yes"])
            moment("answered")

    async with j.task("t", "fetch and halve") as task:
        moment("open")
        if not task.running:
            return
        pages = await task.gather(*(task.run(fetch, n) for n in range(PARTS)))
        trace.add("ack pages")
        moment("ack pages")
        halves = await task.gather(
            *(task.subtask(f"c{n}", work, page) for n, page in enumerate(pages)), limit=2
        )
        trace.add("ack halves")
        moment("ack halves")
        answering = asyncio.ensure_future(answer())
        said = await task.ask("Go on?", key="go on")
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        trace.add("ack answer")
        moment("ack answer")
        await task.set_result("id", str(await task.uuid()))
        await task.complete([pages, halves, said])


def effects_files(trace: Path) -> tuple[Path, Path]:
    """The file that `effects` appends to, and the one that it writes."""
    return trace.with_suffix(".log"), trace.with_suffix(".report")


def report(index: int) -> str:
    """What step `index` writes: of several blocks of a disk."""
    return f"report {index}\n" * 2000


async def effects(j: journal.Journal, trace: Trace) -> None:
    """The life of a task with ready effects. The server's URL is in `trace.path`."""
    log, written = (str(path) for path in effects_files(trace.path))
    server = trace.path.read_text()

    def telling(function: Callable[..., Any]) -> Callable[..., Any]:
        """For a kill when it is done, and the journal has not heard of it."""

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            moment(f"{function.__name__} is done")
            return result

        return called

    append, write = append_line.running(telling), write_file.running(telling)

    def model(index: int) -> journal.Decision:
        return journal.Decision(text=f"step {index}")

    async with j.task("t", "write and send") as task:
        moment("open")
        if not task.running:
            return
        await task.gather(*(task.run(append, log, f"part {n}") for n in range(PARTS)))
        moment("appended")
        while task.running:
            async with task.step() as step:
                index = step.index
                await step.decide(model, index)
                moment(f"decided {index}")
                if index == STEPS:
                    await task.complete("written and sent")
                    break
                await step.call(append, path=log, line="a step")
                moment(f"appended {index}")
                await step.call(write, path=written, content=report(index))
                moment(f"written {index}")
                await step.call(http_request, "POST", server, json=index)
                moment(f"sent {index}")


async def race(j: journal.Journal, task_id: str) -> str:
    """Run a task to its end: "completed OWNER", "fenced", or "end" where it had ended."""
    try:
        async with j.task(task_id, "a race") as task:
            while task.running:
                async with task.step() as step:
                    if step.index == RACE_STEPS:
                        await task.complete("over")
                        return f"completed {task.state.head.owner}"
                    await step.decide(journal.Decision, text="run", tool_calls=[])
                    await step.call(len, "abc")
    except TaskFenced:
        return "fenced"
    except TaskEnded:
        return "end"
    return "end"


LIVES = {"live": live, "durable": durable, "effects": effects}


async def main(mode: str, url: str, place: Path) -> None:
    blobs = DirectoryBlobs(place.parent / "blobs")
    async with journal.connect(url, create=True, blobs=blobs) as j:
        if mode in LIVES:
            await LIVES[mode](j, Trace(place))
            return
        moment("ready")
        while task_id := (await asyncio.to_thread(sys.stdin.readline)).strip():
            moment(await race(j, task_id))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
