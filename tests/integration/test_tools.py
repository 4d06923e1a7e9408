"""A tool's policy: how often it runs, what is never tried again, what nobody knows."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

import journal
from journal import Happened
from journal.errors import CallUncertain, ToolError, UsageError
from journal.events import Decision, ToolCall
from journal.tools import Tool, tool

Connect = Callable[[], journal.Journal]


class Crash(BaseException):
    """What stands for the end of a process."""


class Outside:
    """The world outside: what happens to it, and how it answers."""

    def __init__(self, *answers: Any) -> None:
        self.happened: list[str] = []
        self._answers = list(answers)

    async def __call__(self, city: str, idempotency_key: str = "") -> str:
        self.happened.append(idempotency_key)
        answer = self._answers.pop(0) if self._answers else "fine"
        if isinstance(answer, BaseException):
            raise answer
        return str(answer)

    def tool(self, **policy: Any) -> Tool:
        async def weather(city: str, idempotency_key: str) -> str:
            return await self(city, idempotency_key)

        return tool(backoff=0.0, **policy)(weather)


async def one_call(connect: Connect, used: Tool) -> Any:
    """The first call of step 0, in a process of its own."""
    async with connect() as j, j.task("t", "d") as task, task.step() as step:
        call = ToolCall("weather", {"city": "Rome"})
        await step.decide(lambda: Decision("look", [call]))
        return await step.call(used, city="Rome")


async def failures(connect: Connect) -> int:
    async with connect() as j:
        return sum([e.type == "ToolCallFailed" async for _, e in j.events("t")])


async def test_each_failure_is_an_event_and_the_key_stays(connect: Connect) -> None:
    outside = Outside(OSError("1"), OSError("2"))
    assert await one_call(connect, outside.tool(retries=2)) == "fine"
    assert await failures(connect) == 2
    assert len(set(outside.happened)) == 1
    assert len(outside.happened) == 3


async def test_retries_are_counted_across_crashes(connect: Connect) -> None:
    outside = Outside(OSError("1"), Crash(), OSError("2"), OSError("3"))
    with pytest.raises(Crash):
        await one_call(connect, outside.tool(retries=2))
    with pytest.raises(ToolError, match="3"):
        await one_call(connect, outside.tool(retries=2))
    assert len(outside.happened) == 4
    assert await failures(connect) == 3


class Refused(Exception):
    """What an HTTP client raises for a status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


@pytest.mark.parametrize(
    "never_on",
    [Refused, (KeyError, Refused), lambda error: 400 <= getattr(error, "status", 0) < 500],
    ids=["a type", "types", "a predicate"],
)
async def test_a_permanent_error_is_never_tried_again(connect: Connect, never_on: Any) -> None:
    """Elsewhere it is retried for ever."""
    outside = Outside(OSError("once"), Refused(404))
    with pytest.raises(ToolError, match="404") as raised:
        await one_call(connect, outside.tool(retries=9, never_on=never_on))
    assert isinstance(raised.value.__cause__, Refused)
    assert len(outside.happened) == 2


async def test_only_what_retry_on_names_is_tried_again(connect: Connect) -> None:
    outside = Outside(OSError("once"), ValueError("twice"))
    with pytest.raises(ToolError, match="twice"):
        await one_call(connect, outside.tool(retries=9, retry_on=OSError))


async def test_a_run_that_takes_too_long_has_failed(connect: Connect) -> None:
    runs = 0

    async def slow() -> str:
        nonlocal runs
        runs += 1
        if runs == 1:
            await asyncio.Event().wait()
        return "fine"

    used = tool(retries=1, timeout=0.01, backoff=0.0)(slow)
    async with connect() as j, j.task("t", "d") as task, task.step() as step:
        assert await step.call(used) == "fine"
    assert await failures(connect) == 1


def test_a_once_tool_is_not_retried_by_accident() -> None:
    with pytest.raises(UsageError, match="retry_on"):
        tool(effect="once", retries=1)
    with pytest.raises(UsageError, match="on_uncertain is"):
        tool(effect="once", on_uncertain="hope")
    with pytest.raises(UsageError, match="count from 0"):
        tool(retries=-1)


def test_backoff_grows_to_its_most() -> None:
    used = tool(retries=9, backoff=1.0, backoff_max=5.0)(lambda: None)
    waits = [used.backoff_s(n) for n in range(1, 6)]
    for wait, least in zip(waits, (1, 2, 4, 5, 5), strict=True):
        assert least <= wait <= least + 0.5


# --- of which nobody knows --------------------------------------------------------------------


async def crashed(connect: Connect, outside: Outside, **policy: Any) -> Tool:
    """The tool, after a process was lost in the middle of it."""
    used = outside.tool(effect="once", **policy)
    with pytest.raises(Crash):
        await one_call(connect, used)
    return used


async def test_without_a_policy_it_is_the_callers_to_settle(connect: Connect) -> None:
    outside = Outside(Crash())
    used = await crashed(connect, outside)
    with pytest.raises(CallUncertain, match="journal resolve t 0:0"):
        await one_call(connect, used)
    async with connect() as j:
        await j.resolve("t", 0, 0, result="rainy", resolved_by="ops")
    assert await one_call(connect, used) == "rainy"
    assert len(outside.happened) == 1


async def test_a_call_that_was_cancelled_is_uncertain_at_once(connect: Connect) -> None:
    """In the same process too: nobody knows whether it has happened."""
    runs = 0
    began = asyncio.Event()

    async def pay() -> None:
        nonlocal runs
        runs += 1
        began.set()
        await asyncio.Event().wait()

    used = tool(effect="once")(pay)
    async with connect() as j, j.task("t", "d") as task, task.step() as step:
        paying = asyncio.ensure_future(step.call(used))
        await began.wait()
        paying.cancel()
        await asyncio.gather(paying, return_exceptions=True)
        with pytest.raises(CallUncertain):
            await step.options(call=0).call(used)
        await step.resolve(0, error="it was not paid")
        with pytest.raises(ToolError, match="not paid"):
            await step.call(used)
    assert runs == 1


async def test_a_once_tool_that_takes_too_long_is_uncertain(connect: Connect) -> None:
    async def pay() -> None:
        await asyncio.Event().wait()

    used = tool(effect="once", timeout=0.01)(pay)
    async with connect() as j, j.task("t", "d") as task, task.step() as step:
        with pytest.raises(CallUncertain, match=r"took longer than 0\.01 s"):
            await step.call(used)
        await step.resolve(0, result="paid")
        assert await step.call(used) == "paid"


@pytest.mark.parametrize(
    ("policy", "result", "runs"),
    [
        ("retry", "fine", 2),
        (lambda city: Happened("rainy"), "rainy", 1),
        (lambda city: None, "fine", 2),
    ],
    ids=["retry", "it has happened", "it has not"],
)
async def test_a_policy_settles_it(connect: Connect, policy: Any, result: str, runs: int) -> None:
    outside = Outside(Crash())
    used = await crashed(connect, outside, on_uncertain=policy)
    assert await one_call(connect, used) == result
    assert len(outside.happened) == runs
    assert await one_call_again(connect) == 1


async def one_call_again(connect: Connect) -> int:
    """How often the call was resolved."""
    async with connect() as j:
        return sum([e.type == "CallResolved" async for _, e in j.events("t")])


async def test_a_check_is_given_the_key(connect: Connect) -> None:
    outside, asked = Outside(Crash()), []

    def check(city: str, idempotency_key: str) -> Happened:
        asked.append((city, idempotency_key))
        return Happened("rainy")

    used = await crashed(connect, outside, on_uncertain=check)
    assert await one_call(connect, used) == "rainy"
    assert asked == [("Rome", outside.happened[0])]


async def test_fail_makes_it_a_failure(connect: Connect) -> None:
    outside = Outside(Crash())
    used = await crashed(connect, outside, on_uncertain="fail")
    with pytest.raises(ToolError, match="in flight"):
        await one_call(connect, used)
    assert len(outside.happened) == 1


@pytest.mark.parametrize(
    ("answer", "runs"), [({"result": "rainy"}, 1), ({"run_again": True}, 2)], ids=["yes", "no"]
)
async def test_ask_asks_a_person(connect: Connect, answer: dict[str, Any], runs: int) -> None:
    outside = Outside(Crash())
    used = await crashed(connect, outside, on_uncertain="ask")

    async def person() -> None:
        async with connect() as j:
            while not (await j.state("t")).pending:
                pass
            (wait,) = (await j.state("t")).pending
            assert b"weather" in bytes(wait.question or b"")
            with pytest.raises(UsageError):
                await j.answer("t", "who knows")
            await j.answer("t", answer, answered_by="ops")

    got, _ = await asyncio.gather(one_call(connect, used), person())
    assert got == answer.get("result", "fine")
    assert len(outside.happened) == runs


# --- at the same time -------------------------------------------------------------------------


async def test_parallel_calls_that_were_done_before_a_crash_are_not_run_again(
    connect: Connect,
) -> None:
    """Elsewhere a parallel step's finished calls are lost on a crash."""
    made: list[int] = []
    dies = True

    async def work(n: int) -> int:
        made.append(n)
        if n == 2 and dies:
            done.append(await others_done.wait())
            raise Crash
        return n

    done: list[Any] = []
    others_done = asyncio.Event()

    async def run() -> list[int]:
        async with connect() as j, j.task("t", "d") as task, task.step() as step:
            calls = [ToolCall("work", {"n": n}) for n in range(4)]
            reply = await step.decide(lambda: Decision("all", calls))
            finished = 0

            async def one(call: ToolCall) -> int:
                nonlocal finished
                got: int = await step.call(work, **call.arguments)
                finished += 1
                if finished == 3:
                    others_done.set()
                return got

            return list(await asyncio.gather(*(one(call) for call in reply.tool_calls)))

    with pytest.raises(Crash):
        await run()
    dies = False
    assert await run() == [0, 1, 2, 3]
    assert sorted(made) == [0, 1, 2, 2, 3]


def test_a_tool_is_declared_with_a_policy_or_without() -> None:
    @journal.tool
    def bare(x: int) -> int:
        return x

    @journal.tool(name="other", effect="none")
    def named(x: int) -> int:
        return x

    assert (bare.name, bare.effect, bare(3)) == ("bare", "idempotent", 3)
    assert (named.name, named.effect, named(3)) == ("other", "none", 3)


def test_whatever_can_be_called_is_a_tool_and_nothing_else() -> None:
    assert journal.tool(functools.partial(lambda x: x, 1)).name == "partial"
    with pytest.raises(UsageError, match="options have names"):
        journal.tool("once")  # type: ignore[call-overload]


async def test_a_stop_iteration_comes_back(connect: Connect) -> None:
    def runs_out() -> Any:
        return next(iter(()))

    async with connect() as j, j.task("t", "d") as task:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await task.run(runs_out)


async def test_a_model_cannot_choose_the_key(connect: Connect) -> None:
    @journal.tool
    async def keyed(x: int, idempotency_key: str) -> str:
        return idempotency_key

    async with connect() as j, j.task("t", "d") as task:
        async with task.step() as step:
            key = await step.call(keyed, x=1, idempotency_key="the model's")
        assert key.startswith(f"{task.state.head.run_id}:0:0:")
