"""The kit for people's own crash tests with agents without `await`: what it lets pass, and what it
must not let pass."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import pytest

from journal import Decision, ToolCall, sync, testing, tool
from journal.errors import CallUncertain
from journal.testing import lives

STEPS = 2


class Shop:
    """An agent with a model, a tool, a durable function and a sub-task, all of them counted."""

    def __init__(self, effect: str = "idempotent") -> None:
        self.model = testing.counted(self._model)
        self.charge = testing.counted(tool(effect=effect, name="charge")(self._charge))
        self.pack = testing.counted(tool(name="pack")(self._pack))
        self.charged: list[int] = []
        self.threads: set[int] = set()

    def _model(self, index: int) -> Decision:
        self.threads.add(threading.get_ident())
        if index == STEPS:
            return Decision("sold")
        return Decision(f"sell {index}", [ToolCall("charge", {"n": index})])

    def _charge(self, n: int) -> str:
        self.charged.append(n)
        return f"receipt {n}"

    def _pack(self, n: int) -> int:
        return n * n

    def reset(self) -> None:
        self.charged.clear()

    def child(self, task: sync.Task, n: int) -> Any:
        return task.run(self.pack, n)

    def __call__(self, j: sync.Journal) -> str:
        with j.task("order", "Sell books") as task:
            while task.running:
                with task.step() as step:
                    decision = step.decide(self.model, step.index)
                    if not decision.tool_calls:
                        packed = task.subtask("packing", self.child, 3)
                        task.complete([decision.text, packed])
                        break
                    self.act(task, step)
            return str(task.final_answer)

    def act(self, task: sync.Task, step: sync.Step) -> None:
        step.call(self.charge, n=step.index)


class Settling(Shop):
    """Looks whether a charge has happened of which the log does not know."""

    def act(self, task: sync.Task, step: sync.Step) -> None:
        try:
            super().act(task, step)
        except CallUncertain as unsure:
            if step.index in self.charged:
                step.resolve(unsure.position, result=f"receipt {step.index}")
            else:
                step.resolve(unsure.position, run_again=True)
            super().act(task, step)


class Reckless(Shop):
    """Charges a second time whatever is uncertain."""

    def act(self, task: sync.Task, step: sync.Step) -> None:
        try:
            super().act(task, step)
        except CallUncertain as unsure:
            step.resolve(unsure.position, run_again=True)
            super().act(task, step)


class Unrecorded(Shop):
    """Calls a tool past the journal."""

    def act(self, task: sync.Task, step: sync.Step) -> None:
        self.charge(step.index)
        task.set_result(f"r{step.index}", "charged")


async def test_an_agent_that_is_right_passes_at_every_point() -> None:
    shop = Shop()
    report = await testing.crash_everywhere(testing.synchronous(shop), setup=shop.reset)
    calm = report.undisturbed
    assert calm.value == "['sold', 9]"
    assert calm.states["order:packing"].status == "completed"
    assert report.points == 2 * calm.lives[0].written > 20
    # Each life has a thread of its own, and its functions run there.
    assert threading.get_ident() not in shop.threads


async def test_a_once_tool_must_be_settled() -> None:
    settling = Settling("once")
    await testing.crash_everywhere(testing.synchronous(settling), setup=settling.reset)
    with pytest.raises(AssertionError, match="CallUncertain"):
        await testing.crash_everywhere(testing.synchronous(Shop("once")))


@pytest.mark.parametrize(
    ("shop", "why"),
    [
        (Reckless("once"), "charge.*ran 2 times, in lives 1, 2, though it is declared once"),
        (Unrecorded(), "charge.*ran 2 times, in lives 1, 2, though it was not interrupted"),
    ],
)
async def test_one_that_is_wrong_is_found(shop: Shop, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        await testing.crash_everywhere(testing.synchronous(shop), setup=shop.reset)


@pytest.mark.parametrize(
    ("point", "crash", "charges"),
    [
        (testing.crash_at(step=1), "after append 6, StepStarted of step 1", 1),
        (
            testing.crash_before("ToolCallCompleted", step=1),
            "before append 8, ToolCallCompleted of step 1",
            2,
        ),
        (
            testing.crash_after("ToolCallCompleted", step=1),
            "after append 8, ToolCallCompleted of step 1",
            1,
        ),
    ],
)
async def test_it_dies_where_it_is_told_to(point: testing.Point, crash: str, charges: int) -> None:
    shop = Shop()
    outcome = await testing.run_with_crashes(testing.synchronous(shop), at=[point])
    assert outcome.crashes == [f"crash {crash}"]
    assert outcome.states["order"].status == "completed"
    assert shop.charged.count(1) == charges
    outcome.assert_not_rerun(step=0)
    outcome.assert_not_rerun()


async def test_no_except_of_the_agent_survives_a_crash() -> None:
    seen: list[str] = []
    ends: list[str] = []

    def agent(j: sync.Journal) -> None:
        try:
            with j.task("t", "d") as task:
                if task.running:
                    task.set_result("x", 1)
                    task.complete()
        except Exception as error:
            seen.append(type(error).__name__)
        finally:
            ends.append("finally")

    for point in (testing.crash_before("ResultRecorded"), testing.crash_after("TaskCompleted")):
        outcome = await testing.run_with_crashes(testing.synchronous(agent), at=[point])
        assert outcome.state.status == "completed"
    assert seen == []
    assert ends == ["finally"] * 4


async def test_threads_of_the_agent_die_with_it() -> None:
    """One that waits for a message, and its crash comes from another thread."""
    ends: list[str] = []

    def agent(j: sync.Journal) -> None:
        with j.task("t", "d") as task:
            if not task.running:
                return

            def listen() -> None:
                try:
                    task.next_message()
                except Exception as error:
                    ends.append(type(error).__name__)
                except BaseException as crash:
                    ends.append(type(crash).__name__)

            listening = threading.Thread(target=contextvars.copy_context().run, args=(listen,))
            listening.start()
            try:
                task.set_result("x", 1)
                task.receive("hello")
            finally:
                listening.join()
            task.complete()

    crash = testing.crash_after("ResultRecorded")
    outcome = await testing.run_with_crashes(testing.synchronous(agent), at=[crash])
    assert outcome.state.status == "completed"
    assert ends == ["CancelledError"]


async def test_an_agent_that_will_not_die_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "_ROUNDS", 3)
    stop = threading.Event()

    def agent(j: sync.Journal) -> None:
        try:
            with j.task("t", "d") as task:
                task.complete()
        finally:
            stop.wait()

    with pytest.raises(AssertionError, match="goes on after its death: plain code"):
        await testing.run_with_crashes(testing.synchronous(agent), at=[testing.crash_after()])
    stop.set()


async def test_what_the_agent_raises_is_raised() -> None:
    def agent(j: sync.Journal) -> None:
        raise LookupError("no such order")

    with pytest.raises(LookupError, match="no such order"):
        await testing.run_with_crashes(testing.synchronous(agent))


def test_a_log_in_memory_is_open_to_plain_code(journal_log: testing.Memory) -> None:
    for _ in range(2):
        with sync.connect(journal_log) as j, j.task("t", "d") as task:
            task.receive("hello", id="m-1")
    with sync.connect(journal_log) as j:
        assert list(j.state("t").messages_received) == ["m-1"]
