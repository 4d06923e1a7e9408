"""The kit's counted tools, and its log in memory."""

from __future__ import annotations

import asyncio
import gc

import pytest

import journal
from journal import testing
from journal.errors import LogNotFound, LogUnavailable, UsageError
from journal.log import append_and_wait
from journal.memory_log import PROCESS, Process


async def test_a_counted_tool_is_the_tool_it_was() -> None:
    @journal.tool(effect="once", name="pay")
    async def function(n: int, *, idempotency_key: str = "") -> str:
        return f"{n} {bool(idempotency_key)}"

    pay = testing.counted(function)
    assert (pay.name, pay.effect) == ("pay", "once")
    assert await pay(1) == "1 False"
    async with testing.journal() as j, j.task("t", "d") as task, task.step() as step:
        assert await step.call(pay, 2) == "2 True"
        await task.complete()
    assert pay.runs == 2
    assert [str(run) for run in pay.history] == ["pay(n=1)", "pay(n=2) of step 0"]
    pay.reset()
    assert pay.runs == 0


async def test_a_counted_tool_keeps_its_policy() -> None:
    @journal.tool(retries=1, backoff=0.001)
    async def flaky(n: int) -> int:
        if refusing:
            raise refusing.pop()
        return n

    refusing = [OSError("busy")]
    counted = testing.counted(flaky)

    async def agent(j: journal.Journal) -> None:
        async with j.task("t", "d") as task:
            while task.running:
                async with task.step() as step:
                    await task.complete(await step.call(counted, n=1))

    def busy() -> None:
        refusing[:] = [OSError("busy")]

    report = await testing.crash_everywhere(agent, setup=busy)
    assert [run.ended_at for run in report.undisturbed.runs] == [3, 5]


async def test_a_named_log_outlives_its_connections() -> None:
    large = "x" * 300_000

    def enlarged(text: str) -> str:
        return large

    for resumed in (False, True):
        async with journal.connect("memory://kept") as j, j.task("t", "d") as task:
            assert (task.resumed is not None) == resumed
            assert await task.run(enlarged, "x") == large
        del j, task
        gc.collect()
    with pytest.raises(UsageError, match="is there already"):
        testing.Memory("kept")
    with pytest.raises(UsageError, match="has a name"):
        testing.Memory("")
    with pytest.raises(LogNotFound):
        async with journal.connect("memory://none", create=False):
            pass


async def test_a_dead_process_reads_and_writes_nothing() -> None:
    memory, process = testing.Memory(), Process()
    token = PROCESS.set(process)
    dead = memory.handle()
    PROCESS.reset(token)
    await append_and_wait(dead, 0, b"key", b"1", 0)
    process.dead = testing.Crash("crash")
    with pytest.raises(testing.Crash):
        await append_and_wait(dead, 0, b"key", b"2", 0)
    for reading in (dead.read_key(0, b"key"), dead.ends(), anext(dead.tail(0, 0))):
        with pytest.raises(testing.Crash):
            await reading
    await dead.close()
    assert [record.value for record in await memory.handle().read_key(0, b"key")] == [b"1"]


async def test_closing_wakes_a_tail_that_waits() -> None:
    log = testing.Memory().handle()
    coming = asyncio.ensure_future(anext(log.tail(0, 0)))
    for _ in range(10):
        await asyncio.sleep(0)
    await log.close()
    with pytest.raises(LogUnavailable):
        await asyncio.wait_for(coming, 30)


async def test_a_log_that_nobody_holds_is_gone() -> None:
    url = testing.Memory("passing").url
    gc.collect()
    with pytest.raises(LogNotFound):
        async with journal.connect(url, create=False):
            pass


async def test_a_closed_connection_says_so() -> None:
    async with testing.journal() as j:
        pass
    with pytest.raises(LogUnavailable):
        await j.tasks()


async def test_each_test_has_its_own_log(
    journal_log: testing.Memory,
) -> None:
    async with journal.connect(journal_log) as j:
        assert await j.tasks() == []
        assert j.url == journal_log.url
