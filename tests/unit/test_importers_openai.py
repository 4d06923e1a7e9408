"""OpenAI's chat messages, in every container that they come in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from journal.importers.files import detect, read_file
from journal.importers.model import (
    Decision,
    ImportedRun,
    Message,
    Problem,
    Result,
    StepDone,
    Value,
)


def load(folder: Path, value: Any, name: str = "run.json") -> tuple[list[ImportedRun], list[str]]:
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    problems: list[Problem] = []
    runs = list(read_file(path, problems.append))
    return runs, [problem.reason for problem in problems]


def one(folder: Path, value: Any, name: str = "run.json") -> ImportedRun:
    runs, problems = load(folder, value, name)
    assert problems == []
    (run,) = runs
    return run


def kinds(run: ImportedRun) -> list[str]:
    return [type(item).__name__ for item in run.items]


def decisions(run: ImportedRun) -> list[Decision]:
    return [item for item in run.items if isinstance(item, Decision)]


def results(run: ImportedRun) -> list[tuple[int, int, Any]]:
    return [
        (item.step_index, item.position, item.result)
        for item in run.items
        if isinstance(item, Result)
    ]


def calling(*calls: tuple[str, str, str], content: str | None = None) -> dict[str, Any]:
    made = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": made}


def answer(id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "You sell pears."},
    {"role": "user", "content": "How many are left?"},
    calling(("c1", "count", '{"what": "pears"}'), ("c2", "count", "pears, I think")),
    answer("c2", "unclear"),
    answer("c1", "7"),
    {"role": "assistant", "content": "Seven."},
    {"role": "user", "content": "Thanks"},
]


def test_a_list_of_messages_is_one_conversation(tmp_path: Path) -> None:
    run = one(tmp_path, CHAT)
    assert kinds(run) == [
        *("Message", "Message", "Decision", "Result", "Result", "StepDone"),
        *("Decision", "StepDone", "Message"),
    ]
    first = decisions(run)[0].made
    assert first.text is None
    assert [call.arguments for call in first.tool_calls] == [{"what": "pears"}, "pears, I think"]
    assert results(run) == [(0, 1, "unclear"), (0, 0, "7")]
    assert run.description == "How many are left?"
    assert run.status == "running"
    assert run.task_id.startswith("openai:")


def test_messages_in_an_object_and_one_a_line_are_the_same_conversation(tmp_path: Path) -> None:
    ids = {
        one(tmp_path, CHAT).task_id,
        one(tmp_path, {"messages": CHAT}).task_id,
        one(tmp_path, "\n".join(json.dumps(message) for message in CHAT)).task_id,
    }
    assert len(ids) == 1


def test_each_line_with_messages_is_a_conversation(tmp_path: Path) -> None:
    other = [*CHAT[:2], {"role": "assistant", "content": "None."}]
    lines = [{"messages": CHAT}, {"messages": other, "id": "chat-2"}]
    runs, problems = load(tmp_path, "\n".join(json.dumps(line) for line in lines))
    assert problems == []
    assert [len(decisions(run)) for run in runs] == [2, 1]
    assert runs[1].task_id.startswith("openai:chat-2:")


def test_a_benchmarks_records_are_completed_conversations(tmp_path: Path) -> None:
    records = [
        {"task_id": 4, "trial": trial, "reward": 0.5, "traj": CHAT[:6]} for trial in range(3)
    ]
    runs, problems = load(tmp_path, records)
    assert problems == []
    assert len({run.task_id for run in runs}) == 3
    assert [run.task_id.rsplit(":", 1)[0] for run in runs] == [
        f"openai:4:trial-{trial}" for trial in range(3)
    ]
    assert {(run.status, run.final_answer) for run in runs} == {("completed", "Seven.")}
    assert runs[0].items[-1] == Value("reward", 0.5)


def test_a_call_id_reused_dozens_of_times(tmp_path: Path) -> None:
    chat: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for i in range(36):
        chat += [calling(("call_0", "next", f'{{"n": {i}}}')), answer("call_0", f"r{i}")]
    assert results(one(tmp_path, chat)) == [(i, 0, f"r{i}") for i in range(36)]


def test_results_without_calls_and_calls_without_results(tmp_path: Path) -> None:
    chat = [
        {"role": "user", "content": "go"},
        calling(("c1", "a", "{}"), ("c2", "b", "{}")),
        answer("c1", "one"),
        answer("c9", "stray"),
        {"role": "assistant", "content": "going on"},
        answer("c2", "late"),
    ]
    run = one(tmp_path, chat)
    assert results(run) == [(0, 0, "one")]
    strays = [m.content for m in run.items if isinstance(m, Message) and m.role == "tool"]
    assert strays == ["stray", "late"]
    assert [i.step_index for i in run.items if isinstance(i, StepDone)] == [0, 1]


def test_an_open_call_at_the_end_stays_open(tmp_path: Path) -> None:
    chat = [*CHAT[:2], calling(("c1", "a", "{}"), ("c2", "b", "{}")), answer("c1", "one")]
    run = one(tmp_path, chat)
    assert kinds(run)[-2:] == ["Decision", "Result"]
    grown = one(tmp_path, [*chat, answer("c2", "two")])
    assert kinds(grown)[-2:] == ["Result", "StepDone"]
    assert grown.items[: len(run.items)] == run.items
    assert run.task_id in grown.earlier_ids


def test_runs_that_part_late_have_ids_of_their_own(tmp_path: Path) -> None:
    left = one(tmp_path, CHAT)
    right = one(tmp_path, [*CHAT[:6], {"role": "user", "content": "Too few"}])
    assert left.task_id != right.task_id
    assert left.earlier_ids == right.earlier_ids
    assert left.task_id not in right.earlier_ids


def test_the_older_function_call_is_read(tmp_path: Path) -> None:
    chat = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "add", "arguments": "[1,2]"},
        },
        {"role": "function", "name": "add", "content": "3"},
    ]
    run = one(tmp_path, chat)
    assert decisions(run)[0].made.tool_calls[0].arguments == [1, 2]
    assert results(run) == [(0, 0, "3")]


def test_usage_with_details(tmp_path: Path) -> None:
    usage = {
        "prompt_tokens": 90,
        "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    chat = [CHAT[1], {"role": "assistant", "content": "x", "usage": usage}]
    made = decisions(one(tmp_path, chat))[0].made.usage
    assert made is not None
    assert (made.input_tokens, made.output_tokens) == (90, 10)
    assert (made.cache_read_input_tokens, made.reasoning_output_tokens) == (60, 4)


def test_chat_that_is_another_agents_format_is_not_taken() -> None:
    mini = [
        {"role": "user", "content": "Fix it"},
        {"role": "assistant", "content": "```bash\nls\n```"},
        {"role": "user", "content": "<returncode>0</returncode>"},
    ]
    assert detect(mini) is None
    assert detect({"messages": mini[:2], "trajectory_format": "mini"}) is None
    assert detect(mini[:2]) == "openai"


def test_a_developer_is_the_system(tmp_path: Path) -> None:
    run = one(tmp_path, [{"role": "developer", "content": "Be brief."}, *CHAT[1:]])
    assert isinstance(run.items[0], Message)
    assert (run.items[0].role, run.items[0].content) == ("system", "Be brief.")
