"""Claude Code's session files: how lines become decisions, results and messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from journal.importers.files import read_file
from journal.importers.model import (
    Decision,
    Failure,
    ImportedRun,
    Message,
    Problem,
    Result,
    StepDone,
)

SESSION = "5f1c2a90-0000-4000-8000-00000000abcd"


class Session:
    """Writes the lines of a session."""

    def __init__(self, session: str = SESSION, **common: Any) -> None:
        self.common = {"sessionId": session, "isSidechain": False, **common}
        self.lines: list[str] = []

    def line(self, type: str, message: dict[str, Any] | None = None, **more: Any) -> Session:
        number = len(self.lines)
        entry = {
            **self.common,
            "type": type,
            "uuid": f"{self.common.get('agentId', 'u')}-{number}",
            "parentUuid": None,
            "timestamp": f"2026-03-01T10:00:{number % 60:02d}.000Z",
            **more,
        }
        if message is not None:
            entry["message"] = message
        self.lines.append(json.dumps(entry))
        return self

    def user(self, content: Any, **more: Any) -> Session:
        return self.line("user", {"role": "user", "content": content}, **more)

    def said(self, id: str | None, *blocks: dict[str, Any], **more: Any) -> Session:
        message = {"role": "assistant", "id": id, "model": "some-model", "content": list(blocks)}
        usage = more.pop("usage", None)
        if usage is not None:
            message["usage"] = usage
        return self.line("assistant", message, **more)

    def result(self, id: str, content: Any, **block: Any) -> Session:
        return self.user([{"type": "tool_result", "tool_use_id": id, "content": content, **block}])

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(id: str, name: str = "Count", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def load(folder: Path, content: str | bytes) -> tuple[list[ImportedRun], list[Problem]]:
    path = folder / "session.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    problems: list[Problem] = []
    return list(read_file(path, problems.append)), problems


def one(folder: Path, content: str | bytes) -> ImportedRun:
    runs, problems = load(folder, content)
    assert problems == []
    (run,) = runs
    return run


def kinds(run: ImportedRun) -> list[str]:
    return [type(item).__name__ for item in run.items]


def decisions(run: ImportedRun) -> list[Decision]:
    return [item for item in run.items if isinstance(item, Decision)]


def results(run: ImportedRun) -> list[Result]:
    return [item for item in run.items if isinstance(item, Result)]


def test_a_session_becomes_messages_decisions_and_results(tmp_path: Path) -> None:
    session = Session()
    session.user("Count the pears")
    session.said("m1", {"type": "thinking", "thinking": "A basket.", "signature": "x"})
    session.said("m1", text("I will count."))
    session.said("m1", use("c1", what="pears"))
    session.result("c1", "7")
    session.said("m2", text("Seven pears."))
    run = one(tmp_path, session.text())
    assert kinds(run) == ["Message", "Decision", "Result", "StepDone", "Decision", "StepDone"]
    first, second = decisions(run)
    assert (first.step_index, first.made.text, first.made.reasoning) == (
        0,
        "I will count.",
        "A basket.",
    )
    (call,) = first.made.tool_calls
    assert (call.name, call.id, call.arguments) == ("Count", "c1", {"what": "pears"})
    assert first.made.response_id == "m1"
    assert first.made.response_model == "some-model"
    assert results(run) == [Result(0, 0, "7", at="2026-03-01T10:00:04.000Z")]
    assert (second.step_index, second.made.text) == (1, "Seven pears.")
    assert run.task_id == f"claude-code:{SESSION}"
    assert run.conversation_id == SESSION
    assert run.description == "Count the pears"
    assert run.status == "running"
    assert run.started_at == "2026-03-01T10:00:00.000Z"
    assert run.ended_at == "2026-03-01T10:00:05.000Z"


def test_usage_repeated_on_every_line_counts_once_as_the_last_line_has_it(
    tmp_path: Path,
) -> None:
    def usage(out: int) -> dict[str, int]:
        return {
            "input_tokens": 5,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 20,
            "output_tokens": out,
        }

    session = Session().user("go")
    for out, block in ((1, text("a")), (1, use("c1")), (64, use("c2"))):
        session.said("m1", block, usage=usage(out))
    (decision,) = decisions(one(tmp_path, session.text()))
    made = decision.made.usage
    assert made is not None
    assert (made.input_tokens, made.output_tokens) == (125, 64)
    assert (made.cache_read_input_tokens, made.cache_creation_input_tokens) == (100, 20)


def test_results_between_the_lines_of_one_message_stay_one_step(tmp_path: Path) -> None:
    session = Session().user("go")
    session.said("m1", use("c1")).result("c1", "one")
    session.said("m1", use("c2")).result("c2", "two")
    session.said("m2", text("done"))
    run = one(tmp_path, session.text())
    assert [len(d.made.tool_calls) for d in decisions(run)] == [2, 0]
    assert [(r.step_index, r.position, r.result) for r in results(run)] == [
        (0, 0, "one"),
        (0, 1, "two"),
    ]


def test_two_objects_on_one_line_are_both_read(tmp_path: Path) -> None:
    lines = Session().user("go").said("m1", use("c1")).result("c1", "x").lines
    run = one(tmp_path, lines[0] + "\n" + lines[1] + lines[2] + "\n")
    assert kinds(run) == ["Message", "Decision", "Result", "StepDone"]


def test_a_call_id_reused_dozens_of_times(tmp_path: Path) -> None:
    session = Session().user("go")
    for i in range(48):
        session.said(f"m{i}", use("same", n=i)).result("same", f"r{i}")
    run = one(tmp_path, session.text())
    assert [(r.step_index, r.position, r.result) for r in results(run)] == [
        (i, 0, f"r{i}") for i in range(48)
    ]


def test_an_id_twice_in_one_decision_is_matched_in_order(tmp_path: Path) -> None:
    session = Session().user("go").said("m1", use("same", n=1), use("same", n=2))
    run = one(tmp_path, session.result("same", "first").result("same", "second").text())
    assert [(r.position, r.result) for r in results(run)] == [(0, "first"), (1, "second")]


def test_a_result_without_a_call_is_a_message_of_role_tool(tmp_path: Path) -> None:
    session = Session().user("go").result("nobody", "stray").said("m1", text("hm"))
    run = one(tmp_path, session.text())
    stray = run.items[1]
    assert isinstance(stray, Message)
    assert (stray.role, stray.content, stray.tool_call_id) == ("tool", "stray", "nobody")


def test_a_call_without_a_result_is_open_only_in_the_last_step(tmp_path: Path) -> None:
    session = Session().user("go").said("m1", use("c1")).said("m2", use("c2"))
    run = one(tmp_path, session.text())
    assert kinds(run) == ["Message", "Decision", "StepDone", "Decision"]
    assert results(run) == []
    late = one(tmp_path, session.result("c1", "too late").text())
    assert isinstance(late.items[-1], Message)


def test_a_480_kb_observation_in_a_960_kb_line(tmp_path: Path) -> None:
    seen = "x" * 480_000
    session = Session().user("go").said("m1", use("c1"))
    session.user(
        [{"type": "tool_result", "tool_use_id": "c1", "content": seen}], toolUseResult=seen
    )
    assert len(session.lines[-1]) > 960_000
    (result,) = results(one(tmp_path, session.text()))
    assert result.result == seen


def test_clocks_that_run_backwards_change_no_order(tmp_path: Path) -> None:
    session = Session()
    session.user("first", timestamp="2026-03-01T10:00:09Z")
    session.said("m1", text("second"), timestamp="2026-03-01T10:00:03Z")
    session.user("third", timestamp="2026-03-01T09:59:00Z")
    run = one(tmp_path, session.text())
    assert kinds(run) == ["Message", "Decision", "StepDone", "Message"]
    assert run.started_at == "2026-03-01T10:00:09Z"
    assert run.ended_at == "2026-03-01T09:59:00Z"


def test_nul_characters_are_kept(tmp_path: Path) -> None:
    session = Session().user("a\0b").said("m1", use("c1", key="\0")).result("c1", "\0\0")
    run = one(tmp_path, session.text())
    assert isinstance(run.items[0], Message)
    assert run.items[0].content == "a\0b"
    assert decisions(run)[0].made.tool_calls[0].arguments == {"key": "\0"}
    assert results(run)[0].result == "\0\0"


def test_several_user_turns_and_parts_as_they_are(tmp_path: Path) -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": "AA=="}}
    session = Session().user("one").said("m1", text("1")).user([text("two"), picture])
    session.said("m2", text("2")).user("three")
    run = one(tmp_path, session.text())
    said = [item.content for item in run.items if isinstance(item, Message)]
    assert said == ["one", [text("two"), picture], "three"]
    assert [m.source_id for m in run.items if isinstance(m, Message)] == ["u-0", "u-2", "u-4"]


def test_text_beside_a_result_in_one_line_is_a_message(tmp_path: Path) -> None:
    session = Session().user("go").said("m1", use("c1"))
    session.user([{"type": "tool_result", "tool_use_id": "c1", "content": "x"}, text("stop")])
    run = one(tmp_path, session.text())
    assert kinds(run) == ["Message", "Decision", "Result", "StepDone", "Message"]


def test_a_failed_tool_is_an_error(tmp_path: Path) -> None:
    session = Session().user("go").said("m1", use("c1"), use("c2"))
    session.result("c1", "no such file", is_error=True)
    session.result("c2", [text("gone"), text("twice")], is_error=True)
    first, second = results(one(tmp_path, session.text()))
    assert (first.error, first.error_type) == ("no such file", "tool_error")
    assert second.error == "gone\ntwice"


def test_an_api_error_is_a_failure_and_the_next_attempt_has_its_index(tmp_path: Path) -> None:
    session = Session().user("go").said("m1", text("well"))
    session.said("e1", text("API Error: 529 Overloaded"), isApiErrorMessage=True)
    session.said("m2", text("again"))
    run = one(tmp_path, session.text())
    failure = next(item for item in run.items if isinstance(item, Failure))
    assert (failure.step_index, failure.attempt, failure.error_type) == (1, 1, "api_error")
    assert failure.error == "API Error: 529 Overloaded"
    assert [(d.step_index, d.attempt) for d in decisions(run)] == [(0, 1), (1, 2)]


def test_what_the_program_put_in_is_the_systems_and_the_rest_is_left_out(
    tmp_path: Path,
) -> None:
    session = Session()
    session.line("file-history-snapshot", snapshot={})
    session.line("queue-operation", operation="enqueue")
    session.user("Caveat: local commands", isMeta=True)
    session.user("[Request interrupted by user]")
    session.user("Hello")
    session.line("progress", data={})
    session.line("system", subtype="turn_duration")
    session.line("summary", summary="Greeting", leafUuid="u-3")
    run = one(tmp_path, session.text())
    said = [(m.role, m.content) for m in run.items if isinstance(m, Message)]
    assert said == [
        ("system", "Caveat: local commands"),
        ("user", "[Request interrupted by user]"),
        ("user", "Hello"),
    ]
    assert run.description == "Hello"


def test_a_line_written_again_counts_once(tmp_path: Path) -> None:
    session = Session().user("go").said("m1", use("c1")).result("c1", "x")
    session.said("m2", text("done"), uuid="twice")
    session.said("m2", text("done"), uuid="twice", cwd="elsewhere")
    run = one(tmp_path, session.text())
    assert [d.made.text for d in decisions(run)] == [None, "done"]
    session.said("m2", text("altered"), uuid="twice")
    runs, problems = load(tmp_path, session.text())
    assert runs[0].items == run.items
    assert [(p.line, "another content" in p.reason) for p in problems] == [(6, True)]


def test_sub_agents_files_share_the_sessions_id_and_are_tasks_of_their_own(
    tmp_path: Path,
) -> None:
    main = Session().user("go").said("m1", use("c1", "Task"))
    first = Session(isSidechain=True, agentId="a1").user("look").said("x1", text("seen"))
    second = Session(isSidechain=True, agentId="a2").user("look").said("x2", text("seen"))
    ids = [one(tmp_path, session.text()).task_id for session in (main, first, second)]
    base = f"claude-code:{SESSION}"
    assert ids == [base, f"{base}:agent-a1", f"{base}:agent-a2"]


def test_side_chains_among_the_sessions_lines_are_told_apart(tmp_path: Path) -> None:
    session = Session().user("go").said("m1", use("c1", "Task"), use("c2", "Task"))
    session.user("look left", isSidechain=True, uuid="s1")
    session.user("look right", isSidechain=True, uuid="s2")
    session.said("x1", text("a wall"), isSidechain=True, uuid="s3", parentUuid="s1")
    session.said("x2", text("a door"), isSidechain=True, uuid="s4", parentUuid="s2")
    session.result("c1", "a wall").result("c2", "a door")
    runs, problems = load(tmp_path, session.text())
    assert problems == []
    base = f"claude-code:{SESSION}"
    assert [run.task_id for run in runs] == [base, f"{base}:agent-s1", f"{base}:agent-s2"]
    assert kinds(runs[0]) == ["Message", "Decision", "Result", "Result", "StepDone"]
    assert [decisions(run)[0].made.text for run in runs[1:]] == ["a wall", "a door"]


def test_blocks_that_text_and_calls_cannot_tell_are_kept_whole(tmp_path: Path) -> None:
    odd = {"type": "redacted_thinking", "data": "opaque"}
    session = Session().user("go").said("m1", text("a")).said("m1", odd).said("m2", text("b"))
    first, second = decisions(one(tmp_path, session.text()))
    assert first.made.content == [text("a"), odd]
    assert second.made.content is None


def test_without_a_session_id_the_digest_is_the_id(tmp_path: Path) -> None:
    session = Session(session="")
    session.user("go").said("m1", text("a"))
    shorter = one(tmp_path, session.text())
    assert shorter.task_id.startswith("claude-code:")
    longer = one(tmp_path, session.user("on").text())
    assert longer.task_id != shorter.task_id
    assert shorter.task_id in longer.earlier_ids


def test_only_the_last_decision_is_unsettled(tmp_path: Path) -> None:
    session = Session().user("go").said("m1", use("c1")).result("c1", "x")
    run = one(tmp_path, session.text())
    assert run.settled == 1
    assert isinstance(run.items[-1], StepDone)
    assert one(tmp_path, session.user("thanks").text()).settled == 5
