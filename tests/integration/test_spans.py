"""Spans of OpenTelemetry: their names, attributes and errors, on both logs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

import journal
from journal.errors import TaskFenced, ToolError
from journal.events import Decision, ToolCall
from tests.tracing import REQUEST, Seen, asks

Connect = Callable[..., journal.Journal]


async def inc(x: int) -> int:
    return x + 1


async def test_names_and_attributes(j: journal.Journal, seen: Seen) -> None:
    async with j, j.task("t", "d", agent_name="counter") as task:
        async with task.step() as step:
            await step.decide(asks, "inc")
            await step.call(inc, x=0)
        await task.run(inc, 3)
        await task.now()
        await task.complete("done")
    assert seen.tree() == [
        "invoke_agent counter",
        "  step",
        "    chat model-a",
        "    execute_tool inc",
        "  run inc",
    ]
    common = {"step_journal.task_id": "t"}
    agent = seen.one("invoke_agent counter")
    assert agent.kind is SpanKind.INTERNAL
    assert agent.attributes == common | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "counter",
        "gen_ai.conversation.id": "t",
        "step_journal.resumed": False,
        "step_journal.status": "completed",
    }
    assert seen.one("step").attributes == common | {
        "step_journal.step_index": 0,
        "step_journal.attempt": 1,
        "step_journal.replayed": False,
    }
    chat = seen.one("chat model-a")
    assert chat.kind is SpanKind.CLIENT
    assert chat.attributes == common | {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": "t",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "model-a",
        "gen_ai.response.model": "model-a-2026",
        "gen_ai.response.id": "r1",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_write.input_tokens": 3,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "step_journal.step_index": 0,
    }
    assert seen.one("execute_tool inc").attributes == common | {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "inc",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_0",
        "step_journal.step_index": 0,
        "step_journal.position": 0,
        "step_journal.attempt": 1,
        "step_journal.effect": "idempotent",
        "step_journal.resumed": False,
    }
    assert seen.one("run inc").attributes == common | {"step_journal.function": "inc"}
    scope = agent.instrumentation_scope
    assert scope is not None
    assert (scope.name, bool(scope.version)) == ("step-journal", True)
    assert all(span.status.status_code is StatusCode.UNSET for span in seen.spans)


SECRET = "sk-verysecret"


async def test_errors_are_told_by_type_and_nothing_by_content(
    j: journal.Journal, seen: Seen
) -> None:
    async def pay(x: int, note: str) -> int:
        raise OSError(f"no route with {SECRET}")

    def decide() -> Decision:
        return Decision(SECRET, [ToolCall("pay", {"x": 0, "note": SECRET})], reasoning=SECRET)

    async with j, j.task("t", SECRET) as task:
        await task.receive(SECRET)
        with pytest.raises(RuntimeError):
            async with task.step() as step:
                await step.decide(fails_with, RuntimeError(SECRET))
        with pytest.raises(ToolError):  # noqa: PT012
            async with task.step() as step:
                await step.decide(decide)
                await step.call(pay, x=0, note=SECRET)
        async with task.step() as step:
            await step.decide(decide)
            with pytest.raises(ToolError):
                await step.call(pay, x=0, note=SECRET)
        await task.fail(ValueError(SECRET))
    told = [
        (span.name, span.status.status_code.name, (span.attributes or {}).get("error.type"))
        for span in seen.spans
    ]
    assert told == [
        ("chat", "ERROR", "RuntimeError"),
        ("step", "ERROR", "RuntimeError"),
        ("chat", "UNSET", None),
        ("execute_tool pay", "ERROR", "OSError"),
        ("step", "ERROR", "OSError"),
        ("execute_tool pay", "ERROR", "OSError"),
        ("step", "UNSET", None),
        ("invoke_agent", "ERROR", "ValueError"),
    ]
    steps = [span.attributes or {} for span in seen.all("step")]
    assert [step["step_journal.attempt"] for step in steps] == [1, 2, 3]
    assert [step["step_journal.replayed"] for step in steps] == [False, False, True]
    assert SECRET not in "".join(span.to_json() for span in seen.spans)


def fails_with(error: Exception) -> Decision:
    raise error


async def test_retries_of_a_tool_are_one_span(j: journal.Journal, seen: Seen) -> None:
    errors: list[Exception] = [OSError("once"), OSError("twice")]

    @journal.tool(retries=2, backoff=0.0)
    async def fetch(x: int) -> int:
        if errors:
            raise errors.pop()
        return x

    async with j, j.task("t", "d") as task, task.step() as step:
        await step.decide(asks, "fetch")
        assert await step.call(fetch, x=0) == 0
    assert seen.one("execute_tool fetch").status.status_code is StatusCode.UNSET


async def test_a_task_that_has_ended_makes_no_span(j: journal.Journal, seen: Seen) -> None:
    async with j:
        async with j.task("t", "d", traceparent=REQUEST) as task:
            await task.complete()
        seen.forget()
        async with j.task("t") as task:
            assert not task.running
            assert task.traceparent == REQUEST
    assert seen.spans == []


async def test_a_step_that_could_not_be_completed_says_so(tmp_path: Path, seen: Seen) -> None:
    log = tmp_path / "journal.db"
    j = journal.connect(log, tracer_provider=seen.provider)
    async with j, journal.connect(log) as other:
        with pytest.raises(TaskFenced):  # noqa: PT012
            async with j.task("t", "d") as task, task.step() as step:
                await step.decide(asks)
                async with other.task("t"):
                    pass
    assert [(span.attributes or {}).get("error.type") for span in seen.all("step")] == [
        "journal.errors.TaskFenced"
    ]
    assert seen.one("invoke_agent").status.status_code is StatusCode.ERROR


async def test_what_nobody_records_costs_no_span_and_is_carried(connect: Connect) -> None:
    quiet = Seen(ALWAYS_OFF)
    for provider in (quiet.provider, NoOpTracerProvider()):
        async with connect(tracer_provider=provider) as j:
            async with j.task("t", "d", traceparent=REQUEST) as task:
                assert task.spans is None
                async with task.step() as step:
                    await step.decide(asks, "inc")
                    await step.call(inc, x=0)
            carried = {e.traceparent async for _, e in j.events("t")}
            assert carried == {REQUEST}
    assert quiet.spans == []


async def test_an_unsampled_trace_is_carried_as_unsampled(connect: Connect) -> None:
    quiet = Seen(ALWAYS_OFF)
    async with connect(tracer_provider=quiet.provider) as j, j.task("t", "d") as task:
        assert task.traceparent is not None
        assert int(task.traceparent[-2:], 16) & 1 == 0
        assert task.state.traceparent == task.traceparent


def test_an_opentelemetry_that_cannot_be_imported_is_not_an_absent_one(tmp_path: Path) -> None:
    package = tmp_path / "opentelemetry"
    package.mkdir()
    (package / "__init__.py").write_text("import what_it_needs\n")
    done = subprocess.run(
        [sys.executable, "-c", "from journal.tracing import load_spans; load_spans(None)"],
        env=dict(os.environ, PYTHONPATH=str(tmp_path)),
        capture_output=True,
        text=True,
    )
    assert "No module named 'what_it_needs'" in done.stderr
    assert done.returncode == 1
