"""Claims: whether a task may be opened, and the event that its new owner wins it with.

Knows the owner's pipeline and states; knows nothing of how a task is found.
"""

from __future__ import annotations

import logging

import msgspec

from journal import events as ev
from journal.errors import TaskEnded, TaskMismatch, TaskRunning
from journal.owner import Owner
from journal.state import Subtask, TaskState

logger = logging.getLogger("journal")


class Resumed(msgspec.Struct, frozen=True):
    """What a resumption saved."""

    task_id: str
    step_index: int
    steps_reused: int
    tokens_reused: int

    def __str__(self) -> str:
        return (
            f"Resuming {self.task_id} at step {self.step_index}: {self.steps_reused} steps and "
            f"{self.tokens_reused:,} tokens reused"
        )


def check_open(state: TaskState, description: str | None, takeover: bool) -> None:
    """Raise `TaskMismatch`, `TaskEnded` (it failed) or `TaskRunning` where it may not be."""
    if description is not None and description != state.description:
        raise TaskMismatch(
            f"task {state.task_id} is {state.description!r}, not {description!r}; "
            f"use its own description, none, or another id"
        )
    if state.status == "failed":
        raise TaskEnded(
            f"task {state.task_id} failed ({state.error_type}: {state.error}); "
            f"reopen it with: journal retry {state.task_id}"
        )
    if state.running and not takeover:
        raise TaskRunning(f"task {state.task_id} has an owner; open it with takeover=True")


async def claim(
    owner: Owner, description: str | None, agent_name: str | None, worker: str | None
) -> Resumed | None:
    """Start the task, or take it over; returns what that saved."""
    state = owner.state
    if not state.exists:
        assert description is not None
        await owner.claim("TaskStarted", ev.TaskStarted(description, agent_name, worker), 0)
        return None
    await owner.claim("TaskClaimed", ev.TaskClaimed(worker, agent_name), state.head.epoch + 1)
    resumed = Resumed(
        state.task_id, state.current_step, len(state.completed_steps), state.total_tokens
    )
    logger.info("%s", resumed)
    return resumed


async def claim_child(
    owner: Owner, parent_id: str, subtask: Subtask, parent_epoch: int, worker: str | None
) -> None:
    """Start a sub-task for its parent, take it over, or begin it anew where it failed."""
    state, epoch = owner.state, 0
    type: str
    body: msgspec.Struct
    if not state.exists:
        type, body = (
            "TaskStarted",
            ev.TaskStarted(subtask.name, worker=worker, parent_task_id=parent_id),
        )
    else:
        epoch = state.head.epoch + 1
        if state.running:
            type, body = "TaskClaimed", ev.TaskClaimed(worker)
        else:
            type, body = "TaskReopened", ev.TaskReopened(worker, "its parent was reopened")
    await owner.claim(type, body, epoch, ref=subtask.id, parent_epoch=parent_epoch)
