"""Claude Code's session files, damaged: what is reported and what is still read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from journal.importers.files import read_file
from journal.importers.model import (
    Decision,
    ImportedRun,
    Problem,
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


def kinds(run: ImportedRun) -> list[str]:
    return [type(item).__name__ for item in run.items]


def decisions(run: ImportedRun) -> list[Decision]:
    return [item for item in run.items if isinstance(item, Decision)]


def test_malformed_lines_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = Session().user("go").said("m1", use("c1")).result("c1", "x").lines
    bad = [
        "{broken",
        "42",
        '"text"',
        '{"type": 7}',
        json.dumps({**json.loads(lines[0]), "message": 1}),
    ]
    runs, problems = load(tmp_path, "\n".join([lines[0], *bad, *lines[1:]]) + "\n")
    assert kinds(runs[0]) == ["Message", "Decision", "Result", "StepDone"]
    assert [problem.line for problem in problems] == [2, 3, 4, 5, 6]
    assert str(problems[0]).startswith(f"{tmp_path / 'session.jsonl'}:2: malformed JSON")


def test_a_damaged_first_line_does_not_hide_the_session(tmp_path: Path) -> None:
    session = Session().user("go").said("m1", text("hi"))
    runs, problems = load(tmp_path, "{broken\n" + session.text())
    assert kinds(runs[0]) == ["Message", "Decision", "StepDone"]
    assert [problem.line for problem in problems] == [1]


def test_a_file_cut_in_its_last_line(tmp_path: Path) -> None:
    content = Session().user("go").said("m1", text("hi")).text()
    runs, problems = load(tmp_path, content[:-30])
    assert kinds(runs[0]) == ["Message"]
    assert [(p.line, p.reason) for p in problems] == [
        (2, "the last line is not finished; line skipped")
    ]


def test_wrong_types_inside_a_line_cost_only_themselves(tmp_path: Path) -> None:
    session = Session().user("go")
    session.said("m1", text("hi"), usage={"input_tokens": "many", "output_tokens": 3})
    session.said("m2", {"type": "tool_use", "name": 5}, timestamp=["now"])
    runs, problems = load(tmp_path, session.text())
    first, second = decisions(runs[0])
    assert first.made.usage is not None
    assert first.made.usage.output_tokens == 3
    assert (second.at, second.made.tool_calls) == (None, [])
    assert {problem.line for problem in problems} == {2, 3}
