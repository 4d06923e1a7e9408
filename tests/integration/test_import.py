"""`journal import`: files of other programs become tasks, once, and grow with their files.

Runs the command's own code on a log in a folder of the test. The sample runs stand outside the
repository; JOURNAL_TEST_RUNS names their folder.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from journal import events as ev
from journal.cli.import_ import import_files
from journal.cli.main import parser
from journal.client import connect
from journal.errors import CallUncertain
from journal.events import Decision
from journal.tools import tool
from journal.values import decode_value
from tests.desk import Desk

FOLDER = os.environ.get("JOURNAL_TEST_RUNS")
FORMATS = ("claude_code_jsonl", "atif", "openai_messages_tau_bench", "swe_agent_traj")

CHECKPOINT: dict[str, Any] = {
    "task_id": "research-42",
    "task_description": "Compare three databases",
    "status": "running",
    "current_step": 1,
    "checkpoint_version": "2.0",
    "completed_steps": [
        {
            "step_index": 0,
            "thought": "Look first",
            "tool_name": "search",
            "tool_args": {"q": "databases"},
            "observation": "three found",
            "tokens_used": 70,
            "completed_at": "2026-01-01T00:00:01Z",
        }
    ],
    "accumulated_results": {"found": 3},
    "total_tokens": 70,
}
SECOND_STEP = {"step_index": 1, "thought": "Enough", "tokens_used": 5}

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "You add."},
    {"role": "user", "content": "Add one"},
    {"role": "assistant", "content": "Adding", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
    {"role": "assistant", "content": "It is 2"},
]


def said(number: int, text: str) -> dict[str, Any]:
    return _line(number, "user", {"role": "user", "content": text})


def replied(number: int, id: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 2}
    message = {"id": id, "role": "assistant", "content": list(blocks), "usage": usage}
    return _line(number, "assistant", message)


def returned(number: int, call: str, content: str, error: bool = False) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": error}
    return _line(number, "user", {"role": "user", "content": [block]})


def use(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def _line(number: int, type: str, message: dict[str, Any]) -> dict[str, Any]:
    at = f"2026-01-01T00:00:{number:02d}.000Z"
    return {
        "type": type,
        "uuid": f"u{number}",
        "sessionId": "s1",
        "timestamp": at,
        "message": message,
    }


SESSION = [
    said(1, "Fix the test"),
    replied(2, "m1", use("t1", "read", path="a.py")),
    returned(3, "t1", "x = 1"),
    replied(4, "m2", {"type": "text", "text": "Running"}, use("t2", "run", command="pytest")),
]
SESSION_ID = "claude-code:s1"


@pytest.fixture(params=["sqlite", pytest.param("kafka", marks=pytest.mark.kafka)])
def desk(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Desk:
    url = str(tmp_path / "journal.db")
    if request.param == "kafka":
        url = request.getfixturevalue("kafka_url")
    monkeypatch.setenv("JOURNAL_BLOBS", str(tmp_path / "blobs"))
    return Desk(url, tmp_path, capsys)


async def test_a_checkpoint_its_steps_in_version_1_and_what_came_later(desk: Desk) -> None:
    path = desk.put("c.json", CHECKPOINT)
    assert await desk.run(path) == (0, [f"{path}: 1 task, 3 new events"], [])
    task_id = "checkpoint:research-42"
    expected = ["TaskStarted 1", "StepCompleted 1", "ResultRecorded 1"]
    assert await desk.events(task_id) == expected
    state = await desk.state(task_id)
    assert (state.status, state.current_step, state.total_tokens) == ("running", 1, 70)
    assert (state.description, state.imported_from) == ("Compare three databases", "checkpoint")
    (call,) = state.steps[0].all_calls()
    assert (call.tool_name, decode_value(call.result)) == ("search", "three found")
    assert state.steps[0].completed_at == "2026-01-01T00:00:01Z"

    assert await desk.run(path) == (0, [f"{path}: 1 task, 0 new events"], [])

    steps = [*CHECKPOINT["completed_steps"], SECOND_STEP]
    grown = CHECKPOINT | {
        "completed_steps": steps,
        "accumulated_results": {"found": 4},
        "total_tokens": 75,
        "status": "completed",
        "final_answer": "Take the second",
    }
    desk.put("c.json", grown)
    assert await desk.run(path) == (0, [f"{path}: 1 task, 4 new events"], [])
    added = ["TaskClaimed 1", "StepCompleted 1", "ResultRecorded 1", "TaskCompleted 1"]
    assert await desk.events(task_id) == expected + added
    state = await desk.state(task_id)
    assert (state.status, decode_value(state.final_answer)) == ("completed", "Take the second")
    assert decode_value(state.results["found"]) == 4
    assert state.imported_from == "checkpoint"
    assert await desk.run(path) == (0, [f"{path}: 1 task, 0 new events"], [])


async def test_an_ended_task_gets_nothing_more_and_that_is_said(desk: Desk) -> None:
    path = desk.put("c.json", CHECKPOINT | {"status": "failed", "error": "no network"})
    await desk.run(path)
    state = await desk.state("checkpoint:research-42")
    assert (state.status, state.error_type, state.error) == ("failed", "failed", "no network")
    steps = [*CHECKPOINT["completed_steps"], SECOND_STEP]
    desk.put("c.json", CHECKPOINT | {"completed_steps": steps, "total_tokens": 75})
    status, out, err = await desk.run(path)
    assert (status, out) == (0, [f"{path}: 1 task, 0 new events"])
    assert err == ["checkpoint:research-42: has ended (failed); 1 new left out"]


async def test_a_conversation_without_an_id_goes_on_under_its_first_one(desk: Desk) -> None:
    path = desk.put("chat.json", CHAT[:3])
    assert await desk.run(path) == (0, [f"{path}: 1 task, 5 new events"], [])
    (state,) = await desk.tasks()
    first = state.task_id
    assert [call.status for call in state.steps[0].all_calls()] == ["started"]
    assert state.steps[0].last_message == list(state.messages_received)[-1]
    assert await desk.run(path) == (0, [f"{path}: 1 task, 0 new events"], [])

    desk.put("chat.json", CHAT)
    assert await desk.run(path) == (0, [f"{path}: 1 task, 5 new events"], [])
    (state,) = await desk.tasks()
    assert (state.task_id, state.current_step) == (first, 2)
    assert [call.status for call in state.steps[0].all_calls()] == ["completed"]
    assert await desk.run(path) == (0, [f"{path}: 1 task, 0 new events"], [])


async def test_two_conversations_with_one_beginning_are_two_tasks(desk: Desk) -> None:
    short = desk.put("short.json", CHAT[:2])
    other = desk.put("other.json", [*CHAT[:2], {"role": "assistant", "content": "No"}])
    whole = desk.put("whole.json", CHAT)
    await desk.run(short)
    await desk.run(other)
    assert len(await desk.tasks()) == 1
    status, _, err = await desk.run(whole)
    assert (status, err) == (0, [])
    texts = {s.steps[0].decision().text for s in await desk.tasks()}  # type: ignore[union-attr]
    assert texts == {"No", "Adding"}


async def test_a_session_that_grows(desk: Desk) -> None:
    path = desk.put("s.jsonl", *SESSION)
    assert await desk.run(path) == (0, [f"{path}: 1 task, 7 new events"], [])
    first = [
        "TaskStarted 1",
        "MessageReceived 1",
        "StepStarted 1",
        "ToolCallCompleted 1",
        "StepCompleted 2",
        "StepStarted 1",
        "ToolCallStarted 1",
    ]
    assert await desk.events(SESSION_ID) == first
    state = await desk.state(SESSION_ID)
    assert state.started_at == "2026-01-01T00:00:01.000Z"
    assert (state.current_step, state.total_tokens) == (1, 24)
    assert await desk.run(path) == (0, [f"{path}: 1 task, 0 new events"], [])

    desk.put("s.jsonl", *SESSION, returned(5, "t2", "1 failed", error=True), said(6, "Again"))
    assert await desk.run(path) == (0, [f"{path}: 1 task, 4 new events"], [])
    added = ["TaskClaimed 1", "ToolCallFailed 1", "StepCompleted 2", "MessageReceived 1"]
    assert sorted((await desk.events(SESSION_ID))[len(first) :]) == sorted(added)
    state = await desk.state(SESSION_ID)
    (call,) = state.steps[1].all_calls()
    assert (call.status, call.error_type, call.error) == ("failed", "tool_error", "1 failed")
    assert state.imported_from == "claude-code"
    assert await desk.run(path) == (0, [f"{path}: 1 task, 0 new events"], [])


async def test_calls_that_a_decision_gets_later_are_added(desk: Desk) -> None:
    path = desk.put("s.jsonl", *SESSION[:2], returned(3, "t1", "x = 1"))
    await desk.run(path)
    assert (await desk.state(SESSION_ID)).steps[0].status == "open"
    more = [replied(4, "m1", use("t9", "read", path="b.py")), returned(5, "t9", "y = 2")]
    desk.put("s.jsonl", *SESSION[:2], returned(3, "t1", "x = 1"), *more, said(6, "Good"))
    status, out, err = await desk.run(path)
    assert (status, out, err) == (0, [f"{path}: 1 task, 5 new events"], [])
    step = (await desk.state(SESSION_ID)).steps[0]
    assert step.status == "completed"
    calls = step.all_calls()
    assert [decode_value(call.result) for call in calls] == ["x = 1", "y = 2"]
    assert decode_value(calls[1].arguments) == {"path": "b.py"}
    assert await desk.run(path) == (0, [f"{path}: 1 task, 0 new events"], [])


async def test_a_text_that_a_decision_gets_later_is_missed_aloud(desk: Desk) -> None:
    path = desk.put("s.jsonl", *SESSION[:2])
    await desk.run(path)
    text = {"type": "text", "text": "And so"}
    desk.put("s.jsonl", *SESSION[:2], replied(3, "m1", text), returned(4, "t1", "x = 1"))
    status, _, err = await desk.run(path, "--strict")
    assert status == 0
    assert err == [f"{SESSION_ID}: step 0 was imported unfinished; its text stays"]


async def test_an_agent_goes_on_where_the_run_stopped_and_keeps_it(desk: Desk) -> None:
    path = desk.put("s.jsonl", *SESSION)
    await desk.run(path)
    ran: list[str] = []

    async def run(command: str) -> str:
        ran.append(command)
        return "1 passed"

    def model(*_: Any) -> Decision:
        raise AssertionError("the decision is recorded")

    async with connect(desk.url) as journal, journal.task(SESSION_ID) as task:
        assert task.resumed is not None
        assert (task.resumed.step_index, task.resumed.steps_reused) == (1, 1)
        async with task.step() as step:
            decision = await step.decide(model)
            assert decision.text == "Running"
            assert await step.call(run, **decision.tool_calls[0].arguments) == "1 passed"
    assert ran == ["pytest"]
    before = await desk.events(SESSION_ID)

    desk.put("s.jsonl", *SESSION, returned(5, "t2", "1 failed"), said(6, "Again"))
    status, out, err = await desk.run(path, "--strict")
    assert (status, out) == (0, [f"{path}: 1 task, 0 new events"])
    assert err == [f"{SESSION_ID}: an agent has claimed it; left alone"]
    assert await desk.events(SESSION_ID) == before


async def test_an_open_call_of_a_once_tool_is_uncertain_whoever_began_it(desk: Desk) -> None:
    await desk.run(desk.put("s.jsonl", *SESSION))
    ran: list[str] = []

    @tool(effect="once")
    async def run(command: str) -> str:
        ran.append(command)
        return "1 passed"

    async def calls() -> Any:
        async with (
            connect(desk.url) as journal,
            journal.task(SESSION_ID) as task,
            task.step() as step,
        ):
            decision = step.decision()
            assert decision is not None
            return await step.call(run, **decision.tool_calls[0].arguments)

    for _ in range(2):
        with pytest.raises(CallUncertain, match=f"journal resolve {SESSION_ID} 1:0"):
            await calls()
    async with connect(desk.url) as journal:
        await journal.resolve(SESSION_ID, 1, 0, result="1 passed")
    assert await calls() == "1 passed"
    assert ran == []


async def test_a_task_that_was_reopened_since_is_left_alone(desk: Desk) -> None:
    step = {"step_index": 0, "thought": "tried"}
    path = desk.put("c.json", {"task_id": "r", "status": "failed", "completed_steps": [step]})
    await desk.run(path)
    async with connect(desk.url) as journal:
        await journal.retry("checkpoint:r")
    before = await desk.events("checkpoint:r")
    for _ in range(2):
        status, out, err = await desk.run(path, "--strict")
        assert (status, out) == (0, [f"{path}: 1 task, 0 new events"])
        assert err == ["checkpoint:r: it was reopened since; left alone"]
    assert await desk.events("checkpoint:r") == before
    assert (await desk.state("checkpoint:r")).status == "running"


@pytest.mark.parametrize(("more", "reason"), [({}, None), ({"error": "not needed"}, "not needed")])
async def test_a_checkpoint_that_was_cancelled_is_a_cancelled_task(
    desk: Desk, more: dict[str, str], reason: str | None
) -> None:
    step = {"step_index": 0, "thought": "tried"}
    found = {"task_id": "r", "status": "cancelled", "completed_steps": [step], **more}
    path = desk.put("c.json", found)
    for _ in range(2):
        await desk.run(path, "--strict")
        state = await desk.state("checkpoint:r")
        assert (state.status, state.error, state.current_step) == ("cancelled", reason, 1)


async def test_an_import_that_was_cut_off_goes_on(desk: Desk) -> None:
    whole = desk.put("s.jsonl", *SESSION)
    async with connect(desk.url, create=True) as journal, journal.owned(SESSION_ID) as owner:
        start = ev.TaskStarted("Fix the test", imported_from="claude-code")
        await owner.claim("TaskStarted", start, 0)
    assert await desk.run(whole) == (0, [f"{whole}: 1 task, 7 new events"], [])
    state = await desk.state(SESSION_ID)
    assert (state.head.epoch, state.current_step, len(state.messages_received)) == (1, 1, 1)


async def test_two_imports_at_once_come_to_what_one_does(desk: Desk) -> None:
    path = desk.put("s.jsonl", *SESSION)
    arguments = parser().parse_args(["import", "--log", desk.url, path])
    assert await asyncio.gather(*(import_files(arguments, None) for _ in range(2))) == [0, 0]
    state = await desk.state(SESSION_ID)
    assert (state.current_step, len(state.steps), len(state.messages_received)) == (1, 2, 1)
    assert [call.status for call in state.steps[1].all_calls()] == ["started"]
    # Whoever lost the task had nothing more to write, or said so; what was written is whole.
    status, out, _ = await desk.run(path)
    assert (status, out[-1]) == (0, f"{path}: 1 task, 0 new events")


async def test_what_is_wrong_is_told_by_line_and_strict_makes_it_count(desk: Desk) -> None:
    path = desk.put("s.jsonl", SESSION[0], 7, *SESSION[1:])
    status, out, err = await desk.run(path)
    assert (status, out) == (0, [f"{path}: 1 task, 7 new events"])
    assert len(err) == 1
    assert err[0].startswith(f"{path}:2: ")
    assert (await desk.run(path, "--strict"))[0] == 1


async def test_a_file_with_nothing_in_it_fails_the_others_are_imported(desk: Desk) -> None:
    empty, good = desk.put("e.json", {"no": "run"}), desk.put("c.json", CHECKPOINT)
    status, out, err = await desk.run(empty, good, str(desk.folder / "none.json"))
    assert status == 1
    assert out[:2] == [f"{empty}: 0 tasks, 0 new events", f"{good}: 1 task, 3 new events"]
    assert "unknown format" in err[0]
    assert "No such file" in err[1]


def test_no_file_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parser().parse_args(["import"])
    assert stopped.value.code == 2
    assert "FILE" in capsys.readouterr().err


SECRET = "sk-" + "verysecretverysecret"


def with_secrets(value: Any) -> Any:
    """The same, with a secret in every text that is not a name, an id or a time."""
    if isinstance(value, dict):
        kept = ("task_id", "role", "id", "type", "name", "status", "uuid", "sessionId", "timestamp")
        kept = (*kept, "tool_name", "tool_call_id", "tool_use_id", "completed_at")
        kept = (*kept, "checkpoint_version", "arguments")
        return {k: v if k in kept else with_secrets(v) for k, v in value.items()}
    if isinstance(value, list):
        return [with_secrets(inner) for inner in value]
    return f"{value} {SECRET}" if isinstance(value, str) else value


async def test_no_secret_of_a_file_is_written_or_printed(desk: Desk) -> None:
    """Of a failed task too, and of one that grows; a second import finds all of it there."""
    failed = {**CHECKPOINT, "task_id": "f", "status": "failed", "error": "no access"}
    # JSON has no such number, which is told with the path to it, key by key.
    failed["accumulated_results"] = {"x": {SECRET: float("nan")}}
    overloaded = replied(3, "m0", {"type": "text", "text": "Overloaded"})
    session = [
        *SESSION[:2],
        returned(3, "t1", "no file", error=True),
        {**overloaded, "uuid": "u0", "isApiErrorMessage": True},
        SESSION[3],
    ]
    paths = [
        desk.put("c.json", with_secrets(CHECKPOINT)),
        desk.put("f.json", with_secrets(failed)),
        desk.put("chat.jsonl", with_secrets({"messages": CHAT})),
        desk.put("s.jsonl", *with_secrets(session)),
        desk.put("bad.jsonl", SECRET),
    ]
    status, out, err = await desk.run(*paths, "--redact", "patterns")
    assert (status, len(out)) == (1, 5)
    assert "$.accumulated_results.x.[redacted]: JSON cannot carry" in "".join(err)
    grown = [*session, returned(5, "t2", "passed"), said(6, "Thanks")]
    paths[3] = desk.put("s.jsonl", *with_secrets(grown))
    _, again, more = await desk.run(*paths, "--redact", "patterns")
    assert [line.split(": ")[1] for line in again] == [
        *["1 task, 0 new events"] * 3,
        "1 task, 4 new events",
        "0 tasks, 0 new events",
    ]
    assert SECRET not in "".join([*out, *err, *again, *more])
    assert [line for line in more if "was imported unfinished" in line] == []
    async with connect(desk.url) as journal:
        written = b"".join(
            [
                record.value or b""
                for partition, start in (await journal.log.starts()).items()
                async for batch in journal.log.read(partition, start)
                for record in batch
            ]
        )
    assert SECRET.encode() not in written
    assert written.count(b"[redacted]") > 10


@pytest.mark.skipif(FOLDER is None, reason="JOURNAL_TEST_RUNS does not name sample runs")
async def test_59_sample_files_are_155_tasks_and_again_nothing(desk: Desk) -> None:
    folder = Path(FOLDER or "")
    manifest = json.loads((folder / "manifest.json").read_text())
    files = [str(folder / said["file"]) for said in manifest if said["format"] in FORMATS]
    status, out, err = await desk.run(*files)
    assert (status, len(out)) == (0, 59)
    assert len(err) == 6  # of the one file that is broken on purpose
    tasks = await desk.tasks()
    assert len(tasks) == 155
    steps = sum(len(state.steps) for state in tasks)
    assert steps > 1000
    status, out, _ = await desk.run(*files)
    assert status == 0
    assert [line for line in out if not line.endswith(", 0 new events")] == []
