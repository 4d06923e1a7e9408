"""What people complain of in other systems, and what happens here instead, on each log.

The list is in docs/coming-from.md; a complaint that belongs to one subject has its test there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import journal
from journal import Decision, ToolCall, testing
from journal.blobs import DirectoryBlobs
from journal.cli.main import main
from journal.errors import LogUnavailable, TaskEnded, TaskMismatch, ValueRefused
from journal.values import BlobRef

Connect = Callable[[], journal.Journal]
MEGABYTE = 1024 * 1024


# --- listing steps writes their outputs again -----------------------------------------------------


async def everything(j: journal.Journal) -> list[Any]:
    """Every record of the log as it stands there."""
    return [
        (partition, record.offset, record.key, record.value)
        for partition, start in (await j.log.starts()).items()
        async for batch in j.log.read(partition, start)
        for record in batch
    ]


async def half(child: journal.Task, n: int) -> int:
    return n // 2


async def test_looking_at_a_run_writes_nothing(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_BLOBS", str(tmp_path / "blobs"))
    async with connect() as j:
        async with j.task("t", "look at me") as task:
            await task.receive("hello")
            async with task.step() as step:
                calls = [ToolCall("len", {"obj": "x" * MEGABYTE}), ToolCall("upper")]
                await step.decide(lambda: Decision("large", calls))
                await step.call(len, "x" * MEGABYTE)
                await step.call(str.upper, "x" * MEGABYTE)
            await task.set_result("halves", await task.subtask("c", half, 8))
        before, url = await everything(j), j.url
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "blobs").rglob("*")}
    assert len(before) > 10
    assert len(files) > 2
    async with connect() as j:
        state = await j.state("t")
        events = [event async for _, event in j.events("t")]
        assert len(await j.records("t")) == len(events)
        assert {s.task_id for s in await j.tasks()} == {"t", "t:c"}
        seen = journal.Task(state, None, j.blobs, None, j)
        assert [len(seen.messages(style)) for style in ("openai", "anthropic", "plain")]
        assert seen.completed(0) is not None
        assert state.steps[0].decision(j.blobs.get) is not None
        for command in (["show", "t"], ["replay", "t"], ["state", "t"], ["tasks"]):
            if url.startswith("memory:") and command[0] == "show":
                continue  # the command looks for its blobs in memory
            # As in the terminal, with a loop of its own.
            assert await asyncio.to_thread(main, [*command, "--log", url]) == 0
        same = await everything(j) == before
    assert same  # they are too long to be shown
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "blobs").rglob("*")} == files


# --- an oversized payload fails late --------------------------------------------------------------


class Full:
    """A store that has no room for more, or, `room` being set, has."""

    def __init__(self, folder: Path) -> None:
        self.room = False
        self._store = DirectoryBlobs(folder)

    def put(self, data: bytes, media_type: str = "application/json") -> BlobRef:
        if not self.room:
            raise LogUnavailable("no room")
        return self._store.put(data, media_type)

    def get(self, ref: BlobRef) -> bytes:
        return self._store.get(ref)


async def test_twenty_megabytes_are_stored_before_anything_is_recorded_of_them(
    connect: Connect, tmp_path: Path
) -> None:
    text, runs = "0123456789abcdef" * (20 * MEGABYTE // 16), []

    async def scrape() -> str:
        runs.append(1)
        return text

    blobs = Full(tmp_path / "store")

    async def life() -> Any:
        j = journal.connect(connect().url, create=True, blobs=blobs)
        async with j, j.task("t", "d") as task:
            return await task.run(scrape)

    with pytest.raises(LogUnavailable, match="no room"):
        await life()
    async with connect() as j:
        assert (await j.state("t")).values == {}
    blobs.room = True
    for _ in range(2):
        same = await life() == text
        assert same  # not to be shown, at this length
    assert len(runs) == 2
    async with connect() as j:
        sizes = [len(record.value or b"") for record in await j.records("t")]
    assert max(sizes) < 1_000


IMPOSSIBLE = [
    ({"rows": [1, {"at": object()}]}, "$.rows[1].at"),
    ({"rows": ["\ud800"]}, "$.rows[0]"),
    ([float("nan")], "$[0]"),
]


@pytest.mark.parametrize(("value", "path"), IMPOSSIBLE, ids=["object", "surrogate", "nan"])
async def test_an_argument_that_cannot_be_recorded_fails_before_the_effect(
    connect: Connect, value: Any, path: str
) -> None:
    runs: list[Any] = []

    async def pay(what: Any) -> None:
        runs.append(what)

    once = journal.tool(effect="once")(pay)
    async with connect() as j:
        async with j.task("t", "d") as task:
            with pytest.raises(ValueRefused) as raised:
                await task.run(pay, value)
            assert raised.value.path == path.replace("$", "$[0][0]", 1)
            with pytest.raises(ValueRefused) as raised:
                async with task.step() as step:
                    await step.call(once, what=value)
            assert raised.value.path == path.replace("$", "$.what", 1)
            made = Decision("pay", [ToolCall("pay", {"what": value})])
            with pytest.raises(ValueRefused) as raised:
                async with task.step() as step:
                    await step.decide(lambda: made)
            assert raised.value.path.endswith(path[1:])
        types = [event.type async for _, event in j.events("t")]
    assert runs == []
    assert set(types) == {"TaskStarted", "StepStarted"}


@pytest.mark.parametrize(("value", "path"), IMPOSSIBLE, ids=["object", "surrogate", "nan"])
async def test_a_result_that_cannot_be_recorded_fails_before_its_step_is_done(
    connect: Connect, value: Any, path: str
) -> None:
    async def look() -> Any:
        return value

    async with connect() as j:
        async with j.task("t", "d") as task:
            with pytest.raises(ValueRefused) as raised:
                async with task.step() as step:
                    await step.call(look)
            assert raised.value.path == path
            for write in (task.complete, lambda value: task.set_result("x", value), task.receive):
                with pytest.raises(ValueRefused) as raised:
                    await write(value)
                assert raised.value.path == path
            with pytest.raises(ValueRefused) as raised:
                await task.run(look)
            assert raised.value.path == path
        state = await j.state("t")
    assert (state.status, state.values, state.results) == ("running", {}, {})
    assert state.completed_steps == []


# --- an interrupted clean-up gives a reused id an old result --------------------------------------


async def test_an_id_that_has_ended_is_the_same_task_for_ever(connect: Connect) -> None:
    async with connect() as j:
        async with j.task("done", "d") as task:
            await task.complete("old")
        async with j.task("failed", "d") as task:
            await task.fail("gave up")
        async with j.task("cancelled", "d") as task:
            await task.set_result("x", "old")
            await j.cancel("cancelled", "too dear")
            with pytest.raises(TaskEnded):
                await task.look()
    async with connect() as j:
        async with j.task("done", "d") as task:
            # The same task, which says that it is over; not a new run with an old result.
            assert (task.running, task.status, task.final_answer) == (False, "completed", "old")
        async with j.task("cancelled", "d") as task:
            assert (task.running, task.status, task.final_answer) == (False, "cancelled", None)
            with pytest.raises(TaskEnded):
                await task.complete("new")
        with pytest.raises(TaskEnded, match="journal retry"):
            async with j.task("failed", "d"):
                pass
        for id in ("done", "failed", "cancelled"):
            with pytest.raises(TaskMismatch):
                async with j.task(id, "something else"):
                    pass


@pytest.mark.parametrize("when", [testing.crash_before, testing.crash_after])
@pytest.mark.parametrize("number", [1, 2])
async def test_a_cancellation_that_a_crash_interrupts_gives_no_result(
    when: Callable[..., testing.Point], number: int
) -> None:
    """Killed between the cancelling of the child, number 1, and that of its parent."""
    got: list[Any] = []

    async def child(task: journal.Task) -> str:
        await task.set_result("x", "old")
        await task.sleep(3600)
        return "old"

    async def agent(j: journal.Journal) -> None:
        async with j.task("p", "d") as task:
            if not task.running:
                return
            running = asyncio.ensure_future(task.subtask("c", child))
            while not await waits(j, "p:c"):
                pass
            await j.cancel("p", "too dear")
            got.append(await running)

    async def waits(j: journal.Journal, id: str) -> bool:
        return any(state.task_id == id and state.pending for state in await j.tasks())

    point = when("TaskCancelled", n=number)
    with pytest.raises(TaskEnded, match="cancelled"):
        # The second life finds what the first has left of the cancellation.
        await testing.run_with_crashes(agent, at=[point], log=(log := testing.Memory()))
    assert got == []
    async with journal.connect(log) as j:
        for id in ("p", "p:c"):
            state = await j.state(id)
            assert (state.status, state.final_answer) == ("cancelled", None)
        async with j.task("p", "d") as task:
            assert (task.running, task.final_answer) == (False, None)
