"""Secrets from the agent's side: none reaches the log, the blobs, this library's errors or its
messages, and a resumption goes on as the first run did."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import pytest

import journal
from journal import Decision, ToolCall
from journal.errors import ReplayDiverged, TaskEnded, ToolError, UsageError, ValueRefused
from journal.events import CallOutcome
from journal.values import encode_value

SECRET = "sk-" + "verysecretverysecret"


def open_journal(folder: Path) -> journal.Journal:
    return journal.connect(
        folder / "j.db", blobs=folder / "blobs", redact=journal.redact.patterns()
    )


def leaks(folder: Path) -> list[str]:
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]


def fetch(key: str, more: str = "") -> Any:
    return {"used": key, "large": more and SECRET + more}


def broken(key: str) -> Any:
    raise ValueError(f"no access with {key}")


async def work(task: journal.Task, seen: list[Any]) -> None:
    """Every way for a text to leave the process."""
    seen.append(await task.run(fetch, SECRET, "x" * 300_000))
    with pytest.raises(ValueRefused) as refused:
        await task.set_result("bad", {SECRET: object()})
    seen.append(str(refused.value))
    await task.set_result("key", {SECRET: SECRET})
    await task.receive(f"use {SECRET}", id="m")
    call = ToolCall("fetch", {"key": SECRET})
    async with task.step() as step:
        made = Decision(text=f"I use {SECRET}", reasoning=SECRET, tool_calls=[call, call, call])
        seen.append((await step.decide(lambda: made)).text)
        seen.append(await step.call(fetch, key=SECRET))
        with pytest.raises(ToolError) as failed:
            await step.call(broken, key=SECRET)
        seen.append(str(failed.value))
        await step.record(2, error=f"denied {SECRET}")
        with contextlib.suppress(UsageError):
            # There is nothing to resolve, but what is written stays.
            await step.resolve(2, error=SECRET)
    seen.append(task.messages("plain"))


async def test_no_secret_leaves_the_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[Any] = []
    async with open_journal(tmp_path) as j:
        async with j.task("t", f"with {SECRET}") as task:
            await work(task, seen)
            calls = [ToolCall("x"), ToolCall("x"), ToolCall("x")]
            failed = CallOutcome(error=SECRET, error_type="E")
            results = [ValueError(SECRET), failed, CallOutcome(encode_value(SECRET))]
            await task.record_step(2, Decision(tool_calls=calls), results)
            await task.record_step(1, f"and {SECRET}")
            with pytest.raises(ReplayDiverged) as diverged:
                await task.record_step(1, f"not {SECRET}")
            seen.append(str(diverged.value))
            await task.fail(f"gave up with {SECRET}")
        with pytest.raises(TaskEnded) as ended:
            async with j.task("t", f"with {SECRET}"):
                pass
        seen.append(str(ended.value))
        await j.retry("t", f"now without {SECRET}")
        async with j.task("t") as task:
            with pytest.raises(RuntimeError):
                async with task.step():
                    raise RuntimeError(SECRET)
            await task.complete(SECRET)
            seen.append(task.final_answer)
        async with j.task("u", "asks") as task:
            await j.send("u", SECRET)
            await j.cancel("u", SECRET)
    assert SECRET not in repr(seen)
    assert repr(seen).count("[redacted]") > 10
    assert SECRET not in caplog.text
    assert leaks(tmp_path) == []


async def test_a_resumption_sees_what_the_first_run_saw(tmp_path: Path) -> None:
    first: list[Any] = []
    again: list[Any] = []
    async with open_journal(tmp_path) as j, j.task("t", f"with {SECRET}") as task:
        first.append(await task.run(fetch, SECRET))
    async with open_journal(tmp_path) as j, j.task("t", f"with {SECRET}") as task:
        again.append(await task.run(fetch, SECRET))
    assert again == first == [{"used": "[redacted]", "large": ""}]


async def test_another_secret_is_another_call(tmp_path: Path) -> None:
    async with open_journal(tmp_path) as j, j.task("t", "d") as task:
        await task.run(fetch, SECRET)
    async with open_journal(tmp_path) as j, j.task("t") as task:
        with pytest.raises(ReplayDiverged):
            await task.run(fetch, SECRET + "2")


async def test_an_answer_that_is_refused_is_not_shown(tmp_path: Path) -> None:
    async with open_journal(tmp_path) as j, j.task("t", "d") as task:
        asked = asyncio.ensure_future(task.ask(f"{SECRET}?", schema={"type": "integer"}))
        with task.owner.watching():
            while not task.state.pending:
                await task.owner.change()
        with pytest.raises(UsageError) as raised:
            await j.answer("t", SECRET)
        await j.answer("t", 5)
        assert await asked == 5
    assert "[redacted]" in str(raised.value)
    assert leaks(tmp_path) == []
