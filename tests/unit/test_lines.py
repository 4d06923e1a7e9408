"""How a record looks on a line: for programs as JSON, for people as a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from journal.cli.lines import about, json_lines, rows
from journal.codec import decode_event
from journal.errors import BadRecord, EventTooNew
from journal.log import Record
from journal.upcasters import upcast

GOLDEN = Path(__file__).parents[1] / "golden"
EVENTS = sorted(file for file in (GOLDEN / "events").glob("*.json") if ".read." not in file.name)
BAD = sorted((GOLDEN / "bad").glob("*.json"))
AT = 1_767_225_600_000


def record(value: bytes | None, key: bytes | None = None) -> Record:
    """As it was read at offset 7; with the key that the event wants, unless one is given."""
    if key is None:
        try:
            key = (decode_event(value).task_id or "").encode()
        except BadRecord:
            key = b"t"
    return Record(7, key, value, AT)


@pytest.mark.parametrize("file", EVENTS, ids=lambda file: file.stem)
def test_a_golden_record_is_one_line_in_either_form(file: Path) -> None:
    value = file.read_bytes()
    (event,) = upcast(decode_event(value), "0:7")
    (line,) = json_lines("0:7", record(value))
    assert json.loads(line) == {"position": "0:7"} | event
    (row,) = rows("0:7", record(value))
    assert (row.position, row.task, row.type) == ("0:7", event.get("task_id", ""), event["type"])
    assert row.at == event.get("at", "2026-01-01T00:00:00.000Z")
    (raw,) = json_lines("0:7", record(value), raw=True)
    assert json.loads(raw) == json.loads(value)
    assert not {"\n", "\r"} & {*line, *raw}
    for text in row:
        assert text.splitlines() == [text] * bool(text)


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_a_bad_record_says_so_or_names_the_newer_release(file: Path) -> None:
    value = file.read_bytes()
    reason = file.with_suffix(".reason.txt").read_text()
    if reason.startswith("EventTooNew"):
        for form in (json_lines, rows):
            with pytest.raises(EventTooNew, match=r"^0:7: "):
                form("0:7", record(value))
        (row,) = rows("0:7", record(value), raw=True)
        assert "of a newer release" in row.about
        (line,) = json_lines("0:7", record(value), raw=True)
        assert json.loads(line) == json.loads(value)
    else:
        (line,) = json_lines("0:7", record(value))
        said = json.loads(line)
        assert said["position"] == "0:7"
        (row,) = rows("0:7", record(value))
        told = "undecodable" in (row.type, row.about.partition(":")[0])
        # A body that decodes but holds a decision that does not is the fold's to judge.
        assert ("undecodable" in said, told) in {(True, True), (False, False)}
        if reason.startswith("BadRecord"):
            assert said.keys() == {"position", "undecodable"}


def test_what_is_no_text_at_all_is_a_line_too() -> None:
    for value in (None, b"", b"\xff\xfe\n\x00", b"[1]\n"):
        (line,) = json_lines("3:7", Record(7, b"\xff\nkey", value, AT))
        assert json.loads(line)["position"] == "3:7"
        assert json_lines("3:7", Record(7, b"\xff\nkey", value, AT), raw=True) == [line]
        (row,) = rows("3:7", Record(7, b"\xff\nkey", value, AT))
        assert row[:4] == ("3:7", "2026-01-01T00:00:00.000Z", r"\xff key", "undecodable")
        assert row.about


def test_an_event_under_another_tasks_key_is_no_event() -> None:
    value = b'{"type":"TaskCompleted","v":1,"id":"i","task_id":"t","owner":"o","epoch":0,"seq":1}'
    assert json.loads(json_lines("0:7", record(value, b"u"))[0])["undecodable"]
    assert "undecodable" not in json_lines("0:7", record(value, b"t"))[0]


def test_raw_stays_on_one_line() -> None:
    value = (
        b'{"type":"TaskFailed",\r\n"v":1,"id":"i","task_id":"t","owner":"o","epoch":0,"seq":1}\n'
    )
    (line,) = json_lines("0:7", record(value), raw=True)
    assert "\n" not in line
    assert "\r" not in line
    assert json.loads(line) == json.loads(value)


def test_a_row_neither_breaks_nor_moves_the_cursor_nor_runs_on() -> None:
    value = json.dumps(
        {
            "type": "TaskStarted",
            "v": 1,
            "id": "i",
            "task_id": "t\x1b[2J",
            "owner": "o",
            "epoch": 0,
            "at": "now\n",
            "body": {"description": "a\x1b[31m\nb\t" + "ü" * 500},
        }
    ).encode()
    (row,) = rows("0:7", record(value))
    assert row.task == r"t\x1b[2J"
    assert row.at == "now "
    assert row.about.startswith(r"a\x1b[31m b ü")
    assert row.about.endswith("ü…")
    assert len(row.about) == 100


@pytest.mark.parametrize("ms", [-1, 2**62, -(2**62)])
def test_a_time_that_no_calendar_has_is_shown_all_the_same(ms: int) -> None:
    (row,) = rows("0:7", Record(7, b"t", None, ms))
    assert row.at


@pytest.mark.parametrize(
    ("type", "body", "words"),
    [
        ("TaskStarted", {"description": "Count"}, "Count"),
        ("TaskClaimed", {"agent_name": "a", "worker": "w"}, "a w"),
        ("TaskClaimed", {}, ""),
        (
            "StepStarted",
            {"step_index": 3, "decision": {"tool_calls": [{"tool_name": "a"}, {"tool_name": "b"}]}},
            "step 3 a b",
        ),
        ("StepStarted", {"step_index": 0, "decision": {"text": "t"}}, "step 0"),
        ("StepStarted", {"step_index": 0, "decision": {"tool_calls": 5}}, "step 0"),
        (
            "ToolCallStarted",
            {"step_index": 3, "position": 1, "tool_name": "fetch"},
            "step 3 call 1 fetch",
        ),
        (
            "ToolCallFailed",
            {"step_index": 3, "position": 0, "error_type": "OSError", "error": "no"},
            "step 3 call 0 OSError: no",
        ),
        (
            "CallResolved",
            {"step_index": 1, "position": 0, "run_again": True},
            "step 1 call 0 run again",
        ),
        ("TaskCompleted", {"step_index": 4, "final_answer": "42"}, "step 4 completed"),
        ("TaskFailed", {"error_type": "E", "error": "no"}, "failed E: no"),
        ("TaskCancelled", {"reason": "asked"}, "asked cancelled"),
        ("MessageReceived", {"role": "user", "content": "hello"}, "user hello"),
        ("MessageReceived", {"role": "user", "content": [{"a": "é"}]}, 'user [{"a": "é"}]'),
        ("ValueRecorded", {"function": "fetch", "key": "k"}, "fetch"),
        ("ResultRecorded", {"name": "report", "value": 1}, "report"),
        ("JournalCreated", {"journal_id": "j", "partitions": 1}, "j"),
    ],
)
def test_what_an_event_is_about(type: str, body: dict[str, Any], words: str) -> None:
    assert about(type, body) == words
