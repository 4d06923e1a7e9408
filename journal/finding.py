"""Tasks as a log has them: one, from an offset on, or all.

Reads and folds; claims nothing and writes nothing.
"""

from __future__ import annotations

import contextlib

from journal.codec import decode_event
from journal.errors import BadRecord
from journal.fold import apply
from journal.genesis import GENESIS_KEY
from journal.log import NONE, Log
from journal.state import TaskState


async def caught_up(log: Log, state: TaskState, start: int) -> tuple[TaskState, int, int]:
    """Fold what the log has of the task from `start` on into `state`: (state, offset up to which
    it is known, offset of the task's last record). Raises `EventTooNew` and what reading can."""
    known = (await log.ends())[state.partition] - 1
    last = state.offset if state.exists else NONE
    for record in await log.read_key(state.partition, state.task_id.encode(), start):
        last = record.offset
        known = max(known, last)
        with contextlib.suppress(BadRecord):
            apply(state, decode_event(record.value, record.key), record.offset)
    return state, known, last


async def every_state(log: Log) -> list[TaskState]:
    """Every task's state, in order of appearance. Raises `EventTooNew` and what reading can."""
    states: dict[str, TaskState] = {}
    for partition, start in (await log.starts()).items():
        async for batch in log.read(partition, start):
            for record in batch:
                if record.key == GENESIS_KEY:
                    continue
                try:
                    event = decode_event(record.value, record.key)
                except BadRecord:
                    continue
                if event.task_id is None:
                    continue
                state = states.get(event.task_id)
                if state is None:
                    state = TaskState(event.task_id, partition=partition)
                    states[event.task_id] = state
                apply(state, event, record.offset)
    return [state for state in states.values() if state.exists]
