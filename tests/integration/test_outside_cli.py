"""`journal send`, `answer` and `cancel`: what a person types, and what comes of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import journal
from journal.cli.main import main
from journal.values import decode_value
from tests.commands import run


class Person:
    """Somebody at a terminal, with an embedded log."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys

    def types(self, command: str, *rest: str) -> tuple[int, str]:
        """(exit status, what is printed, errors included)."""
        status = main([command, "--log", self.url, *rest])
        out, err = self._capsys.readouterr()
        return status, (out + err).strip()


@pytest.fixture
def person(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Person:
    return Person(str(tmp_path / "journal.db"), capsys)


def asks(url: str, **options: Any) -> None:
    """Leave a task that waits for an answer."""

    async def ask() -> None:
        async with journal.connect(url) as j, j.task("t", "d") as task:
            asking = asyncio.ensure_future(task.ask("Send it?", key="send", **options))
            while not task.state.pending:
                await task.owner.change()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(ask())


def state(url: str) -> journal.state.TaskState:
    async def get() -> journal.state.TaskState:
        async with journal.connect(url) as j:
            return await j.state("t")

    return asyncio.run(get())


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        (["true"], True),
        (['{"ok": 1}'], {"ok": 1}),
        (["by all means"], "by all means"),
        (["--text", "true"], "true"),
    ],
)
def test_an_answer_is_json_or_a_text(person: Person, typed: list[str], value: Any) -> None:
    asks(person.url)
    status, printed = person.types("state", "t")
    assert status == 0
    assert json.loads(printed)["pending"] == [
        {"key": "send", "question": "Send it?", "until": None}
    ]
    assert person.types("answer", "t", *typed, "--by", "ops") == (0, "t: answered; it is running")
    wait = state(person.url).waits["=send"]
    assert (decode_value(wait.value), wait.answered_by) == (value, "ops")
    status, printed = person.types("answer", "t", "late")
    assert (status, printed) == (2, "journal: task t asks for nothing; it is running")


def test_an_answer_that_the_schema_refuses_is_one_line(person: Person) -> None:
    asks(person.url, schema={"type": "boolean"})
    status, printed = person.types("answer", "t", "maybe")
    assert (status, printed) == (2, "journal: send: $: 'maybe' is not of type 'boolean'")
    assert state(person.url).status == "waiting"
    assert person.types("answer", "t", "--key", "other", "true")[0] == 2


def test_cancelling_says_what_is_left_to_do(person: Person) -> None:
    asks(person.url)
    assert person.types("cancel", "t", "--reason", "too dear") == (0, "t is cancelled")
    assert state(person.url).error == "too dear"
    assert person.types("cancel", "t") == (1, "journal: task t has ended (cancelled)")


def test_a_message_goes_to_a_running_task_only(person: Person) -> None:
    async def begin() -> None:
        async with journal.connect(person.url) as j, j.task("t", "d"):
            pass

    asyncio.run(begin())
    assert person.types("send", "t", "hello", "--id", "m1") == (0, "t: message m1")
    assert person.types("send", "t", "hello", "--id", "m1") == (0, "t: message m1")
    (message,) = state(person.url).unread
    assert (message.id, decode_value(message.content)) == ("m1", "hello")
    assert person.types("cancel", "t") == (0, "t is running, and its owner will end it")
    status, printed = person.types("send", "nobody", "hello")
    assert status == 1
    assert "no task nobody" in printed


# --- secrets ------------------------------------------------------------------------------------

SECRET = "sk-" + "verysecretverysecret"
OWN = "def clean(text):\n    return text.replace('hunter2', '***')\n"


def files_with(folder: Path, text: str) -> list[str]:
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".py"]
    assert found
    return [path.name for path in found if text.encode() in path.read_bytes()]


@journal.tool(effect="once")
def pay() -> str:
    raise asyncio.CancelledError  # the worker is lost


def begins(url: str) -> None:
    """Leave a running task with a call of which nobody knows whether it happened."""

    async def work() -> None:
        async with journal.connect(url) as j, j.task("t", "d") as task, task.step() as step:
            await step.decide(lambda: journal.Decision(tool_calls=[journal.ToolCall("pay")]))
            await step.call(pay)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(work())


@pytest.mark.parametrize("by", ["option", "environment"])
def test_no_secret_that_is_typed_is_written(
    person: Person, tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    redact = ["--redact", "patterns"] if by == "option" else []
    if by == "environment":
        monkeypatch.setenv("JOURNAL_REDACT", "patterns")
    begins(person.url)
    assert person.types("send", "t", f"use {SECRET}", "--id", "m1", *redact)[0] == 0
    large = json.dumps({"key": SECRET, "more": "x" * 300_000})
    assert person.types("resolve", "t", "0:0", "--result", large, *redact)[0] == 0
    asks(person.url, schema={"type": ["object", "boolean"]})
    refused = person.types("answer", "t", SECRET, *redact)
    assert refused == (2, "journal: send: $: '[redacted]' is not of type 'object', 'boolean'")
    assert person.types("answer", "t", json.dumps({"key": SECRET}), *redact)[0] == 0
    status, printed = person.types("resolve", "t", SECRET, "--run-again", *redact)
    assert (status, printed.split(":")[1]) == (2, " [redacted] names no call")
    assert person.types("cancel", "t", "--reason", f"leaked {SECRET}", *redact)[0] == 0
    assert decode_value(state(person.url).messages_received["m1"].content) == "use [redacted]"
    assert files_with(tmp_path, SECRET) == []
    assert files_with(tmp_path, "[redacted]")


def test_an_error_that_is_typed_is_written_without_its_secret(
    person: Person, tmp_path: Path
) -> None:
    begins(person.url)
    typed = ("resolve", "t", "0:0", "--error", f"denied {SECRET}", "--redact", "patterns")
    assert person.types(*typed)[0] == 0
    assert state(person.url).steps[0].all_calls()[0].error == "denied [redacted]"
    assert files_with(tmp_path, SECRET) == []


def test_a_hook_of_ones_own_stands_in_the_folder(tmp_path: Path) -> None:
    """As a process of its own, since it is imported from the folder that it runs in."""
    url = str(tmp_path / "journal.db")
    asyncio.run(_begin(url))
    (tmp_path / "shop.py").write_text(OWN)

    def send(*redact: str, **more: str) -> tuple[int, str]:
        # As for the installed command, whose path has no such folder in it.
        command = ("send", "--log", url, "t", "hunter2", *redact)
        sent = run(*command, cwd=tmp_path, PYTHONSAFEPATH="1", **more)
        return sent.returncode, sent.stderr

    assert send("--redact", "shop:clean") == (0, "")
    assert send(JOURNAL_REDACT="shop:clean") == (0, "")
    assert [decode_value(m.content) for m in state(url).unread] == ["***", "***"]
    why = "journal: redact: shop:no cannot be imported: module 'shop' has no attribute 'no'\n"
    assert send("--redact", "shop:no") == (2, why)


async def _begin(url: str) -> None:
    async with journal.connect(url) as j, j.task("t", "d"):
        pass
