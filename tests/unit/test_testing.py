"""The kit for people's own crash tests: what it lets pass, and what it must not let pass."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

import journal
from journal import testing
from journal.errors import CallUncertain, LogNotFound, LogUnavailable, UsageError
from journal.log import append_and_wait
from journal.memory_log import PROCESS, Process

STEPS = 2


class Shop:
    """An agent with a model and two tools, all of them counted. Subclasses get things wrong."""

    def __init__(self, effect: str = "idempotent") -> None:
        self.model = testing.counted(self._model)
        self.note = testing.counted(self._note)
        self.charge = testing.counted(journal.tool(effect=effect, name="charge")(self._charge))
        self.charged: list[int] = []

    def _model(self, index: int) -> journal.Decision:
        if index == STEPS:
            return journal.Decision("sold")
        calls = [journal.ToolCall("charge", {"n": index}), journal.ToolCall("note", {"n": index})]
        return journal.Decision(f"sell {index}", calls)

    def _charge(self, n: int) -> str:
        self.charged.append(n)
        return f"receipt {n}"

    async def _note(self, n: int) -> int:
        return n * n

    def reset(self) -> None:
        self.charged.clear()

    async def __call__(self, j: journal.Journal) -> str:
        async with j.task("order", "Sell books") as task:
            while task.running:
                async with task.step() as step:
                    decision = await step.decide(self.model, step.index)
                    if not decision.tool_calls:
                        await task.complete(decision.text)
                        break
                    await self.act(task, step)
        return str(task.final_answer)

    async def act(self, task: journal.Task, step: Any) -> None:
        receipt = await step.call(self.charge, n=step.index)
        await task.set_result(f"r{step.index}", receipt)
        await step.call(self.note, n=step.index)


class Settling(Shop):
    """Knows what to do about a charge of which nobody knows whether it happened."""

    async def act(self, task: journal.Task, step: Any) -> None:
        try:
            await super().act(task, step)
        except CallUncertain as unsure:
            if step.index in self.charged:
                result = f"receipt {step.index}"
                await step.resolve(unsure.position, result=result)
            else:
                await step.resolve(unsure.position, run_again=True)
            await super().act(task, step)


class Reckless(Shop):
    """Charges a second time whatever is uncertain."""

    async def act(self, task: journal.Task, step: Any) -> None:
        try:
            await super().act(task, step)
        except CallUncertain as unsure:
            await step.resolve(unsure.position, run_again=True)
            await super().act(task, step)


class Unrecorded(Shop):
    """Calls a tool past the journal."""

    async def act(self, task: journal.Task, step: Any) -> None:
        self.charge(step.index)
        await step.call(self.note, n=step.index)


class Forgetful(Shop):
    """Ends with something that only its process knew."""

    def __init__(self) -> None:
        super().__init__()
        self.acted = 0

    def reset(self) -> None:
        self.acted = 0

    async def act(self, task: journal.Task, step: Any) -> None:
        self.acted += 1
        await task.set_result("acted", self.acted)


# --- everywhere -------------------------------------------------------------------------------


async def test_an_agent_that_is_right_passes_at_every_point() -> None:
    shop = Shop()
    report = await testing.crash_everywhere(shop, setup=shop.reset)
    # TaskStarted, 2 x (StepStarted, 2 x 2 of calls, a result, StepCompleted), StepStarted, the end.
    assert report.undisturbed.lives[0].written == 1 + 2 * 7 + 2
    assert report.points == 2 * 17
    assert report.undisturbed.value == "sold"
    assert report.counted == shop.model.runs + shop.note.runs + shop.charge.runs
    # In each of 35 runs twice, and once more where the crash lost a result: 2 points a call.
    assert shop.charge.runs == 35 * 2 + 2 * 2 - 2
    assert shop.model.runs == 35 * 3 + 3


async def test_a_once_tool_must_be_settled() -> None:
    with pytest.raises(
        AssertionError, match=r"CallUncertain: call 0 \(charge\) of step 0"
    ) as caught:
        await testing.crash_everywhere(Shop("once"))
    assert "of 34 crashes, these did harm:\n  after append 3 (ToolCallStarted of step 0)" in str(
        caught.value
    )
    assert isinstance(caught.value.__cause__, CallUncertain)
    settling = Settling("once")
    await testing.crash_everywhere(settling, setup=settling.reset)


async def test_a_once_tool_that_runs_twice_is_found() -> None:
    with pytest.raises(AssertionError) as caught:
        await testing.crash_everywhere(Reckless("once"))
    assert (
        "crash before append 4, ToolCallCompleted of step 0: charge(n=0) of step 0 ran 2 times, "
        "in lives 1, 2, though it is declared once"
    ) in str(caught.value)


async def test_a_tool_past_the_journal_is_found() -> None:
    with pytest.raises(AssertionError, match=r"charge\(n=0\) of step 0 ran 2 times, in lives 1, 2"):
        await testing.crash_everywhere(Unrecorded())


async def test_another_end_is_found() -> None:
    forgetful = Forgetful()
    with pytest.raises(AssertionError, match=r"results is \{'acted': 3\}, without a crash \{'ac"):
        await testing.crash_everywhere(forgetful, setup=forgetful.reset)
    await testing.crash_everywhere(
        forgetful, setup=forgetful.reset, outcome=lambda state: state.status
    )


async def test_an_id_that_is_new_in_each_life_is_found() -> None:
    async def agent(j: journal.Journal) -> None:
        async with j.task(journal.new_task_id(), "d") as task:
            await task.complete()

    with pytest.raises(AssertionError, match="are their ids fixed"):
        await testing.crash_everywhere(agent)


async def test_an_agent_that_appends_nothing_proves_nothing() -> None:
    async def agent(j: journal.Journal) -> None:
        pass

    with pytest.raises(AssertionError, match="appended nothing"):
        await testing.crash_everywhere(agent)


# --- single points ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "said", "charges"),
    [
        (testing.crash_at(step=1), "after append 9, StepStarted of step 1", [0, 1]),
        (
            testing.crash_before("ToolCallCompleted"),
            "before append 4, ToolCallCompleted of step 0",
            [0, 0, 1],
        ),
        (
            testing.crash_after("ToolCallStarted", step=1),
            "after append 10, ToolCallStarted of step 1",
            [0, 1],
        ),
        (testing.crash_after("StepStarted", n=3), "after append 16, StepStarted of step 2", [0, 1]),
        (testing.crash_before(), "before append 1, TaskStarted", [0, 1]),
    ],
    ids=str,
)
async def test_where_a_point_is(point: testing.Point, said: str, charges: list[int]) -> None:
    shop = Shop()
    outcome = await testing.run_with_crashes(shop, at=[point])
    assert outcome.crashes == [f"crash {said}"]
    assert shop.charged == charges
    assert outcome.state.status == "completed"
    outcome.assert_not_rerun()


async def test_before_is_not_written_and_after_is(journal_log: testing.Memory) -> None:
    async def types() -> list[str]:
        async with testing.journal(journal_log) as j:
            return [event.type async for _, event in j.events("order")]

    for point, last in (
        (testing.crash_before("ToolCallStarted"), "StepStarted"),
        (testing.crash_after("ToolCallStarted"), "ToolCallStarted"),
    ):
        log = testing.Memory()
        seen: list[str] = []

        async def agent(j: journal.Journal, seen: list[str] = seen) -> None:
            if await j.tasks():
                seen += [event.type async for _, event in j.events("order")]
            await Shop()(j)

        await testing.run_with_crashes(agent, at=[point], log=log)
        assert seen[-1] == last
    assert await testing.run_with_crashes(Shop(), log=journal_log)
    assert (await types())[-1] == "TaskCompleted"


async def test_each_life_has_its_own_point() -> None:
    shop = Shop()
    lost = testing.crash_before("ToolCallCompleted")
    outcome = await testing.run_with_crashes(shop, at=[lost, lost, lost])
    assert len(outcome.crashes) == 3
    assert shop.charged == [0, 0, 0, 0, 1]
    outcome.assert_not_rerun()


async def test_a_point_that_never_comes_is_no_pass() -> None:
    with pytest.raises(AssertionError, match="without a moment after TaskFailed: it had TaskSt"):
        await testing.run_with_crashes(Shop(), at=[testing.crash_after("TaskFailed")])
    with pytest.raises(UsageError, match="no event is called 'ToolCallComplete'"):
        testing.crash_before("ToolCallComplete")
    with pytest.raises(UsageError, match="n=1"):
        testing.crash_before(n=0)


async def test_assert_not_rerun_says_what_ran_again() -> None:
    outcome = await testing.run_with_crashes(
        Unrecorded(), at=[testing.crash_before("ToolCallCompleted", step=1)]
    )
    outcome.assert_not_rerun(step=0)
    with pytest.raises(AssertionError) as caught:
        outcome.assert_not_rerun(step=1)
    assert str(caught.value).splitlines() == [
        "crash before append 8, ToolCallCompleted of step 1",
        "charge(n=1) of step 1 ran 2 times, in lives 1, 2, though it was not interrupted",
    ]
    with pytest.raises(AssertionError, match="no counted tool ran in step 7"):
        outcome.assert_not_rerun(step=7)


async def test_the_same_call_twice_in_a_step_is_no_rerun() -> None:
    ping = testing.counted(journal.tool()(Shop()._charge))

    async def agent(j: journal.Journal) -> None:
        async with j.task("t", "d") as task:
            while task.running:
                async with task.step() as step:
                    await step.call(ping, n=1)
                    await step.call(ping, n=1)
                    await task.complete()

    outcome = await testing.run_with_crashes(
        agent, at=[testing.crash_before("ToolCallStarted", n=2)]
    )
    assert [(run.step, run.arguments) for run in outcome.runs] == [(0, {"n": 1})] * 2
    outcome.assert_not_rerun()
    await testing.crash_everywhere(agent)


# --- a crash is like SIGKILL -------------------------------------------------------------------


async def test_no_except_of_the_agent_survives_a_crash() -> None:
    shop = Shop()
    caught: list[type[BaseException]] = []

    async def late(j: journal.Journal) -> None:
        async with j.task("late", "d"):
            pass

    async def agent(j: journal.Journal) -> None:
        try:
            await shop(j)
        except Exception:
            caught.append(Exception)
        except BaseException as error:
            caught.append(type(error))
            try:
                shop.charge(99)
            except BaseException as error:
                caught.append(type(error))
            await late(j)

    outcome = await testing.run_with_crashes(agent, at=[testing.crash_at(step=0)])
    assert caught == [testing.Crash] * 2
    assert list(outcome.states) == ["order"]
    assert shop.charged == [0, 1]


async def test_what_the_agent_started_dies_with_it() -> None:
    ends: list[str] = []

    async def background(name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append(name)
            raise

    async def server() -> None:
        await asked.wait()
        started.append(asyncio.create_task(background("the test's")))
        await background("the test's")

    asked = asyncio.Event()
    started: list[asyncio.Task[None]] = []
    mine = asyncio.create_task(server())

    async def agent(j: journal.Journal) -> None:
        asked.set()
        started.append(asyncio.create_task(background("the agent's")))
        await asyncio.sleep(0)
        async with j.task("t", "d") as task:
            worker = asyncio.create_task(task.complete())
            await worker

    await testing.run_with_crashes(agent, at=[testing.crash_before("TaskCompleted")])
    assert ends == ["the agent's"] * 2
    assert [task.done() for task in (mine, *started)] == [False, True, False, True]
    assert asyncio.get_running_loop().get_task_factory() is None
    for task in (mine, *started):
        task.cancel()


async def test_crashes_beside_each_other() -> None:
    double = testing.counted(journal.tool()(Shop()._note))

    async def child(task: journal.Task, n: int) -> Any:
        return await task.run(double, n)

    async def agent(j: journal.Journal) -> None:
        async with j.task("t", "d") as task:
            if task.running:
                numbers = await task.gather(*(task.run(double, n) for n in range(3)))
                number = await task.subtask("more", child, 9)
                await task.complete([*numbers, number])

    report = await testing.crash_everywhere(agent)
    assert report.undisturbed.states["t"].status == "completed"


async def test_one_agent_at_a_time_on_a_loop() -> None:
    async def agent(j: journal.Journal) -> None:
        await testing.run_with_crashes(Shop())

    with pytest.raises(UsageError, match="await that before the next"):
        await testing.run_with_crashes(agent)


async def test_an_agent_that_will_not_die_is_an_error() -> None:
    stop: list[bool] = []

    async def agent(j: journal.Journal) -> None:
        while not stop:
            try:
                async with j.task("t", "d"):
                    pass
            except BaseException:
                pass

    with pytest.raises(AssertionError, match="goes on after its death"):
        await testing.run_with_crashes(agent, at=[testing.crash_before()])
    stop.append(True)


async def test_what_the_agent_raises_is_raised() -> None:
    async def agent(j: journal.Journal) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await testing.run_with_crashes(agent)
    with pytest.raises(ZeroDivisionError):
        await testing.crash_everywhere(agent)


# --- counting ---------------------------------------------------------------------------------


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


# --- the log in memory ------------------------------------------------------------------------


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
