"""Which span stands within which: across crashes, sub-tasks, threads and calls at the same time.

A crash is an exception that nothing here catches; the spans of it are those that a process
leaves which ends in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import StatusCode, get_current_span

import journal
from journal import sync
from journal.errors import SubtaskFailed
from tests.tracing import REQUEST, Seen, asks, parent, text

Connect = Callable[..., journal.Journal]


class Crash(BaseException):
    """What stands for the end of a process."""


async def inc(x: int) -> int:
    return x + 1


async def test_a_resumption_is_of_the_same_trace_and_repeats_nothing(
    connect: Connect, seen: Seen
) -> None:
    async def broken(x: int) -> int:
        raise Crash

    async def life(second: Callable[..., Any]) -> None:
        async with connect(tracer_provider=seen.provider) as j, j.task("t", "d") as task:
            async with task.step() as step:
                await step.decide(asks, "inc", "second")
                await step.call(inc, x=0)
                await step.options().call(journal.tool(name="second")(second), x=1)
            await task.complete()

    with pytest.raises(Crash):
        await life(broken)
    assert [span.status.status_code for span in seen.all("step")] == [StatusCode.ERROR]
    first = seen.one("invoke_agent")
    seen.forget()
    await life(inc)
    assert seen.names() == ["execute_tool second", "step", "invoke_agent"]
    tool, step, agent = seen.spans
    assert {span.context.trace_id for span in seen.spans} == {first.context.trace_id}
    assert (parent(agent), parent(step), parent(tool)) == (
        first.context.span_id,
        agent.context.span_id,
        step.context.span_id,
    )
    assert agent.attributes is not None
    assert agent.attributes["step_journal.resumed"] is True
    assert agent.attributes["step_journal.steps_reused"] == 0
    assert agent.attributes["step_journal.tokens_reused"] == 15
    assert step.attributes is not None
    assert step.attributes["step_journal.replayed"] is True
    assert tool.attributes is not None
    assert tool.attributes["step_journal.resumed"] is True
    assert agent.links == ()


async def test_openings_of_one_request_are_its_children(connect: Connect, seen: Seen) -> None:
    for named in (REQUEST, None, None):
        j = connect(tracer_provider=seen.provider)
        async with j, j.task("t", "d", traceparent=named) as task:
            await task.record_step(task.state.current_step, "seen")
    assert [parent(span) for span in seen.all("invoke_agent")] == [0xDEF] * 3
    assert {span.context.trace_id for span in seen.spans} == {0xABC}


async def test_a_resumption_in_another_trace_links_to_the_first(
    connect: Connect, seen: Seen
) -> None:
    async with connect(tracer_provider=seen.provider) as j:
        async with j.task("t", "d", traceparent=REQUEST):
            pass
        with seen.tracer.start_as_current_span("another") as here:
            async with j.task("t"):
                pass
    _, second = seen.all("invoke_agent")
    assert parent(second) == here.get_span_context().span_id
    assert [link.context.span_id for link in second.links] == [0xDEF]


async def test_events_carry_the_span_that_they_were_written_in(
    j: journal.Journal, seen: Seen
) -> None:
    async with j:
        async with j.task("t", "d", traceparent=REQUEST) as task:
            assert task.traceparent != REQUEST
            async with task.step() as step:
                await step.decide(asks, "inc")
                await step.call(inc, x=0)
            await task.complete()
        events = [(e.type, e.traceparent) async for _, e in j.events("t")]
    turn, tool, agent = (seen.one(n) for n in ("step", "execute_tool inc", "invoke_agent"))
    assert events == [
        ("TaskStarted", REQUEST),
        ("StepStarted", text(turn)),
        ("ToolCallStarted", text(tool)),
        ("ToolCallCompleted", text(tool)),
        ("StepCompleted", text(turn)),
        ("TaskCompleted", text(agent)),
    ]


async def test_the_users_own_spans_stand_between(j: journal.Journal, seen: Seen) -> None:
    inside: list[str] = []

    async def look(x: int) -> None:
        with seen.tracer.start_as_current_span("of the tool"):
            inside.append(get_current_span().name)  # type: ignore[attr-defined]

    with seen.tracer.start_as_current_span("of the caller"):
        async with j, j.task("t", "d") as task:
            with seen.tracer.start_as_current_span("of the agent"):
                async with task.step() as step:
                    await step.decide(asks, "look")
                    await step.call(look, x=0)
        assert get_current_span().name == "of the caller"  # type: ignore[attr-defined]
    assert inside == ["of the tool"]
    assert seen.tree() == [
        "of the caller",
        "  invoke_agent",
        "    of the agent",
        "      step",
        "        chat model-a",
        "        execute_tool look",
        "          of the tool",
    ]


async def test_a_sync_tool_runs_in_its_span(j: journal.Journal, seen: Seen) -> None:
    def look(x: int) -> None:
        seen.tracer.start_span("of the tool").end()

    async with j, j.task("t", "d") as task, task.step() as step:
        await step.decide(asks, "look")
        await step.call(look, x=0)
    assert parent(seen.one("of the tool")) == seen.one("execute_tool look").context.span_id


async def test_calls_at_the_same_time_are_children_of_their_step(
    j: journal.Journal, seen: Seen
) -> None:
    begun = asyncio.Barrier(3)

    async def wait(x: int) -> int:
        await begun.wait()
        return x

    async with j, j.task("t", "d") as task:
        async with task.step() as step:
            await step.decide(asks, *["wait"] * 3)
            await asyncio.gather(
                *(step.options(call=n).call(wait, x=n) for n in range(3)),
            )
        await task.gather(*(task.run(wait, n) for n in range(3)))
    step_id = seen.one("step").context.span_id
    calls = seen.all("execute_tool wait")
    assert [parent(span) for span in calls] == [step_id] * 3
    assert {span.attributes["step_journal.position"] for span in calls if span.attributes} == {
        0,
        1,
        2,
    }
    runs = [span for span in seen.spans if span.name.startswith("run ")]
    assert [parent(span) for span in runs] == [seen.one("invoke_agent").context.span_id] * 3


async def test_children_are_within_their_parent_also_when_resumed(
    connect: Connect, seen: Seen
) -> None:
    fails: list[BaseException] = [Crash()]

    async def work(child: journal.Task, n: int) -> int:
        half: int = await child.run(inc, n)
        if n == 2 and fails:
            raise fails.pop()
        return half

    async def life() -> list[int]:
        j = connect(tracer_provider=seen.provider)
        async with j, j.task("p", "d", agent_name="boss") as task:
            calls = (task.subtask(f"c{n}", work, n) for n in (1, 2))
            return await task.gather(*calls, limit=1)

    with pytest.raises(Crash):
        await life()
    seen.forget()
    assert await life() == [2, 3]
    assert seen.tree() == ["invoke_agent boss", "  invoke_agent"]
    child = seen.one("invoke_agent")
    assert child.attributes is not None
    assert child.attributes["step_journal.task_id"] == "p:c2"
    assert child.attributes["step_journal.resumed"] is True
    assert child.attributes["gen_ai.conversation.id"] == "p:c2"


async def test_a_childs_first_run_is_a_child(j: journal.Journal, seen: Seen) -> None:
    async def work(child: journal.Task) -> int:
        await child.run(inc, 1)
        raise LookupError("no such city")

    async with j, j.task("p", "d", agent_name="boss") as task:
        with pytest.raises(SubtaskFailed):
            await task.subtask("c", work)
    assert seen.tree() == ["invoke_agent boss", "  invoke_agent", "    run inc"]
    child = seen.one("invoke_agent")
    assert child.status.status_code is StatusCode.ERROR
    assert child.attributes is not None
    assert child.attributes["error.type"] == "LookupError"
    assert child.attributes["step_journal.status"] == "failed"


async def test_two_open_tasks_keep_to_their_own_spans(connect: Connect, seen: Seen) -> None:
    async with connect(tracer_provider=seen.provider) as j:
        async with j.task("a", "d") as a, j.task("b", "d", traceparent=REQUEST) as b:
            await a.record_step(0, "seen")
            await b.record_step(0, "seen")
            async with a.step() as step:
                await step.decide(asks)
        a_events = [e.traceparent async for _, e in j.events("a")]
        b_events = [e.traceparent async for _, e in j.events("b")]
    first, second = sorted(seen.all("invoke_agent"), key=lambda s: s.start_time or 0)
    assert a_events[:2] == [text(first)] * 2
    assert b_events == [REQUEST, text(second)]
    assert parent(seen.one("step")) == first.context.span_id


async def test_a_child_is_within_its_parent_whatever_else_is_open(
    connect: Connect, seen: Seen
) -> None:
    async def work(child: journal.Task) -> int:
        return 1

    async with (
        connect(tracer_provider=seen.provider) as j,
        j.task("a", "d", agent_name="a") as a,
        j.task("b", "d", agent_name="b"),
    ):
        await a.subtask("c", work)
    assert parent(seen.one("invoke_agent")) == seen.one("invoke_agent a").context.span_id


async def test_a_task_may_be_left_in_another_context(j: journal.Journal, seen: Seen) -> None:
    async def leave(opened: Any) -> str:
        with seen.tracer.start_as_current_span("of another"):
            await opened.__aexit__(None, None, None)
            return get_current_span().name  # type: ignore[attr-defined, no-any-return]

    async with j:
        opened = j.task("t", "d")
        await opened.__aenter__()
        assert await asyncio.create_task(leave(opened)) == "of another"
    assert seen.names() == ["invoke_agent", "of another"]


def test_without_await_it_is_the_same(tmp_path: Path, seen: Seen) -> None:
    def look(x: int) -> int:
        seen.tracer.start_span("of the tool").end()
        return x

    def work(child: sync.Task) -> int:
        seen.tracer.start_span("of the child").end()
        return int(child.run(len, "abc"))

    log = tmp_path / "journal.db"
    with seen.tracer.start_as_current_span("of the caller"):
        with sync.connect(log, tracer_provider=seen.provider) as j, j.task("t", "d") as task:
            with task.step() as step:
                step.decide(lambda: asks("look"))
                step.call(look, x=0)
                seen.tracer.start_span("of the agent").end()
            task.subtask("c", work)
            assert task.traceparent == sync_text(seen, task)
        assert get_current_span().name == "of the caller"  # type: ignore[attr-defined]
    assert seen.tree() == [
        "of the caller",
        "  invoke_agent",
        "    step",
        "      chat model-a",
        "      execute_tool look",
        "        of the tool",
        "      of the agent",
        "    invoke_agent",
        "      of the child",
        "      run len",
    ]


def sync_text(seen: Seen, task: sync.Task) -> str:
    """That of the task's own span, which has not ended yet."""
    here = get_current_span().get_span_context()
    return f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"
