"""An agent that kills itself, once at each of `MOMENTS`: one for each thing that must survive that.

Each life goes through the whole program; where a moment comes for the first time it is noted in the
trace, and the process is gone, as by `kill -9`. Knows the public API and the trace; what must be
left behind is the test's.

    points.py URL TRACE
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import os
import signal
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import journal
from journal import Decision, Happened, ToolCall, sync
from journal.blobs import DirectoryBlobs
from journal.errors import TaskEnded, ToolError, UsageError
from journal.values import BlobRef
from tests.crash.agents import Trace

MOMENTS = (
    "beside finished calls",
    "between attempts",
    "in a once tool: check",
    "in a once tool: ask",
    "in a once tool: retry",
    "in a once tool: fail",
    "with a blob and no event",
    "behind a value",
    "before a message",
    "with a question",
    "with a child at work",
    "in plain code",
)
SECRET = "sk-" + "verysecretverysecret"
LARGE = "0123456789abcdef" * 65_536


@dataclasses.dataclass
class Invoice:
    total: Decimal
    at: datetime.datetime
    scan: bytes
    tags: set[str]


INVOICE = Invoice(
    Decimal("1.10"),
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC),
    b"\x00\xff",
    {"paid"},
)


class World:
    """What outlives a process: the trace of what was done, and of the moments that have come."""

    def __init__(self, path: Path) -> None:
        self._trace = Trace(path)

    def done(self, what: str) -> None:
        self._trace.add(what)

    def has(self, what: str) -> bool:
        return self._trace.holds(what)

    def moment(self, name: str) -> None:
        """The end of this life, if it is the first to come here."""
        assert name in MOMENTS
        if not self.has(f"killed {name}"):
            self.done(f"killed {name}")
            os.kill(os.getpid(), signal.SIGKILL)


class Blobs:
    """A store after whose first large payload the process is gone."""

    def __init__(self, folder: Path, world: World) -> None:
        self._store = DirectoryBlobs(folder)
        self._world = world

    def put(self, data: bytes, media_type: str = "application/json") -> BlobRef:
        ref = self._store.put(data, media_type)
        if len(data) > len(LARGE):
            self._world.moment("with a blob and no event")
        return ref

    def get(self, ref: BlobRef) -> bytes:
        return self._store.get(ref)


async def calls(j: journal.Journal, world: World) -> None:
    """Parallel calls, then retries, then a `once` tool of each policy."""
    others = asyncio.Event()

    async def work(n: int, key: str) -> str:
        world.done(f"work {n}")
        if n == 1 and not world.has("killed beside finished calls"):
            await others.wait()
            world.moment("beside finished calls")
        return f"{n} with {SECRET}"

    @journal.tool(retries=2, backoff=0.0)
    async def flaky(idempotency_key: str) -> str:
        world.done(f"flaky {idempotency_key}")
        if world.has("flaky failed"):
            world.moment("between attempts")
        if world.has("flaky failed again"):
            return "at last"
        world.done("flaky failed again" if world.has("flaky failed") else "flaky failed")
        raise OSError(f"refused {SECRET}")

    def once(policy: str) -> Any:
        async def effect() -> str:
            world.done(f"effect {policy}")
            world.moment(f"in a once tool: {policy}")
            return f"happened {policy}"

        def happened() -> Happened | None:
            return Happened("found") if world.has("effect check") else None

        how = happened if policy == "check" else policy
        return journal.tool(effect="once", name=policy, on_uncertain=how)(effect)

    async def person() -> None:
        async with journal.connect(j.url, blobs=j.blobs) as other:
            while True:
                with contextlib.suppress(UsageError):
                    await other.answer("calls", {"result": "told"})

    async with j.task("calls", f"calls with {SECRET}") as task:
        while task.running:
            async with task.step() as step:
                asked = [
                    [ToolCall("work", {"n": n, "key": SECRET}) for n in range(3)],
                    [ToolCall("flaky")],
                    *[[ToolCall(policy)] for policy in ("check", "ask", "retry", "fail")],
                    [],
                ][step.index]
                reply = await step.decide(lambda asked=asked: Decision(f"by {SECRET}", asked))
                if step.index == 0:
                    left = 2

                    async def one(call: ToolCall, step: Any = step) -> None:
                        nonlocal left
                        await step.call(work, **call.arguments)
                        left -= 1
                        if left == 0:
                            others.set()

                    await asyncio.gather(*(one(call) for call in reply.tool_calls))
                elif step.index == 1:
                    await step.call(flaky)
                elif reply.tool_calls:
                    policy = reply.tool_calls[0].name
                    answering = asyncio.ensure_future(person()) if policy == "ask" else None
                    with contextlib.suppress(ToolError):
                        await step.call(once(policy))
                    if answering is not None:
                        answering.cancel()
                        await asyncio.gather(answering, return_exceptions=True)
                else:
                    await task.complete()


async def values(j: journal.Journal, world: World) -> None:
    """A large payload, and values that JSON has no types for."""

    async def scrape() -> str:
        world.done("scrape")
        return LARGE

    def read() -> Invoice:
        world.done("read")
        return INVOICE

    async with j.task("values", "values") as task:
        if task.running:
            assert await task.run(scrape) == LARGE
            got = await task.run(read)
            world.moment("behind a value")
            assert (got, type(got)) == (INVOICE, Invoice)
            await task.complete(got)


async def outside(j: journal.Journal, world: World) -> None:
    """What others tell it while no process owns it."""

    async def when_asked(task: journal.Task) -> None:
        with task.owner.watching():
            while not task.state.pending:
                await task.owner.change()
        world.moment("with a question")

    async with j.task("outside", "listens") as task:
        if task.running:
            world.moment("before a message")
            message = await task.next_message()
            asking = asyncio.ensure_future(when_asked(task))
            answer = await task.ask("How much?", schema=Decimal)
            asking.cancel()
            await task.complete([message.id, answer])


async def cancelled(j: journal.Journal, world: World) -> None:
    """A parent that is to end while no process owns it, nor its child."""

    async def child(task: journal.Task) -> str:
        await task.set_result("half", "done")
        world.moment("with a child at work")
        world.done("the child went on")
        return "never"

    with contextlib.suppress(TaskEnded):
        async with j.task("cancelled", "has a child") as task:
            if task.running:
                await task.subtask("c", child)


def plain(url: str, blobs: Blobs, world: World) -> None:
    """The same API without `await`."""

    def double(n: int) -> int:
        world.done(f"double {n}")
        return 2 * n

    @journal.tool()
    def note(n: int) -> int:
        world.done(f"note {n}")
        if n == 1:
            world.moment("in plain code")
        return n

    with sync.connect(url, blobs=blobs) as j, j.task("plain", "plain code") as task:
        while task.running:
            with task.step() as step:
                n = step.index
                reply = step.decide(lambda n=n: Decision("go", [ToolCall("note", {"n": n})]))
                for call in reply.tool_calls:
                    step.call(note, **call.arguments)
                if n == 2:
                    task.complete(task.run(double, n))
                else:
                    task.run(double, n)


async def main(url: str, place: Path) -> None:
    world = World(place)
    blobs = Blobs(place.parent / "blobs", world)
    redact = journal.redact.patterns()
    async with journal.connect(url, create=True, blobs=blobs, redact=redact) as j:
        for part in (calls, values, outside, cancelled):
            await part(j, world)
    await asyncio.to_thread(plain, url, blobs, world)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
