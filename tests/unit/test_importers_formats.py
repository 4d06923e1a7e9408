"""The formats that come as one document: OpenAI messages, ATIF, SWE-agent, checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from journal.importers.files import detect, read_file
from journal.importers.model import (
    Decision,
    ImportedRun,
    Message,
    Problem,
    Result,
    StepDone,
    V1Step,
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


# --- OpenAI ---------------------------------------------------------------------------------


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


# --- ATIF -----------------------------------------------------------------------------------


def atif(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "s-1",
        "agent": {"name": "picker", "version": "1", "model_name": "some-model"},
        "steps": [{"step_id": i, **step} for i, step in enumerate(steps, 1)],
        **more,
    }


ASKED = {"source": "user", "message": "Pick pears", "timestamp": "2026-01-01T00:00:00Z"}


def acting(*ids: str, results: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    step = {
        "source": "agent",
        "message": "Picking",
        "tool_calls": [
            {"tool_call_id": id, "function_name": "pick", "arguments": {"n": 1}} for id in ids
        ],
        **more,
    }
    return step if results is None else {**step, "observation": {"results": results}}


def test_an_atif_run(tmp_path: Path) -> None:
    metrics = {
        "prompt_tokens": 50,
        "completion_tokens": 9,
        "cached_tokens": 40,
        "extra": {"cache_creation_input_tokens": 30},
    }
    both = [{"source_call_id": "b", "content": "2"}, {"source_call_id": "a", "content": "1"}]
    done = {"source": "agent", "message": "Done", "reasoning_content": "All picked."}
    run = one(
        tmp_path,
        atif(ASKED, acting("a", "b", results=both, metrics=metrics), done, final_metrics={"x": 1}),
    )
    assert kinds(run) == [
        *("Message", "Decision", "Result", "Result", "StepDone"),
        *("Decision", "StepDone", "Value"),
    ]
    assert results(run) == [(0, 1, "2"), (0, 0, "1")]
    first, second = (decision.made for decision in decisions(run))
    assert first.request_model == "some-model"
    assert first.usage is not None
    # 50 cannot hold 40 read and 30 written: what was written had been left out.
    assert (first.usage.input_tokens, first.usage.output_tokens) == (80, 9)
    assert first.usage.cache_creation_input_tokens == 30
    assert second.reasoning == "All picked."
    assert run.task_id.startswith("atif:s-1:")
    assert (run.agent_name, run.conversation_id) == ("picker", "s-1")
    assert run.items[-1] == Value("final_metrics", {"x": 1})


def test_atif_results_without_a_call_id(tmp_path: Path) -> None:
    run = one(
        tmp_path,
        atif(
            ASKED,
            acting("a", results=[{"content": "1"}]),
            {"source": "agent", "message": "x", "observation": {"results": [{"content": "raw"}]}},
        ),
    )
    assert results(run) == [(0, 0, "1")]
    (stray,) = [m for m in run.items if isinstance(m, Message) and m.role == "tool"]
    assert stray.content == "raw"


def test_atif_sub_agents(tmp_path: Path) -> None:
    refs = [{"trajectory_id": "t-2"}]
    outcome = [{"source_call_id": "a", "content": "ok", "subagent_trajectory_ref": refs}]
    inner = atif({"source": "user", "message": "Look"}, trajectory_id="t-2")
    del inner["session_id"]
    runs, problems = load(
        tmp_path, atif(ASKED, acting("a", results=outcome), subagent_trajectories=[inner, 5])
    )
    assert problems == ["subagent_trajectories[1] is a number, not an object; ignored"]
    assert results(runs[0]) == [(0, 0, {"content": "ok", "subagent_trajectory_ref": refs})]
    assert runs[1].task_id.startswith("atif:s-1:t-2:")


def test_trials_and_continuations_of_one_session_are_tasks_of_their_own(tmp_path: Path) -> None:
    ids = {
        one(tmp_path, atif(ASKED, {"source": "agent", "message": word})).task_id
        for word in ("a", "b", "c")
    }
    assert len(ids) == 3


@pytest.mark.parametrize("version", ["ATIF-v2.0", "ATIF-beta"])
def test_an_atif_that_this_release_does_not_know(tmp_path: Path, version: str) -> None:
    runs, problems = load(tmp_path, {**atif(ASKED), "schema_version": version})
    assert runs == []
    assert problems[0] == f"{version} is not ATIF 1.0 to 1.8"


@pytest.mark.parametrize("minor", range(9))
def test_every_minor_version_of_atif(tmp_path: Path, minor: int) -> None:
    run = one(tmp_path, {**atif(ASKED), "schema_version": f"ATIF-v1.{minor}"})
    assert kinds(run) == ["Message"]


# --- SWE-agent ------------------------------------------------------------------------------


def traj(steps: int = 2, **more: Any) -> dict[str, Any]:
    history = [
        {"role": "system", "content": "You mend code.", "agent": "main"},
        {"role": "user", "content": "An example", "agent": "main", "is_demo": True},
        {"role": "user", "content": "Mend the fence", "agent": "main"},
    ]
    trajectory = []
    for i in range(steps):
        action = f"open plank_{i}.py"
        history.append({"role": "assistant", "content": "x", "action": action, "agent": "main"})
        history.append({"role": "user", "content": f"seen {i}", "agent": "main"})
        trajectory.append(
            {"action": action, "observation": f"plank {i}", "response": "x", "thought": f"t{i}"}
        )
    return {"environment": "swe_main", "trajectory": trajectory, "history": history, **more}


def test_a_swe_agent_run(tmp_path: Path) -> None:
    info = {"exit_status": "submitted", "submission": "a patch", "model_stats": {"api_calls": 2}}
    run = one(tmp_path, traj(info=info), "fence-17.traj")
    said = [(m.role, m.content) for m in run.items if isinstance(m, Message)]
    assert said == [
        ("system", "You mend code."),
        ("system", "An example"),
        ("user", "Mend the fence"),
    ]
    assert [d.made.text for d in decisions(run)] == ["t0", "t1"]
    (call,) = decisions(run)[0].made.tool_calls
    assert (call.name, call.arguments) == ("open", {"command": "open plank_0.py"})
    assert results(run) == [(0, 0, "plank 0"), (1, 0, "plank 1")]
    assert (run.status, run.final_answer) == ("completed", "a patch")
    assert run.task_id.startswith("swe-agent:fence-17:")
    assert run.items[-1] == Value("model_stats", {"api_calls": 2})


@pytest.mark.parametrize(
    ("exit_status", "status"),
    [
        ("submitted", "completed"),
        ("submitted (exit_cost)", "completed"),
        ("exit_cost", "failed"),
        ("early_exit", "failed"),
        (None, "running"),
    ],
)
def test_exit_statuses(tmp_path: Path, exit_status: str | None, status: str) -> None:
    run = one(tmp_path, traj(info={"exit_status": exit_status}))
    assert run.status == status
    assert run.error_type == (exit_status if status == "failed" else None)


def test_function_calls_come_from_the_history(tmp_path: Path) -> None:
    document = traj(1, info={})
    reply = document["history"][3]
    reply["tool_calls"] = calling(("c1", "open_file", '{"path": "plank_0.py"}'))["tool_calls"]
    document["history"][4] = {
        "role": "tool",
        "content": "seen 0",
        "agent": "main",
        "tool_call_ids": ["c1"],
    }
    (call,) = decisions(one(tmp_path, document))[0].made.tool_calls
    assert (call.name, call.id, call.arguments) == ("open_file", "c1", {"path": "plank_0.py"})
    del document["trajectory"], document["info"]
    alone = one(tmp_path, document)
    assert decisions(alone)[0].made.tool_calls == [call]
    assert results(alone) == [(0, 0, "seen 0")]


def test_a_history_of_the_textual_style_alone(tmp_path: Path) -> None:
    document = traj(2)
    del document["trajectory"]
    assert results(one(tmp_path, document)) == [(0, 0, "seen 0"), (1, 0, "seen 1")]


def test_an_instance_replayed_under_one_id(tmp_path: Path) -> None:
    config = json.dumps({"problem_statement": {"id": "fence-17", "text": "\nMend it\nnow"}})
    runs = []
    for last in ("a", "b"):
        document = traj(4, replay_config=config)
        document["trajectory"][-1]["observation"] = last
        runs.append(one(tmp_path, document, "whatever.json"))
    assert len({run.task_id for run in runs}) == 2
    assert all(run.task_id.startswith("swe-agent:fence-17:") for run in runs)
    assert runs[0].description == "Mend it"


def test_a_run_that_grows_names_its_earlier_ids(tmp_path: Path) -> None:
    shorter, longer = one(tmp_path, traj(2)), one(tmp_path, traj(5))
    assert longer.items[: shorter.settled] == shorter.items[: shorter.settled]
    assert shorter.task_id in longer.earlier_ids


# --- checkpoints ----------------------------------------------------------------------------


def checkpoint(**more: Any) -> dict[str, Any]:
    return {
        "task_id": "pears-1",
        "task_description": "Count the pears",
        "status": "running",
        "current_step": 2,
        "completed_steps": [
            {
                "step_index": i,
                "thought": f"t{i}",
                "tool_name": "count",
                "tool_args": {"n": i},
                "observation": f"o{i}",
                "tokens_used": 10 + i,
                "completed_at": f"2026-01-01T00:00:0{i}Z",
            }
            for i in range(2)
        ],
        **more,
    }


def test_a_checkpoint_without_a_version_is_1_0(tmp_path: Path) -> None:
    run = one(tmp_path, checkpoint(started_at="2026-01-01T00:00:00Z", accumulated_results={"a": 1}))
    assert kinds(run) == ["V1Step", "V1Step"]
    assert run.items[1] == V1Step(1, "t1", "count", {"n": 1}, "o1", 11, "2026-01-01T00:00:01Z")
    assert run.task_id == "checkpoint:pears-1"
    assert (run.description, run.status) == ("Count the pears", "running")
    assert (run.started_at, run.ended_at) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z")


@pytest.mark.parametrize("version", ["2.0", 2, 2.0, "2"])
def test_a_checkpoint_of_2_0_has_results_and_a_total(tmp_path: Path, version: Any) -> None:
    more = {"accumulated_results": {"report.md": "text", "n": 7}, "total_tokens": 21}
    run = one(tmp_path, checkpoint(checkpoint_version=version, **more))
    assert run.items[2:] == [Value("report.md", "text"), Value("n", 7)]
    assert run.settled == 2
    _, problems = load(
        tmp_path, checkpoint(checkpoint_version=version, **{**more, "total_tokens": 99})
    )
    assert problems == ["total_tokens is 99, its steps add up to 21; the steps count"]


def test_a_checkpoints_own_status_ends_it(tmp_path: Path) -> None:
    done = one(tmp_path, checkpoint(status="completed", final_answer={"pears": 7}))
    assert (done.status, done.final_answer) == ("completed", {"pears": 7})
    failed = one(tmp_path, checkpoint(status="failed", error="out of pears"))
    assert (failed.status, failed.error_type, failed.error) == ("failed", "failed", "out of pears")
    assert one(tmp_path, checkpoint(status="paused")).status == "running"
    runs, problems = load(tmp_path, checkpoint(status="ripe"))
    assert (runs[0].status, problems) == (
        "running",
        ["status 'ripe' is not known; taken as running"],
    )


def test_wrong_things_in_a_checkpoint_cost_only_themselves(tmp_path: Path) -> None:
    document = checkpoint()
    document["completed_steps"] += [
        "a step",
        {"step_index": 1, "thought": "again"},
        {"step_index": -1},
        {"step_index": 2, "tokens_used": "many", "thought": ["x"], "completed_at": 1767225600},
    ]
    runs, problems = load(tmp_path, document)
    assert runs[0].items[2:] == [V1Step(2, tokens_used=0, completed_at="2026-01-01T00:00:00.000Z")]
    assert problems == [
        "completed_steps[2] is text, not an object; skipped",
        "completed_steps[3]: step 1 for the second time; skipped",
        "completed_steps[4].step_index is no number from 0 on; skipped",
        "completed_steps[5].thought is a list, not text; ignored",
        "completed_steps[5].tokens_used is text, not a number of tokens; ignored",
    ]


def test_many_checkpoints_in_one_file(tmp_path: Path) -> None:
    many = [checkpoint(task_id=f"pears-{i}") for i in range(3)]
    expected = [f"checkpoint:pears-{i}" for i in range(3)]
    assert [run.task_id for run in load(tmp_path, many)[0]] == expected
    lines = "\n".join(json.dumps(each) for each in many)
    assert [run.task_id for run in load(tmp_path, lines)[0]] == expected


@pytest.mark.parametrize("own_id", ["x" * 300, "a\nb", "pears\u0000"])
def test_an_id_that_no_task_can_have_gives_its_digest(tmp_path: Path, own_id: str) -> None:
    run = one(tmp_path, checkpoint(task_id=own_id))
    assert run.task_id.startswith("checkpoint:")
    assert len(run.task_id) == len("checkpoint:") + 16


@pytest.mark.parametrize("own_id", [None, "", ["x"], True])
def test_an_id_that_is_none(tmp_path: Path, own_id: Any) -> None:
    runs, problems = load(tmp_path, checkpoint(task_id=own_id))
    assert runs == []
    assert problems[0] == "task_id is no text"
