"""Plain checkpoints: the JSON object that many people keep in Redis or in a file, one a task.

`task_id`, `task_description`, `status`, `current_step`, `completed_steps`; from
`checkpoint_version` 2.0 on also `accumulated_results` and `total_tokens`; no version means
1.0. Its steps become version 1 of `StepCompleted`.

The task's id is `checkpoint:` and the checkpoint's own: an id by itself would be handier, but
the same id may already be a task that an agent has started here, and an import must not be
able to touch that. There is no digest: a store overwrites a task's checkpoint in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from journal.importers.model import ImportedRun, Item, Report, V1Step, Value, label, plain_id
from journal.importers.reading import (
    Dict,
    Malformed,
    count,
    maybe_dict,
    maybe_str,
    moment,
    need_dict,
    need_list,
)

FORMAT = "checkpoint"
_STATUS = {
    "completed": "completed",
    "complete": "completed",
    "done": "completed",
    "finished": "completed",
    "success": "completed",
    "succeeded": "completed",
    "failed": "failed",
    "error": "failed",
    "cancelled": "cancelled",
    "canceled": "cancelled",
}
_GOING_ON = ("running", "in_progress", "pending", "queued", "submitted", "waiting", "paused")


def detect(value: Any) -> bool:
    """Whether this object is a checkpoint."""
    return isinstance(value, dict) and "task_id" in value and "completed_steps" in value


def read(document: Dict, report: Report) -> Iterator[ImportedRun]:
    """The one run. Raises `Malformed`."""
    own_id = document["task_id"]
    if isinstance(own_id, bool) or not isinstance(own_id, str | int) or own_id == "":
        raise Malformed("task_id is no text")
    version = _version(document.get("checkpoint_version"), report)
    items: list[Item] = []
    indexes: set[int] = set()
    for i, value in enumerate(need_list(document.get("completed_steps"), "completed_steps")):
        where = f"completed_steps[{i}]"
        try:
            step = _step(need_dict(value, where), i, where, report)
        except Malformed as error:
            report(f"{error}; skipped")
            continue
        if step.step_index in indexes:
            report(f"{where}: step {step.step_index} for the second time; skipped")
            continue
        indexes.add(step.step_index)
        items.append(step)
    settled = len(items)
    if version >= 2:
        results = maybe_dict(document.get("accumulated_results"), "accumulated_results", report)
        items.extend(Value(name, value) for name, value in results.items())
        _check_total(document.get("total_tokens"), items, report)
    times = [item.completed_at for item in items if isinstance(item, V1Step)]
    started = moment(document.get("started_at"), "started_at", report)
    description = maybe_str(document.get("task_description"), "task_description", report)
    run = ImportedRun(
        task_id=plain_id(FORMAT, str(own_id)),
        description=description or f"Checkpoint {label(str(own_id)) or ''}".strip(),
        source_format=FORMAT,
        items=items,
        settled=settled,
        agent_name=maybe_str(document.get("agent_name"), "agent_name", report),
        conversation_id=str(own_id),
        started_at=started,
        ended_at=next(filter(None, reversed(times)), started),
    )
    _end(run, document, report)
    yield run


def _version(value: Any, report: Report) -> int:
    try:
        major = int(str(1 if value is None else value).split(".")[0])
    except ValueError:
        report(f"checkpoint_version {str(value)[:40]!r} is no version; read as 1.0")
        return 1
    if major > 2:
        report(f"checkpoint_version {value} is newer than 2; what it adds is left out")
    return major


def _step(step: Dict, place: int, path: str, report: Report) -> V1Step:
    index = step.get("step_index", place)
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < 1 << 31:
        raise Malformed(f"{path}.step_index is no number from 0 on")
    tokens = step.get("tokens_used")
    return V1Step(
        step_index=index,
        thought=maybe_str(step.get("thought"), f"{path}.thought", report),
        tool_name=maybe_str(step.get("tool_name"), f"{path}.tool_name", report),
        tool_args=step.get("tool_args"),
        observation=step.get("observation"),
        tokens_used=None if tokens is None else count(tokens, f"{path}.tokens_used", report),
        completed_at=moment(step.get("completed_at"), f"{path}.completed_at", report),
    )


def _check_total(total: Any, items: list[Item], report: Report) -> None:
    """The journal's total is that of the steps; a checkpoint that says otherwise is told."""
    sum_of_steps = sum(item.tokens_used or 0 for item in items if isinstance(item, V1Step))
    if total is not None and count(total, "total_tokens", report) != sum_of_steps:
        report(f"total_tokens is {total}, its steps add up to {sum_of_steps}; the steps count")


def _end(run: ImportedRun, document: Dict, report: Report) -> None:
    status = maybe_str(document.get("status"), "status", report) or "running"
    run.status = _STATUS.get(status.lower(), "running")
    if run.status == "completed":
        run.final_answer = document.get("final_answer")
    elif run.status == "failed":
        error = document.get("error")
        run.error = error if isinstance(error, str) else f"the checkpoint says {status}"
        kind = maybe_str(document.get("error_type"), "error_type", report)
        run.error_type = kind or status.lower()
    elif run.status == "cancelled":
        error = document.get("error")
        run.error = error if isinstance(error, str) else None
    elif status.lower() not in _GOING_ON:
        report(f"status {status[:40]!r} is not known; taken as running")
