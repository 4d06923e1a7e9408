"""ATIF documents of every minor version, with sub-agents and continuations."""

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
