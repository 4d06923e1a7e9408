"""SWE-agent's trajectories, of the textual and of the calling style."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from journal.importers.files import read_file
from journal.importers.model import (
    Decision,
    ImportedRun,
    Message,
    Problem,
    Result,
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


def test_a_failed_run_keeps_what_it_submitted(tmp_path: Path) -> None:
    run = one(tmp_path, traj(info={"exit_status": "exit_error", "submission": "half a patch"}))
    assert (run.status, run.final_answer) == ("failed", None)
    assert run.items[-1] == Value("submission", "half a patch")


def test_an_observation_without_an_action(tmp_path: Path) -> None:
    document = traj(1)
    document["trajectory"] += [
        {"action": "", "observation": "Exit due to cost", "response": "", "thought": "enough"},
        {"action": "", "observation": "", "response": "", "thought": "nothing"},
    ]
    run = one(tmp_path, document)
    assert [d.made.tool_calls for d in decisions(run)][1:] == [[], []]
    strays = [m.content for m in run.items if isinstance(m, Message) and m.role == "tool"]
    assert strays == ["Exit due to cost"]
