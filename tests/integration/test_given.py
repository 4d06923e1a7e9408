"""What users give besides payloads, of wrong types or with lone surrogates: refused by its path
before anything is recorded, since no reader would take it; and outcomes that no tool made.

Knows the public API, on both logs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import journal
from journal.errors import ReplayDiverged, ToolError, UsageError, ValueRefused
from journal.events import CallOutcome, Decision, ToolCall, Usage
from journal.task import Task
from journal.tools import tool

Connect = Callable[[], journal.Journal]
Do = Callable[[Task], Awaitable[Any]]

TORN = "a\ud800b"

WRONG: Any = {
    "$.tool_calls[0].tool_call_id": Decision("t", [ToolCall("f", {}, 5)]),  # type: ignore[arg-type]
    "$.tool_calls[0].tool_name": Decision("t", [ToolCall(7)]),  # type: ignore[arg-type]
    "$.usage.input_tokens": Decision("t", usage=Usage(1.5)),  # type: ignore[arg-type]
    "$.usage.output_tokens": Decision("t", usage=Usage(1, "5")),  # type: ignore[arg-type]
    "$.finish_reasons": Decision("t", finish_reasons="stop"),  # type: ignore[arg-type]
    "$.response_id": Decision("t", response_id=7),  # type: ignore[arg-type]
    "$.request_model": Decision("t", request_model=TORN),
    "$.tool_calls[0].name": Decision("t", [ToolCall(TORN)]),
}


@pytest.mark.parametrize("path", WRONG)
async def test_a_decision_that_no_reader_would_take_is_refused(connect: Connect, path: str) -> None:
    async with connect() as j, j.task("t", "d") as task:
        with pytest.raises(ValueRefused) as raised:
            async with task.step() as step:
                await step.decide(lambda: WRONG[path])
        assert raised.value.path == path
        assert task.state.steps == {}
        with pytest.raises(ValueRefused) as raised:
            await task.record_step(0, WRONG[path])
        assert raised.value.path == path
        await task.record_step(0, "goes on")
    async with connect() as j:
        assert (await j.state("t")).current_step == 1


GIVEN: dict[str, Do] = {
    "$.name": lambda t: t.set_result(TORN, 1),
    "$.error": lambda t: t.record_step(
        0, Decision("t", [ToolCall("f")]), [CallOutcome(error=TORN)]
    ),
    "$.error_type": lambda t: t.fail("text", error_type=TORN),
    "$.role": lambda t: t.receive("hello", role=TORN),
    "$.key": lambda t: t.options(key=TORN).run(lambda: 1),
    "$.started_at": lambda t: t.record_step(0, "x", started_at=TORN),
    "$.result_": lambda t: t.record_step(
        0,
        Decision("t", [ToolCall("f")]),
        [CallOutcome(error_type=5)],  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize("path", GIVEN)
async def test_a_text_that_json_cannot_carry_is_named(connect: Connect, path: str) -> None:
    async with connect() as j, j.task("t", "d") as task:
        with pytest.raises(ValueRefused) as raised:
            await GIVEN[path](task)
        assert raised.value.path == path.replace("result_", "error_type")
        await task.record_step(0, "goes on")
    async with connect() as j:
        assert (await j.state("t")).current_step == 1


@pytest.mark.parametrize("more", [{"description": TORN}, {"description": "d", "agent_name": 5}])
async def test_a_task_that_nobody_could_read_is_not_begun(
    connect: Connect, more: dict[str, Any]
) -> None:
    async with connect() as j:
        with pytest.raises(ValueRefused):
            async with j.task("t", **more):
                pass
        async with j.task("t", "d") as task:
            assert task.resumed is None


async def test_what_is_no_index_or_id_is_wrong_usage(connect: Connect) -> None:
    async with connect() as j, j.task("t", "d") as task:
        for index in (0.0, "0", True, -1):
            with pytest.raises(UsageError, match="a whole number, from 0 on"):
                await task.record_step(index, "x")  # type: ignore[arg-type]
        for id in (5, TORN):
            with pytest.raises(UsageError, match="a message's id is a text"):
                await task.receive("x", id=id)  # type: ignore[arg-type]
        async with task.step() as step:
            asked = ToolCall("f")
            await step.decide(lambda: Decision("t", [asked]))
            with pytest.raises(UsageError, match="by its position"):
                await step.record(asked, result=1)  # type: ignore[arg-type]


async def test_an_errors_text_is_written_whatever_is_in_it(connect: Connect) -> None:
    def breaks() -> None:
        raise ValueError(TORN)

    async with connect() as j, j.task("t", "d") as task:
        with pytest.raises(ToolError, match=r"a\\ud800b"):
            async with task.step() as step:
                await step.call(breaks)
        assert task.state.steps[0].error == "a\\ud800b"


# --- outcomes that no tool of ours made ---------------------------------------------------------


async def test_what_was_recorded_for_one_call_is_no_answer_to_another(connect: Connect) -> None:
    ran: list[int] = []

    @tool
    def good(x: int) -> int:
        ran.append(x)
        return 2 * x

    asked = Decision("t", [ToolCall("denied", {"x": 1}), ToolCall("good", {"x": 21})])

    async def begun(task: Task) -> None:
        async with task.step() as step:
            await step.decide(lambda: asked)
            await step.record(0, result="denied by the user")
            assert await step.call(good, x=21) == 42
            raise KeyboardInterrupt

    for description in ("d", None):
        async with connect() as j, j.task("t", description) as task:
            with pytest.raises(KeyboardInterrupt):
                await begun(task)
    async with connect() as j, j.task("t") as task:
        with pytest.raises(ReplayDiverged, match="the outcome of denied is recorded"):
            async with task.step() as step:
                await step.call(good, x=21)
    assert ran == [21]


async def test_a_call_stands_where_no_outcome_was_recorded(connect: Connect) -> None:
    def said(x: int) -> int:
        return x

    asked = Decision("t", [ToolCall("said", {"x": n}) for n in range(4)])
    async with connect() as j, j.task("t", "d") as task, task.step() as step:
        await step.decide(lambda: asked)
        await step.record(3, error="denied")
        await step.record(1, error="denied")
        assert [await step.call(said, x=0), await step.call(said, x=2)] == [0, 2]
        calls = {c.position: c.status for c in task.state.steps[0].all_calls()}
        assert calls == {0: "completed", 1: "failed", 2: "completed", 3: "failed"}
