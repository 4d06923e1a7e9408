"""`journal send`, `answer` and `cancel`: what a person types, and what comes of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import journal
from journal.cli.main import main
from journal.codec import decode_value


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
