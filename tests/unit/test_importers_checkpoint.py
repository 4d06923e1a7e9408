"""Plain checkpoints of both versions, good and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from journal.importers.files import read_file
from journal.importers.model import (
    ImportedRun,
    Problem,
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
