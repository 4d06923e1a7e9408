"""Tasks as a log has them: one, from an offset on, or all.

Reads and folds; claims nothing and writes nothing.
"""

from __future__ import annotations

import contextlib

from journal.acceptance import HEADLESS
from journal.codec import decode_event
from journal.errors import BadRecord, HistoryTruncated
from journal.fold import apply
from journal.genesis import GENESIS_KEY
from journal.log import NONE, Log
from journal.state import TaskState


async def caught_up(log: Log, state: TaskState, start: int) -> tuple[TaskState, int, int]:
    """Fold what the log has of the task from `start` on into `state`: (state, offset up to which
    it is known, offset of the task's last record). Raises `EventTooNew`, `HistoryTruncated` where
    there is only a later part of the task, and what reading can."""
    headless = False
    known = (await log.ends())[state.partition] - 1
    last = state.offset if state.exists else NONE
    for record in await log.read_key(state.partition, state.task_id.encode(), start):
        last = record.offset
        known = max(known, last)
        with contextlib.suppress(BadRecord):
            verdict = apply(state, decode_event(record.value, record.key), record.offset)
            headless = headless or verdict.label == HEADLESS
    if headless and not state.exists and (first := await cut_at(log, state.partition)):
        raise HistoryTruncated(
            f"task {state.task_id}: its beginning has been deleted, {log.url} begins at "
            f"{state.partition}:{first}; resume through a projection that has read it, or use "
            f"another id"
        )
    return state, known, last


async def cut_at(log: Log, partition: int) -> int:
    """Where a partition begins now, if its beginning has been deleted; 0 where it is whole."""
    first = (await log.starts())[partition]
    # Its genesis record was the first, at 0 or 1.
    return first if first > 1 else 0


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
