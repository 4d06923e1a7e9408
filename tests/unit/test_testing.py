"""The kit for people's own crash tests: what it lets pass, and what it must not let pass."""

from __future__ import annotations

from typing import Any

import pytest

import journal
from journal import testing
from journal.errors import CallUncertain, UsageError
from tests.shop import Shop


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
