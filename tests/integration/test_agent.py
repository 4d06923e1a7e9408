"""The agent's side on both logs: what is recorded, what a resumption gives back, who is told.

Knows the public API; a second worker is a second connection to the same log.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import journal
from journal.errors import (
    CallUncertain,
    EventTooNew,
    ReplayDiverged,
    TaskEnded,
    TaskFenced,
    TaskMismatch,
    TaskNotFound,
    ToolError,
    ValueRefused,
)
from journal.events import Decision, ToolCall, Usage
from journal.ids import new_task_id, now_ms
from journal.log import append_and_wait
from journal.messages import messages

Connect = Callable[[], journal.Journal]


def asks(*names: str) -> Decision:
    return Decision(
        text="thinking",
        tool_calls=[ToolCall(n, {"x": i}) for i, n in enumerate(names)],
        usage=Usage(input_tokens=10, output_tokens=5),
    )


async def test_a_run_from_start_to_end(connect: Connect) -> None:
    async with connect() as j:
        async with j.task("t", "add things") as task:
            assert task.resumed is None
            async with task.step() as step:
                decision = await step.decide(lambda: asks("inc", "inc"))
                got = [await step.call(inc, **c.arguments) for c in decision.tool_calls]
            assert got == [1, 2]
            async with task.step() as step:
                reply = await step.decide(lambda: Decision(text="3"))
                await task.complete(reply.text)
            assert not task.running
        state = await j.state("t")
    assert state.status == "completed"
    assert [s.status for s in state.completed_steps] == ["completed", "completed"]
    assert state.total_tokens == 15
    assert state.messages("plain") == messages(state, "plain")
    assert [m["role"] for m in state.messages()] == [
        "user", "assistant", "tool", "tool", "assistant",
    ]  # fmt: skip


async def inc(x: int) -> int:
    return x + 1


async def test_nothing_that_is_done_runs_again(connect: Connect) -> None:
    ran: list[str] = []

    async def model() -> Decision:
        ran.append("model")
        return asks("first", "second")

    async def first(x: int) -> str:
        ran.append("first")
        return "one"

    async def second(x: int) -> str:
        ran.append("second")
        if ran.count("second") == 1:
            raise KeyboardInterrupt
        return "two"

    async def attempt() -> list[str]:
        async with connect() as j, j.task("t", "d") as task, task.step() as step:
            decision = await step.decide(model)
            return [
                await step.call(tool, **call.arguments)
                for call, tool in zip(decision.tool_calls, (first, second), strict=True)
            ]

    with pytest.raises(KeyboardInterrupt):
        await attempt()
    assert await attempt() == ["one", "two"]
    assert ran == ["model", "first", "second", "second"]


async def test_a_once_call_in_flight_is_uncertain(connect: Connect) -> None:
    @journal.tool(effect="once")
    async def pay(x: int) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        async with connect() as j, j.task("t", "d") as task, task.step() as step:
            await step.decide(lambda: asks("pay"))
            await step.call(pay, x=0)
    async with connect() as j, j.task("t") as task:
        async with task.step() as step:
            await step.decide(asks)
            with pytest.raises(CallUncertain) as caught:
                await step.call(pay, x=0)
            assert (caught.value.step_index, caught.value.position) == (0, 0)
            await step.resolve(0, result="paid")
            assert await step.call(pay, x=0) == "paid"
        assert task.completed(0) is not None


async def test_the_loser_is_fenced(connect: Connect) -> None:
    async with connect() as old, connect() as new, old.task("t", "d") as mine:
        await mine.record_step(0, "zero")
        async with new.task("t") as theirs:
            assert theirs.resumed is not None
            assert str(theirs.resumed) == "Resuming t at step 1: 1 steps and 0 tokens reused"
            await theirs.record_step(1, "theirs")
            if not old.log.conditional and old.confirm == "once":
                # Only what is read back can tell: the claim of a once effect is.
                with pytest.raises(TaskFenced):
                    async with mine.step() as step:
                        await step.call(journal.tool(effect="once")(inc), x=1)
            else:
                with pytest.raises(TaskFenced):
                    await mine.record_step(1, "mine")
            frames = []
            for _ in range(3):
                with pytest.raises(TaskFenced) as told:
                    await mine.record_step(1, "mine")
                frames.append(len(told.traceback))
            # It is one exception; the traces of those who were told before are not piled up.
            assert len(set(frames)) == 1
        step_1 = (await new.state("t")).steps[1].decision()
    assert step_1 is not None
    assert step_1.text == "theirs"


async def test_a_tool_that_fails(connect: Connect) -> None:
    calls = 0

    def breaks(x: int) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("no such page")
        return "page"

    async with connect() as j, j.task("t", "d") as task:
        with pytest.raises(ToolError, match="no such page") as caught:  # noqa: PT012
            async with task.step() as step:
                await step.decide(lambda: asks("breaks"))
                await step.call(breaks, x=1)
        assert caught.value.error_type == "ValueError"
        async with task.step() as step:
            assert (step.index, step.attempt) == (0, 2)
            assert (await step.decide(asks)).text == "thinking"
            assert await step.call(breaks, x=1) == "page"
        assert task.state.current_step == 1


async def test_recording_again(connect: Connect) -> None:
    async with connect() as j, j.task("t", "d") as task:
        await task.record_step(0, asks("a"), ["r"])
        await task.record_step(0, asks("a"), ["r"], completed_at="2026-01-01T00:00:00Z")
        with pytest.raises(ReplayDiverged):
            await task.record_step(0, asks("a"), ["other"])
        with pytest.raises(ValueRefused, match=r"\$\.a\[0\]"):
            await task.record_step(1, asks("a"), [{"a": [float("nan")]}])
        await task.record_step(1, "after a refusal")
        assert task.state.current_step == 2


async def test_functions_messages_results(connect: Connect) -> None:
    ran = []

    def work(n: int) -> int:
        ran.append(n)
        return n * 2

    async with connect() as j, j.task("t", "d") as task:
        assert [await task.run(work, 4), await task.run(work, 4)] == [8, 8]
        await task.receive("hello", id="m1")
        await task.receive("hello", id="m1")
        message = await task.next_message()
        assert message.id == "m1"
        await task.set_result("report.md", {"$size": 3})
    async with connect() as j, j.task("t") as task:
        assert [await task.run(work, 4), await task.run(work, 4)] == [8, 8]
        assert (await task.next_message()).id == "m1"
        await task.fail("gave up")
    assert ran == [4, 4]
    async with connect() as j:
        with pytest.raises(TaskEnded, match="journal retry t"):
            async with j.task("t"):
                pass
        await j.retry("t")
        async with j.task("t") as task:
            assert task.running
            await task.complete("done")
        async with j.task("t") as task:
            assert (task.running, task.final_answer) == (False, "done")


async def test_who_may_open(connect: Connect) -> None:
    async with connect() as j:
        with pytest.raises(TaskNotFound):
            async with j.task("none"):
                pass
        async with j.task("t", "d"):
            pass
        with pytest.raises(TaskMismatch, match="'other'"):
            async with j.task("t", "other"):
                pass
        assert [s.task_id for s in await j.tasks(status="running")] == ["t"]


async def test_a_task_is_found_whose_id_was_made_by_a_clock_ahead(connect: Connect) -> None:
    task_id = new_task_id(now_ms() + 3_600_000)
    async with connect() as j, j.task(task_id, "from tomorrow") as task:
        await task.record_step(0, "begun")
    async with connect() as j, j.task(task_id) as task:
        assert [s.index for s in task.state.completed_steps] == [0]


async def test_a_large_result_goes_to_the_blob_store(connect: Connect) -> None:
    large = "x" * 1_000_000
    async with connect() as j, j.task("t", "d") as task:
        await task.record_step(0, asks("a"), [large])
        sizes = [len(bytes(e.body)) async for _, e in j.events("t")]
        assert max(sizes) < 1000
        assert task.messages()[-1]["content"] == large


async def test_an_event_of_a_newer_release_stops_its_owner(connect: Connect) -> None:
    once = journal.tool(effect="once")(inc)
    async with connect() as j, j.task("t", "d") as task:
        partition = task.state.partition
        await append_and_wait(
            j.log,
            partition,
            b"t",
            b'{"type":"StepDreamt","v":1,"id":"i","task_id":"t","body":{}}',
            0,
        )
        step = task.step()
        with pytest.raises(EventTooNew, match="StepDreamt"):
            await step.call(once, x=1)
        with pytest.raises(EventTooNew, match="StepDreamt"):
            await j.state("t")
