"""The API without `await`: the same runs, functions on the caller's thread, threads, a fork."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from journal import sync, sync_loop
from journal.errors import SubtaskFailed, TaskFenced, ToolError
from journal.events import Decision, ToolCall
from journal.sync_loop import entered
from journal.tools import tool


@pytest.fixture(autouse=True)
def blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the log, whichever it is."""
    monkeypatch.setenv("JOURNAL_BLOBS", str(tmp_path / "blobs"))


class Crash(BaseException):
    """What stands for the end of a process."""


def agent(j: sync.Journal, made: list[Any], dies_at: int | None = None) -> Any:
    """Two steps with a tool each, then an answer."""

    def model(messages: list[dict[str, Any]]) -> Decision:
        made.append(("model", threading.get_ident()))
        asked = sum(m["role"] == "assistant" for m in messages)
        if asked == 2:
            return Decision("done")
        return Decision("more", [ToolCall("double", {"n": asked})])

    @tool(effect="idempotent", retries=1, backoff=0.0)
    def double(n: int) -> int:
        made.append((n, threading.get_ident()))
        if n == dies_at:
            raise Crash
        return 2 * n

    with j.task("t", "d") as task:
        while task.running:
            with task.step() as step:
                reply = step.decide(model, task.messages())
                for call in reply.tool_calls:
                    step.call(double, **call.arguments)
                if not reply.tool_calls:
                    task.complete(reply.text)
        return task.final_answer


def test_a_run_that_crashes_goes_on_and_its_functions_run_here(url: str) -> None:
    made: list[Any] = []
    with pytest.raises(Crash), sync.connect(url, create=True) as j:
        agent(j, made, dies_at=1)
    for _ in range(2):
        with sync.connect(url) as j:
            assert agent(j, made) == "done"
    assert [what for what, _ in made] == ["model", 0, "model", 1, 1, "model"]
    assert {thread for _, thread in made} == {threading.get_ident()}


def test_durable_calls_nest_and_a_step_is_a_scope(url: str) -> None:
    made: list[str] = []

    def page(task: sync.Task, name: str) -> str:
        made.append(name)
        return name + task.run(inner, name)

    def inner(name: str) -> str:
        made.append(name + "/inner")
        return "!"

    for _ in range(2):
        with sync.connect(url, create=True) as j, j.task("t", "d") as task:

            def outer(name: str, task: sync.Task = task) -> str:
                return page(task, name)

            assert task.run(outer, "a") == "a!"
            with task.step() as step:
                step.decide(lambda: Decision("go on"))
                assert task.run(inner, "s") == "!"
    # The second step asks anew, the code before it does not.
    assert made == ["a", "a/inner", "s/inner", "s/inner"]


def test_errors_reach_the_caller(url: str) -> None:
    def breaks() -> None:
        raise OSError("no such city")

    def child(task: sync.Task, n: int) -> int:
        return n * int(task.run(len, "abc"))

    def fails(task: sync.Task) -> None:
        raise OSError("no such child")

    with sync.connect(url, create=True) as j, j.task("t", "d") as task:
        assert task.subtask("c", child, 2) == 6
        with pytest.raises(SubtaskFailed, match="no such child"):
            task.subtask("f", fails)
        with pytest.raises(OSError, match="no such city"):
            task.run(breaks)
        with pytest.raises(ToolError, match="no such city"), task.step() as step:
            step.call(breaks)
        with j.task("t") as other:
            other.receive("hello")
            assert other.next_message().role == "user"
        with pytest.raises(TaskFenced):
            task.set_result("r", 1)
        assert [s.task_id for s in j.tasks(status="failed")] == ["t:f"]


def test_many_threads_share_one_journal(url: str) -> None:
    results: dict[int, Any] = {}

    def work(j: sync.Journal, n: int) -> None:
        with j.task(f"t{n}", "d") as task:
            for index in range(5):
                task.record_step(index, f"step {index}")
            task.complete(task.run(threading.get_ident))
            results[n] = task.final_answer == threading.get_ident()

    with sync.connect(url, create=True) as j:
        threads = [threading.Thread(target=work, args=(j, n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == dict.fromkeys(range(8), True)
        assert len(j.tasks(status="completed")) == 8


def test_a_forked_child_has_a_loop_of_its_own(url: str) -> None:
    with sync.connect(url, create=True) as j, j.task("t", "d") as task:
        task.record_step(0, "before")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with sync.connect(url) as j, j.task("t") as task:
                task.record_step(1, "in the child")
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with sync.connect(url) as j:
        assert [s.index for s in j.state("t").completed_steps] == [0, 1]


def test_a_function_that_takes_too_long_has_failed_when_it_ends(url: str) -> None:
    """Plain code cannot be stopped; what it returns too late is nobody's."""

    @tool(timeout=0.001)
    def slow() -> str:
        loop, later = sync_loop.running(), threading.Event()
        # A timer of the same loop that was set later, and for later, than the time-out.
        loop.call_soon_threadsafe(loop.call_later, 0.01, later.set)
        later.wait()
        return "late"

    with sync.connect(url, create=True) as j, j.task("t", "d") as task:
        with task.step() as step:
            step.decide(lambda: Decision("wait", [ToolCall("slow")]))
            with pytest.raises(ToolError) as raised:
                step.call(slow)
        assert raised.value.error_type == "TimeoutError"
        assert task.state.steps[0].all_calls()[0].status == "failed"


def test_an_interrupt_while_a_task_is_opened_opens_nothing() -> None:
    given_up = threading.Event()

    class Opening:
        async def __aenter__(self) -> None:
            main = threading.main_thread().ident
            # Nothing tells where the main thread stands, but its frame.
            while sys._current_frames()[main or 0].f_code.co_name != "wait":  # noqa: ASYNC110
                await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                given_up.set()
                raise

        async def __aexit__(self, *_: object) -> None: ...

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), entered(Opening()):
            pytest.fail("it was entered")
    finally:
        signal.signal(signal.SIGINT, before)
    assert given_up.wait(60)


def test_looking_and_settling_from_outside(url: str) -> None:
    @tool(effect="once")
    def pay() -> None:
        raise Crash

    def dies(j: sync.Journal) -> None:
        with j.task("t", "d") as task:
            assert (task.resumed, task.last_message) == (None, None)
            task.receive("hello", id="m1")
            assert task.last_message == "m1"
            with task.step() as step:
                step.decide(lambda: Decision("x", [ToolCall("pay")]))
                step.call(pay)

    with sync.connect(url, create=True) as j, pytest.raises(Crash):
        dies(j)
    with sync.connect(url) as j:
        types = [event.type for _, event in j.events("t")]
        assert types == ["TaskStarted", "MessageReceived", "StepStarted", "ToolCallStarted"]
        j.resolve("t", 0, 0, result="paid")
        with j.task("t") as task:
            task.look()
            assert task.resumed is not None
            with task.step() as step:
                assert step.call(pay) == "paid"
