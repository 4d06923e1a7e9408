"""After an append whose outcome nobody knows: the next call settles it, by renewing the claim.

A log that lies about its outcomes stands between the agent and the real one.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

import journal
from journal.blobs import DirectoryBlobs
from journal.errors import OutcomeUnknown, TaskEnded, TaskFenced
from journal.log import Append, Log
from tests.wrapped_log import WrappedLog


class Lost(Append):
    """An append whose outcome does not come back."""

    __slots__ = ("inner",)
    inner: Append

    def written(self, offset: int) -> None:
        self.inner.failed(OutcomeUnknown("the answer was lost"))

    failed = written  # type: ignore[assignment]


class Liar(WrappedLog):
    """A log that, when told, loses an append (`swallow`) or only the answer to it (`mute`)."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.swallow = self.mute = 0
        self.sent = asyncio.Event()

    def append(self, partition: int, append: Append) -> None:
        self.sent.set()
        if self.swallow:
            self.swallow -= 1
            error = OutcomeUnknown("the append was lost")
            asyncio.get_running_loop().call_soon(append.failed, error)
        elif self.mute:
            self.mute -= 1
            lost = Lost(append.key, append.value, append.timestamp_ms, expect=append.expect)
            lost.inner = append
            self._log.append(partition, lost)
        else:
            self._log.append(partition, append)


def lying(j: journal.Journal) -> Liar:
    j.log = liar = Liar(j.log)
    return liar


def connect(url: str, tmp_path: Path) -> journal.Journal:
    return journal.connect(url, create=True, blobs=DirectoryBlobs(tmp_path / "blobs"))


async def test_an_append_that_was_lost_is_made_again(url: str, tmp_path: Path) -> None:
    async with connect(url, tmp_path) as j:
        liar = lying(j)
        async with j.task("t", "d") as task:
            await task.record_step(0, "zero")
            liar.swallow = 1
            with pytest.raises(OutcomeUnknown):
                await task.record_step(1, "one")
            await task.record_step(1, "one")
            assert (task.state.current_step, task.state.head.epoch) == (2, 1)
        state = await j.state("t")
    assert (state.current_step, state.head.seq, state.head.epoch) == (2, 2, 1)


async def test_an_append_whose_answer_was_lost_counts(tmp_path: Path) -> None:
    async with connect(str(tmp_path / "journal.db"), tmp_path) as j:
        liar = lying(j)
        async with j.task("t", "d") as task:
            liar.mute = 1
            with pytest.raises(OutcomeUnknown):
                await task.record_step(0, "zero")
            await task.set_result("after", 1)
            assert task.completed(0) is not None
            await task.record_step(0, "zero")
            labels = [event.type async for _, event in j.events("t")]
    assert labels == ["TaskStarted", "StepCompleted", "TaskClaimed", "ResultRecorded"]


async def test_a_step_that_was_completed_all_the_same_is_not_offered_again(tmp_path: Path) -> None:
    async with connect(str(tmp_path / "journal.db"), tmp_path) as j:
        liar = lying(j)
        async with j.task("t", "d") as task:
            step = task.step()
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(step)
                await step.decide(journal.Decision, text="zero")
                liar.mute = 1
                with pytest.raises(OutcomeUnknown):
                    await stack.aclose()
            async with task.step() as step:
                assert step.index == 1
                await step.decide(journal.Decision, text="one")
            labels = [event.type async for _, event in j.events("t")]
    step_events = ["StepStarted", "StepCompleted"]
    assert labels == ["TaskStarted", *step_events, "TaskClaimed", *step_events]


async def test_all_that_wait_behind_it_go_on_under_the_new_claim(url: str, tmp_path: Path) -> None:
    async with connect(url, tmp_path) as j:
        liar = lying(j)
        async with j.task("t", "d") as task:
            liar.swallow = 1
            with pytest.raises(OutcomeUnknown):
                await task.record_step(0, "zero")
            # The first of these renews; the others come when its claim is on its way.
            liar.sent.clear()
            first = asyncio.ensure_future(task.record_step(0, "zero"))
            await liar.sent.wait()
            await asyncio.gather(first, *(task.record_step(i, f"{i}") for i in range(1, 5)))
            assert task.state.current_step == 5


async def test_a_renewal_never_takes_a_task_back(url: str, tmp_path: Path) -> None:
    async with connect(url, tmp_path) as old, connect(url, tmp_path) as new:
        liar = lying(old)
        async with old.task("t", "d") as task:
            liar.swallow = 1
            with pytest.raises(OutcomeUnknown):
                await task.record_step(0, "mine")
            async with new.task("t") as theirs:
                await theirs.record_step(0, "theirs")
                with pytest.raises(TaskFenced):
                    await task.record_step(0, "mine")
                await theirs.record_step(1, "still theirs")


async def test_what_was_recorded_all_the_same_does_not_run_again(tmp_path: Path) -> None:
    """Found by the simulation, seeds 141 and others: it was looked at before it was settled."""
    ran: list[str] = []

    def model() -> journal.Decision:
        ran.append("model")
        liar.mute = 1
        return journal.Decision(tool_calls=[journal.ToolCall("pay", {})])

    @journal.tool(effect="once")
    def pay() -> str:
        ran.append("pay")
        liar.mute = 1
        return "paid"

    def value() -> int:
        ran.append("value")
        liar.mute = 1
        return 1

    async with connect(str(tmp_path / "journal.db"), tmp_path) as j:
        liar = lying(j)
        async with j.task("t", "d") as task, task.step() as step:
            for call in (
                lambda: step.decide(model),
                lambda: step.options(call=0).call(pay),
                lambda: task.run(value),
            ):
                with pytest.raises(OutcomeUnknown):
                    await call()
                await call()
            assert await step.options(call=0).call(pay) == "paid"
    assert ran == ["model", "pay", "value"]


async def test_an_end_whose_answer_was_lost_is_the_end(tmp_path: Path) -> None:
    async with connect(str(tmp_path / "journal.db"), tmp_path) as j:
        liar = lying(j)
        async with j.task("t", "d") as task:
            liar.mute = 1
            with pytest.raises(OutcomeUnknown):
                await task.complete({"total": 3})
            await task.complete({"total": 3})
            with pytest.raises(TaskEnded):
                await task.complete({"total": 4})
        async with j.task("t", "d") as task:
            await task.complete({"total": 3})
        assert (await j.state("t")).status == "completed"
