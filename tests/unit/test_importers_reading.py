"""What a file may hold beside a run: nothing, no JSON, or what JSON cannot carry."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from journal.importers.files import detect, read_file
from journal.importers.model import ImportedRun, Message, Problem, V1Step

UNKNOWN = "unknown format; what can be imported: claude-code, atif, swe-agent, checkpoint, openai"


def load(folder: Path, content: bytes) -> tuple[list[ImportedRun], list[tuple[int | None, str]]]:
    path = folder / "file"
    path.write_bytes(content)
    problems: list[Problem] = []
    runs = list(read_file(path, problems.append))
    assert all(problem.file == str(path) for problem in problems)
    return runs, [(problem.line, problem.reason) for problem in problems]


@pytest.mark.parametrize("content", [b"", b"  \n\n", b"\xef\xbb\xbf\n"])
def test_an_empty_file(tmp_path: Path, content: bytes) -> None:
    assert load(tmp_path, content) == ([], [(None, "the file is empty")])


@pytest.mark.parametrize(
    "content",
    [b'{"a": 1}', b"[]", b"[1, 2]", b"7", b'{"a": 1}\n{"b": 2}\n', b'{"messages": []}', b"null"],
)
def test_json_that_is_no_run(tmp_path: Path, content: bytes) -> None:
    assert load(tmp_path, content) == ([], [(None, UNKNOWN)])


@pytest.mark.parametrize(
    "content", [b"hello\nworld\n", b"{\n  'a': 1\n}\n", b"\x89PNG\r\n\x1a\n\0"]
)
def test_what_is_no_json_is_one_problem(tmp_path: Path, content: bytes) -> None:
    runs, problems = load(tmp_path, content)
    assert runs == []
    ((line, reason),) = problems
    assert line is None
    assert "JSON" in reason or "UTF-8" in reason


def test_a_file_that_is_not_there_and_a_folder(tmp_path: Path) -> None:
    problems: list[Problem] = []
    assert list(read_file(tmp_path / "nowhere", problems.append)) == []
    assert list(read_file(tmp_path, problems.append)) == []
    assert [problem.line for problem in problems] == [None, None]
    assert str(problems[0]).endswith("nowhere: No such file or directory")


def test_a_recognised_file_without_a_run_says_so(tmp_path: Path) -> None:
    content = b'{"type": "summary", "summary": "Greeting", "leafUuid": "u-1"}\n'
    assert load(tmp_path, content) == (
        [],
        [(None, "nothing to import: not one message or step in it")],
    )


def test_a_lone_surrogate_is_named_by_line_and_path(tmp_path: Path) -> None:
    good = '{"role": "user", "content": "go"}'
    bad = '{"role": "assistant", "content": [{"text": "cut \\ud83d here"}]}'
    runs, problems = load(tmp_path, f"{good}\n{bad}\n".encode())
    assert problems == [
        (2, "$.content[0].text: JSON cannot carry a lone surrogate; replaced by U+FFFD")
    ]
    assert "cut \ufffd here" in json.dumps(str(runs[0].items[1]), ensure_ascii=False)


def test_what_only_a_lenient_decoder_takes_in_a_document_over_many_lines(
    tmp_path: Path,
) -> None:
    step = {"step_index": 0, "observation": [float("nan"), "\ud800", 1 << 70, -0.5]}
    document = {"task_id": "t", "completed_steps": [step]}
    runs, problems = load(tmp_path, json.dumps(document, indent=1).encode())
    assert runs[0].items == [V1Step(0, observation=[None, "\ufffd", str(1 << 70), -0.5])]
    base = "$.completed_steps[0].observation"
    assert problems == [
        (None, f"{base}[0]: JSON cannot carry nan; replaced by null"),
        (None, f"{base}[1]: JSON cannot carry a lone surrogate; replaced by U+FFFD"),
        (None, f"{base}[2]: an integer of more than 64 bits; kept as a string"),
    ]


def test_a_long_integer_in_good_json(tmp_path: Path) -> None:
    content = b'[{"role": "user", "content": {"n": 123456789012345678901234567890, "m": 7}}]'
    runs, problems = load(tmp_path, content)
    (message,) = runs[0].items
    assert isinstance(message, Message)
    assert message.content == {"n": "123456789012345678901234567890", "m": 7}
    assert len(problems) == 1


def test_invalid_utf_8_costs_its_line(tmp_path: Path) -> None:
    good = b'{"role": "user", "content": "go"}\n'
    runs, problems = load(tmp_path, good + b'{"role": "user", "content": "\xff"}\n' + good)
    assert len(runs[0].items) == 2
    assert [(line, "not UTF-8" in reason) for line, reason in problems] == [(2, True)]


def test_nesting_without_end(tmp_path: Path) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    runs, problems = load(tmp_path, b'{"role": "user", "content": "go"}\n' + deep + b"\n")
    assert len(runs[0].items) == 1
    assert [line for line, _ in problems] == [2]
    assert load(tmp_path, deep)[0] == []


def test_nesting_near_the_interpreters_limit(tmp_path: Path) -> None:
    def taken(depth: int) -> bool:
        content = b"[" * depth + b"]" * depth
        runs, problems = load(tmp_path, b'[{"role": "user", "content": ' + content + b"}]")
        # Either all of it, or told why not: no depth raises.
        assert (len(runs) == 1) == (problems == [])
        assert runs or problems[0][1].startswith("nested too deep")
        return bool(runs)

    most, refused = 1, 1 << 20
    while refused - most > 1:
        middle = (most + refused) // 2
        most, refused = (middle, refused) if taken(middle) else (most, middle)
    for depth in range(max(1, most - 20), most + 20):
        taken(depth)


def test_values_of_several_formats_in_one_file(tmp_path: Path) -> None:
    lines = [
        {"task_id": "t", "completed_steps": [{}]},
        {"silly": "this"},
        {"messages": [{"role": "user", "content": "hi"}]},
    ]
    runs, problems = load(tmp_path, "\n".join(json.dumps(line) for line in lines).encode())
    assert [run.source_format for run in runs] == ["checkpoint", "openai"]
    assert problems == [(2, UNKNOWN)]


def test_the_name_of_a_file_says_nothing_about_its_format(tmp_path: Path) -> None:
    path = tmp_path / "chat.traj"
    path.write_text('[{"role": "user", "content": "hi"}]')
    problems: list[Problem] = []
    (run,) = read_file(path, problems.append)
    assert (run.source_format, problems) == ("openai", [])


def test_a_file_name_that_is_not_utf_8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.traj"
    try:
        with open(path, "wb") as file:
            file.write(b'{"trajectory": [{"action": "ls", "observation": "x"}], "info": {}}')
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    problems: list[Problem] = []
    (run,) = read_file(os.fsdecode(path), problems.append)
    assert run.task_id.encode()
    assert problems == []


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [[]], [None], {"messages": [{}]}])
def test_detect_takes_anything(value: object) -> None:
    assert detect(value) is None
