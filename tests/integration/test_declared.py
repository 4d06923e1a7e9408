"""Declared types from the agent's side: the first run and a replay give the same value, and what
cannot be recorded, or does not fit, fails before it is recorded as done."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

import journal
from journal import Decision, ToolCall, sync
from journal.errors import ReplayDiverged, UsageError, ValueRefused

Connect = Callable[[], journal.Journal]


@pytest.fixture
def connect(tmp_path: Path) -> Connect:
    return lambda: journal.connect(tmp_path / "j.db")


@dataclasses.dataclass
class Invoice:
    total: Decimal
    due: datetime.date
    tags: set[str]


INVOICE = Invoice(Decimal("1.10"), datetime.date(2026, 1, 2), {"a"})


def invoice() -> Invoice:
    return INVOICE


async def test_the_first_run_and_a_replay_give_the_declared_type(connect: Connect) -> None:
    got = []
    for _ in range(2):
        async with connect() as j, j.task("t", "d") as task:
            got.append(await task.run(invoice))
            got.append(await task.options(key="k").run(invoice))
    assert got == [INVOICE] * 4
    assert all(type(value) is Invoice for value in got)


async def test_a_calls_recorded_result_comes_back_as_the_declared_type(connect: Connect) -> None:
    async def lost() -> None:
        async with connect() as j, j.task("t", "d") as task, task.step() as step:
            await step.decide(lambda: Decision(tool_calls=[ToolCall("invoice")]))
            got = await step.call(invoice)
            assert got == INVOICE
            assert type(got) is Invoice
            raise asyncio.CancelledError  # the worker is lost, the step stays open

    for _ in range(2):
        with pytest.raises(asyncio.CancelledError):
            await lost()
    async with connect() as j:
        events = [event.type async for _, event in j.events("t")]
    assert events.count("ToolCallCompleted") == 1


def lies() -> Invoice:
    return {"total": "1", "due": "soon", "tags": []}  # type: ignore[return-value]


def hides() -> Any:
    return {"rows": [INVOICE, object()]}


@pytest.mark.parametrize(("function", "path"), [(lies, "$.due"), (hides, "$.rows[1]")])
async def test_what_cannot_be_recorded_fails_before_it_is_done(
    connect: Connect, function: Callable[[], Any], path: str
) -> None:
    async with connect() as j:
        async with j.task("t", "d") as task:
            with pytest.raises(ValueRefused) as raised:
                await task.run(function)
            assert raised.value.path == path
            with pytest.raises(ValueRefused) as raised:
                async with task.step() as step:
                    await step.call(function)
            assert raised.value.path == path
        events = [event.type async for _, event in j.events("t")]
    assert not {"ValueRecorded", "ToolCallCompleted", "StepCompleted"} & set(events)
    assert "ToolCallFailed" in events


runs = []


def either() -> Invoice | ValueError:
    runs.append(1)
    return INVOICE


def two() -> Invoice | Connected:
    runs.append(1)
    return INVOICE


@dataclasses.dataclass
class Connected:
    x: int


async def test_a_type_that_nothing_comes_back_to_is_refused_before_it_runs(
    connect: Connect,
) -> None:
    async with connect() as j, j.task("t", "d") as task:
        for function in (either, two):
            with pytest.raises(UsageError, match="says that it returns"):
                await task.run(function)
            with pytest.raises(UsageError, match="says that it returns"):
                async with task.step() as step:
                    await step.call(function)
    assert runs == []


async def test_a_type_that_has_changed_since_has_diverged(connect: Connect) -> None:
    def make(kind: Any) -> Callable[[], Any]:
        def value() -> Any:
            return INVOICE

        value.__annotations__["return"] = kind
        return value

    async with connect() as j, j.task("t", "d") as task:
        await task.run(make(Invoice))
    async with connect() as j, j.task("t") as task:
        with pytest.raises(ReplayDiverged, match=r"recorded is \$: does not fit"):
            await task.run(make(Connected | None))


async def test_an_answer_comes_back_as_the_type_that_was_asked_for(connect: Connect) -> None:
    async with connect() as j, j.task("t", "d") as task:
        asked = asyncio.ensure_future(task.ask("what?", schema=Invoice))
        with task.owner.watching():
            while not task.state.pending:
                await task.owner.change()
        with pytest.raises(UsageError):
            await j.answer("t", {"total": "1"})
        await j.answer("t", INVOICE)
        assert await asked == INVOICE
    async with connect() as j, j.task("t") as task:
        assert await task.ask("what?", schema=Invoice) == INVOICE


# --- sub-tasks ------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


@attrs.define
class Size:
    width: Decimal


class Report(msgspec.Struct):
    at: datetime.datetime
    raw: bytes


class Person(pydantic.BaseModel):
    born: datetime.date


AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)
CHILDREN: list[tuple[Any, Any]] = [
    (INVOICE, Invoice),
    (Size(Decimal("0.50")), Size),
    (Report(AT, b"\x00\xff"), Report),
    (Person(born=datetime.date(1815, 12, 10)), Person),
    (Colour.RED, Colour),
    (AT, datetime.datetime),
    (Decimal("1.10"), Decimal),
    (b"\x00\xff", bytes),
    ({1, 2}, set[int]),
    ([INVOICE], list[Invoice]),
]


def child(value: Any, kind: Any, runs: list[int]) -> Callable[..., Any]:
    async def work(child: journal.Task, n: int) -> Any:
        runs.append(n)
        return value

    work.__annotations__["return"] = kind
    return work


async def test_a_sub_tasks_answer_comes_back_as_declared_now_and_on_a_replay(
    connect: Connect,
) -> None:
    runs: list[int] = []
    children = [child(value, kind, runs) for value, kind in CHILDREN]
    for _ in ("the first run", "a replay"):
        async with connect() as j, j.task("t", "d") as task:
            alone = await task.subtask("alone", children[0], 99)
            calls = (task.subtask(f"c{n}", work, n) for n, work in enumerate(children))
            got = await task.gather(*calls, limit=3)
        assert got == [value for value, _ in CHILDREN]
        assert [type(value) for value in got] == [type(value) for value, _ in CHILDREN]
        assert (alone, type(alone)) == (INVOICE, Invoice)
    assert sorted(runs) == [*range(len(CHILDREN)), 99]


def test_so_does_one_of_an_agent_without_await(tmp_path: Path) -> None:
    def work(child: sync.Task) -> Invoice:
        return INVOICE

    for _ in ("the first run", "a replay"):
        with sync.connect(tmp_path / "j.db") as j, j.task("t", "d") as task:
            got = task.subtask("c", work)
        assert (got, type(got)) == (INVOICE, Invoice)


async def test_an_answer_that_is_not_what_is_declared_ends_no_sub_task(connect: Connect) -> None:
    answers: list[Any] = [lies(), [object()], INVOICE]

    async def work(child: journal.Task) -> Invoice:
        return answers[0]  # type: ignore[no-any-return]

    for path in ("$.due", "$[0]"):
        async with connect() as j, j.task("t", "d") as task:
            with pytest.raises(ValueRefused) as raised:
                await task.subtask("c", work)
            assert raised.value.path == path
        async with connect() as j:
            assert (await j.state("t:c")).status == "running"
        del answers[0]
    async with connect() as j, j.task("t", "d") as task:
        assert await task.subtask("c", work) == INVOICE


async def test_a_sub_task_that_cannot_come_back_as_declared_is_refused_before_it_runs(
    connect: Connect,
) -> None:
    seen: list[int] = []
    async with connect() as j, j.task("t", "d") as task:
        with pytest.raises(UsageError, match="says that it returns"):
            await task.subtask("c", child(INVOICE, Invoice | Connected, seen), 1)
        assert task.state.subtasks == {}
    assert seen == []


async def test_an_answer_recorded_as_another_type_has_diverged(connect: Connect) -> None:
    async with connect() as j, j.task("t", "d") as task:
        await task.subtask("c", child(INVOICE, Invoice, []), 1)
    async with connect() as j, j.task("t", "d") as task:
        with pytest.raises(ReplayDiverged, match=r"sub-task c: recorded is \$: does not fit"):
            await task.subtask("c", child(INVOICE, Decimal, []), 1)
