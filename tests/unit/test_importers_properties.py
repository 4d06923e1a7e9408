"""Two laws of the importers: a grown file begins as the shorter one did, and anything goes in.

Growth is what importing again stands on: what a shorter file gave, its unsettled end apart, is
a beginning of what the longer one gives, at the same addresses.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from journal.codec import check_task_id
from journal.importers.files import read_file
from journal.importers.model import Decision, ImportedRun, Item, Problem
from journal.values import encode_value


def load(content: bytes) -> tuple[list[ImportedRun], list[Problem]]:
    problems: list[Problem] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.traj"
        path.write_bytes(content)
        return list(read_file(path, problems.append)), problems


# --- growth ---------------------------------------------------------------------------------

_ids = st.sampled_from("abc")
_moves = st.one_of(
    st.tuples(st.just("user"), _ids),
    st.tuples(st.just("meta"), _ids),
    st.tuples(st.just("say"), _ids),
    st.tuples(st.just("think"), _ids),
    st.tuples(st.just("call"), _ids),
    st.tuples(st.just("calls"), _ids),
    st.tuples(st.just("result"), _ids),
    st.tuples(st.just("error"), _ids),
    st.tuples(st.just("api error"), _ids),
    st.tuples(st.just("new"), _ids),
    st.tuples(st.just("noise"), _ids),
)


def session_lines(moves: list[tuple[str, str]], side: str | None = None) -> list[bytes]:
    """The lines of a session that the moves make; "new" begins another model's message."""
    message = 0
    lines = []
    for number, (move, id) in enumerate(moves):
        blocks: Any = None
        said: dict[str, Any] = {}
        more: dict[str, Any] = {"type": "user"}
        if move == "new":
            message += 1
        if move in ("user", "meta"):
            blocks, more["isMeta"] = f"says {number}", move == "meta"
        elif move in ("result", "error"):
            result = {"type": "tool_result", "tool_use_id": id, "content": f"r{number}"}
            blocks = [{**result, "is_error": move == "error"}]
        elif move == "noise":
            more = {"type": "progress"}
        else:
            more = {"type": "assistant", "isApiErrorMessage": move == "api error"}
            said = {"id": f"m{message}", "usage": {"output_tokens": number}}
            call = {"type": "tool_use", "id": id, "name": "do", "input": {"n": number}}
            blocks = {
                "think": [{"type": "thinking", "thinking": f"t{number}"}],
                "call": [call],
                "calls": [call, call],
            }.get(move, [{"type": "text", "text": f"x{number}"}])
        if blocks is not None:
            more["message"] = {"content": blocks, **said}
        entry = {"sessionId": "s", "uuid": f"u{number}", "parentUuid": None, **more}
        lines.append(json.dumps(entry).encode() + b"\n")
    return lines


def address(item: Item) -> tuple[Any, ...]:
    return (type(item), getattr(item, "step_index", None), getattr(item, "position", None))


def check_growth(shorter: ImportedRun, longer: ImportedRun) -> None:
    assert shorter.items[: shorter.settled] == longer.items[: shorter.settled]
    assert shorter.settled <= longer.settled
    behind = shorter.items[shorter.settled :]
    if behind:
        before, after = behind[0], longer.items[shorter.settled]
        assert isinstance(before, Decision)
        assert isinstance(after, Decision)
        assert (before.step_index, before.attempt, before.at) == (
            after.step_index,
            after.attempt,
            after.at,
        )
        assert (after.made.text or "").startswith(before.made.text or "")
        calls = before.made.tool_calls
        assert after.made.tool_calls[: len(calls)] == calls
        kept = longer.items[shorter.settled :]
        for item in behind[1:]:
            if address(item)[2] is not None:
                assert item in kept


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(_moves, max_size=24), st.data())
def test_a_session_that_has_grown_begins_as_it_did(
    moves: list[tuple[str, str]], data: st.DataObject
) -> None:
    lines = session_lines(moves)
    cut = data.draw(st.integers(0, len(lines)))
    shorter, _ = load(b"".join(lines[:cut]))
    longer, problems = load(b"".join(lines))
    assert [p for p in problems if p.line is not None] == []
    if shorter:
        assert shorter[0].task_id == longer[0].task_id == "claude-code:s"
        check_growth(shorter[0], longer[0])


def chat(moves: list[tuple[str, str]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for number, (move, id) in enumerate(moves):
        call = {"id": id, "function": {"name": "do", "arguments": f'{{"n": {number}}}'}}
        said: dict[str, Any] = {"role": "assistant", "content": f"x{number}"}
        if move in ("user", "meta", "noise"):
            messages.append({"role": "user", "content": f"says {number}"})
        elif move in ("result", "error"):
            messages.append({"role": "tool", "tool_call_id": id, "content": f"r{number}"})
        elif move in ("call", "calls"):
            messages.append({**said, "tool_calls": [call] * (1 if move == "call" else 2)})
        else:
            messages.append(said)
    return messages


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(_moves, min_size=1, max_size=24), st.data())
def test_a_chat_that_has_grown_begins_as_it_did_and_knows_its_id(
    moves: list[tuple[str, str]], data: st.DataObject
) -> None:
    messages = chat(moves)
    cut = data.draw(st.integers(1, len(messages)))
    ((shorter,), _), ((longer,), _) = (
        load(json.dumps(messages[:cut]).encode()),
        load(json.dumps(messages).encode()),
    )
    assert shorter.settled == len(shorter.items)
    check_growth(shorter, longer)
    assert shorter.task_id in (longer.task_id, *longer.earlier_ids)
    assert len({longer.task_id, *longer.earlier_ids}) == len(messages)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(_moves, min_size=1, max_size=12))
def test_reading_twice_gives_the_same(moves: list[tuple[str, str]]) -> None:
    content = b"".join(session_lines(moves))
    assert load(content)[0] == load(content)[0]


# --- anything goes in -----------------------------------------------------------------------

_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 80), 1 << 80)
    | st.floats()
    | st.text(st.characters(codec=None, categories=None), max_size=6)
    | st.sampled_from(["user", "assistant", "tool", "ATIF-v1.4", "agent", "exit_cost", "2.0"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)

_call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
_chat = [
    {"role": "user", "content": "go", "timestamp": 1},
    {"role": "assistant", "content": "x", "tool_calls": [_call], "usage": {"prompt_tokens": 1}},
    {"role": "tool", "tool_call_id": "c", "name": "f", "content": "y"},
]
_agent_step = {
    "source": "agent",
    "message": "x",
    "metrics": {"prompt_tokens": 5, "extra": {"reasoning_tokens": 1}},
    "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {}}],
    "observation": {"results": [{"source_call_id": "c", "content": "y"}]},
}
_documents: list[Any] = [
    _chat,
    [{"task_id": 1, "trial": 0, "reward": 1.0, "traj": _chat}],
    {"messages": _chat, "id": "m", "model": "some-model"},
    {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "agent": {"name": "n", "model_name": "some-model"},
        "steps": [{"source": "user", "message": "go", "step_id": 1}, _agent_step],
        "subagent_trajectories": [{"trajectory_id": "t", "steps": [_agent_step]}],
    },
    {
        "trajectory": [{"action": "ls", "thought": "t", "response": "r", "observation": "o"}],
        "history": [
            {"role": "system", "content": "s", "agent": "a"},
            {"role": "assistant", "content": "x", "action": "ls", "tool_calls": [_call]},
            {"role": "tool", "content": "o", "tool_call_ids": ["c"]},
        ],
        "info": {"exit_status": "submitted", "submission": "p", "model_stats": {}},
        "replay_config": {"problem_statement": {"id": "i", "text": "t"}, "agent": {"model": {}}},
    },
    {
        "task_id": "t",
        "checkpoint_version": "2.0",
        "status": "failed",
        "completed_steps": [{"step_index": 0, "tokens_used": 1, "completed_at": 5, "thought": "x"}],
        "accumulated_results": {"a": 1},
        "total_tokens": 1,
    },
]
_documents += [json.loads(line) for line in session_lines([("user", "a"), ("call", "a")])]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(each, (*path, key))
    return found


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(copy[path[0]], path[1:], new)
    return copy


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good document with a few of its values replaced by anything."""
    document = draw(st.sampled_from(_documents))
    for _ in range(draw(st.integers(0, 3))):
        document = put(document, draw(st.sampled_from(places(document))), draw(_json))
    return json.dumps(document, indent=draw(st.sampled_from([None, 1]))).encode()


def check_any(content: bytes) -> None:
    runs, problems = load(content)
    assert runs or problems
    for run in runs:
        check_task_id(run.task_id)
        assert run.items or run.source_format == "checkpoint"
        assert 0 <= run.settled <= len(run.items)
        assert run.status in ("running", "completed", "failed")
        assert run.status != "failed" or (run.error_type and run.error)
        # A log can carry it: no lone surrogate, NaN or endless integer has come through.
        encode_value(msgspec.to_builtins(run))
    for problem in problems:
        str(problem).encode()


@settings(max_examples=600, deadline=None, derandomize=True)
@given(damaged())
def test_a_damaged_document_gives_runs_and_problems(content: bytes) -> None:
    check_any(content)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=30) | damaged(), max_size=4))
def test_any_bytes_give_runs_or_problems(parts: list[bytes]) -> None:
    check_any(b"\n".join(parts))
