"""Real runs of four formats, read where they lie: JOURNAL_TEST_RUNS names the folder.

Nothing of them is kept here. The folder's manifest says what each file holds, counted by other
means than ours.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from journal.codec import check_task_id
from journal.importers.files import read_file
from journal.importers.model import (
    Decision,
    ImportedRun,
    Message,
    Problem,
    Result,
    StepDone,
    Value,
)

FOLDER = os.environ.get("JOURNAL_TEST_RUNS")
FORMATS = {
    "claude_code_jsonl": "claude-code",
    "atif": "atif",
    "openai_messages_tau_bench": "openai",
    "swe_agent_traj": "swe-agent",
}

pytestmark = pytest.mark.skipif(
    FOLDER is None, reason="JOURNAL_TEST_RUNS does not name a folder of sample runs"
)


class Sample:
    """One file of the folder, what the manifest says about it, and what was read from it."""

    def __init__(self, folder: Path, said: dict[str, Any]) -> None:
        self.path = folder / said["file"]
        self.name: str = said["file"]
        self.format: str = said["format"]
        self.said = said
        self.problems: list[Problem] = []
        self.runs: list[ImportedRun] = list(read_file(self.path, self.problems.append))

    def count(self, kind: type) -> int:
        return sum(isinstance(item, kind) for run in self.runs for item in run.items)


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    folder = Path(FOLDER or "")
    return [Sample(folder, said) for said in json.loads((folder / "manifest.json").read_text())]


@pytest.fixture(scope="module")
def known(samples: list[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.format in FORMATS]


def test_59_files_give_155_tasks(known: list[Sample]) -> None:
    assert len(known) == 59
    assert all(sample.runs for sample in known)
    ids = [run.task_id for sample in known for run in sample.runs]
    # 29 files of sessions, 8 trajectories, 100 conversations in 2 files and 20 instances are
    # 157 runs; three of the sessions are one that has grown.
    assert len(ids) == 157
    assert len(set(ids)) == 155
    for task_id in ids:
        check_task_id(task_id)


def test_each_file_is_read_as_its_format(known: list[Sample]) -> None:
    for sample in known:
        assert {run.source_format for run in sample.runs} == {FORMATS[sample.format]}, sample.name


def test_runs_and_steps_are_those_of_the_manifest(known: list[Sample]) -> None:
    counted = [sample for sample in known if sample.said.get("steps") is not None]
    assert len(counted) == 56
    for sample in counted:
        assert len(sample.runs) == sample.said["runs"], sample.name
        assert sample.count(Decision) == sample.said["steps"], sample.name


def test_only_what_is_broken_on_purpose_is_reported(known: list[Sample]) -> None:
    reported = {sample.name: len(sample.problems) for sample in known if sample.problems}
    assert reported == {"claude_code_jsonl/claude_code_log/edge_cases.jsonl": 6}


def test_every_call_and_every_result_of_a_session_is_there(known: list[Sample]) -> None:
    for sample in known:
        if sample.format != "claude_code_jsonl" or sample.problems:
            continue
        lines = sample.path.read_text().replace(": ", ":").splitlines()
        lines = [line for line in lines if '"type":"progress"' not in line]
        made = [
            call
            for run in sample.runs
            for item in run.items
            if isinstance(item, Decision)
            for call in item.made.tool_calls
        ]
        strays = [
            item
            for run in sample.runs
            for item in run.items
            if isinstance(item, Message) and item.role == "tool"
        ]
        assert len(made) == len({call.id for call in made})
        assert len(made) == sum(line.count('"type":"tool_use"') for line in lines)
        answered = sum(line.count('"type":"tool_result"') for line in lines)
        assert sample.count(Result) + len(strays) == answered, sample.name


def test_a_result_without_a_call_and_a_call_without_a_result(known: list[Sample]) -> None:
    strays = {
        sample.name: sum(
            isinstance(item, Message) and item.role == "tool" and item.tool_call_id is not None
            for run in sample.runs
            for item in run.items
        )
        for sample in known
        if sample.format == "claude_code_jsonl"
    }
    assert {name for name, number in strays.items() if number} == {
        "claude_code_jsonl/special/entire__00_c9e2351016_2.jsonl"
    }
    open_at_the_end = [
        sample.name
        for sample in known
        for run in sample.runs
        if run.status == "running" and sample.count(StepDone) < sample.count(Decision)
    ]
    assert "claude_code_jsonl/one_per_session/entire__4c_02af2759b6_0.jsonl" in open_at_the_end


def test_a_grown_session_is_the_same_task_and_begins_as_it_did(known: list[Sample]) -> None:
    stages = sorted(
        (sample for sample in known if "/growth_" in sample.name), key=lambda sample: sample.name
    )
    runs = [stage.runs[0] for stage in stages]
    assert len({run.task_id for run in runs}) == 1
    for shorter, longer in itertools.pairwise(runs):
        assert len(shorter.items) < len(longer.items)
        assert longer.items[: shorter.settled] == shorter.items[: shorter.settled]


def test_sub_agents_share_the_sessions_id(known: list[Sample]) -> None:
    ids = sorted(
        run.task_id for sample in known if "/codecanvas_tb2/" in sample.name for run in sample.runs
    )
    session = ids[0]
    assert ids == [session, f"{session}:agent-ad8b54d", f"{session}:agent-adef011"]


def test_a_480_kb_observation(known: list[Sample]) -> None:
    (sample,) = [s for s in known if s.name.endswith("special/entire__ad_a8171575ce_0.jsonl")]
    results = [item.result for item in sample.runs[0].items if isinstance(item, Result)]
    sizes = [len(json.dumps(result)) for result in results]
    assert max(sizes) > 470_000


def test_the_same_run_told_by_two_formats_counts_the_same_output(known: list[Sample]) -> None:
    (atif,) = [sample for sample in known if sample.name.startswith("atif/codecanvas")]
    metrics = next(item.value for item in atif.runs[0].items if isinstance(item, Value))
    usages = [item.made.usage for item in atif.runs[0].items if isinstance(item, Decision)]
    assert sum(u.output_tokens for u in usages if u) == metrics["total_completion_tokens"]
    read = sum(u.cache_read_input_tokens for u in usages if u)
    assert read == metrics["total_cached_tokens"]
    created = sum(u.cache_creation_input_tokens for u in usages if u)
    assert created == metrics["extra"]["total_cache_creation_input_tokens"]
    # Its prompt tokens leave out what was written to the cache; ours include it.
    inputs = sum(u.input_tokens for u in usages if u)
    assert inputs == metrics["total_prompt_tokens"] + created


def test_statuses(known: list[Sample]) -> None:
    by_format: dict[str, set[str]] = {}
    for sample in known:
        by_format.setdefault(sample.format, set()).update(run.status for run in sample.runs)
    assert by_format == {
        "claude_code_jsonl": {"running"},
        "atif": {"running"},
        "openai_messages_tau_bench": {"completed"},
        "swe_agent_traj": {"completed", "running"},
    }


def test_other_formats_are_named_unknown_file_by_file(samples: list[Sample]) -> None:
    others = [sample for sample in samples if sample.format not in FORMATS]
    assert others
    for sample in others:
        assert sample.runs == [], sample.name
        (problem,) = sample.problems
        assert problem.reason.startswith("unknown format"), sample.name
