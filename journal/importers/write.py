"""Writes imported runs to a log: each run a task, and of a run that is there only what is new.

An import that was cut off goes on where it stopped, and a second one adds nothing. A task belongs
to its importer until an agent claims it; from then on it is left alone. Of a decision that was
imported while its source was still writing it, later calls are added; its text and its usage
stay as recorded, since a decision is written once.

Knows the owner's pipeline and how a task is chosen; what is written is `plan`. Prints nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from journal import events as ev
from journal.blobs import BlobStore
from journal.client import Journal
from journal.errors import TaskEnded, TaskFenced, ValueRefused
from journal.importers.model import Decision, ImportedRun, Message
from journal.importers.plan import Entry, Plan
from journal.owner import Owner
from journal.payloads import clean, decision_payload, payload
from journal.state import COMPLETED, Step, TaskState
from journal.values import Load

Tell = Callable[[str], None]
"""Takes one line about a run, beginning with its task id."""

_AT_ONCE = 256
"""Appends on their way at a time."""


class Importer:
    """Writes runs to one journal. `note` hears what was left as it is, `problem` what could not
    be written."""

    def __init__(self, journal: Journal, note: Tell, problem: Tell) -> None:
        self._journal = journal
        self._note = note
        self._problem = problem
        self._keys: set[bytes] | None = None

    async def write(self, run: ImportedRun) -> int:
        """Write what is new of a run; returns how many events that was. Raises `LogError`."""
        task_id = await self._task_id(run)
        try:
            async with self._journal.owned(task_id) as owner:
                return await self._write(owner, run)
        except (TaskFenced, TaskEnded):
            self._note(f"{task_id}: claimed by somebody else meanwhile; left alone")
        except ValueRefused as error:
            self._problem(f"{task_id}: cannot be written: {error}")
        return 0

    async def _task_id(self, run: ImportedRun) -> str:
        if not run.earlier_ids:
            return run.task_id
        if self._keys is None:
            self._keys = await _keys(self._journal)
        for task_id in (run.task_id, *run.earlier_ids):
            if task_id.encode() not in self._keys:
                continue
            if task_id == run.task_id:
                return task_id
            state = await self._journal.state(task_id)
            if await _begins(state, run, self._journal.blobs):
                return task_id
        self._keys.add(run.task_id.encode())
        return run.task_id

    async def _write(self, owner: Owner, run: ImportedRun) -> int:
        state = owner.state
        if state.exists and state.imported_from is None:
            self._note(f"{state.task_id}: an agent has claimed it; left alone")
            return 0
        if state.run_epoch:
            self._note(f"{state.task_id}: it was reopened since; left alone")
            return 0
        entries = [entry async for entry in Plan(state, run, self._journal.blobs).entries()]
        if not entries and state.exists:
            return 0
        if state.exists and not state.running:
            self._note(f"{state.task_id}: has ended ({state.status}); {len(entries)} new left out")
            return 0
        for index in _grown(state, run, self._journal.blobs):
            self._note(f"{state.task_id}: step {index} was imported unfinished; its text stays")
        if state.exists:
            claim = ev.TaskClaimed(agent_name=run.agent_name, imported_from=run.source_format)
            await owner.claim("TaskClaimed", claim, state.head.epoch + 1)
        else:
            start = ev.TaskStarted(
                clean(run.description, self._journal.blobs),
                run.agent_name,
                conversation_id=run.conversation_id,
                imported_from=run.source_format,
                started_at=run.started_at,
            )
            await owner.claim("TaskStarted", start, 0)
        for first in range(0, len(entries), _AT_ONCE):
            # Each coroutine submits before it first waits, so the order is that of the list.
            some = entries[first : first + _AT_ONCE]
            for entry, label in zip(
                some, await asyncio.gather(*(_append(owner, e) for e in some)), strict=True
            ):
                if label:
                    self._problem(f"{state.task_id}: {entry.type} does not fit: {label}")
        return 1 + len(entries)


async def _append(owner: Owner, entry: Entry) -> str:
    if entry.id is not None:
        verdict = await owner.put(entry.type, entry.body, id=entry.id)
    else:
        verdict = await owner.append(entry.type, entry.body, v=entry.v)
    return verdict.detail or verdict.label


async def _keys(journal: Journal) -> set[bytes]:
    keys: set[bytes] = set()
    for partition, start in (await journal.log.starts()).items():
        async for batch in journal.log.read(partition, start):
            keys.update(record.key for record in batch if record.key is not None)
    return keys


# --- what is recorded against what was read -----------------------------------------------------


async def _begins(state: TaskState, run: ImportedRun, blobs: BlobStore) -> bool:
    """Whether all messages and decisions that the state holds stand in the run as well."""
    messages = [item for item in run.items if isinstance(item, Message)]
    made = {item.step_index: item.made for item in run.items if isinstance(item, Decision)}
    if len(state.messages_received) > len(messages) or not state.steps.keys() <= made.keys():
        return False
    for place, recorded in enumerate(state.messages_received.values()):
        said = messages[place]
        content = bytes(await payload(said.content, blobs))
        if (recorded.role, bytes(recorded.content)) != (said.role, content):
            return False
    for index, step in state.steps.items():
        if step.raw_decision is None or _same_reply(step, made[index], blobs.get):
            continue
        if bytes(step.raw_decision) != bytes(await decision_payload(made[index], blobs)):
            return False
    return True


def _same_reply(step: Step, made: ev.Decision, load: Load) -> bool:
    known = step.decision(load)
    return (
        known is not None
        and known.response_id is not None
        and (known.response_id == made.response_id)
    )


def _grown(state: TaskState, run: ImportedRun, blobs: BlobStore) -> list[int]:
    """The steps whose decision has become another since it was imported."""
    grown = []
    for item in run.items:
        step = state.steps.get(item.step_index) if isinstance(item, Decision) else None
        if step is None or step.raw_decision is None or step.status == COMPLETED:
            continue
        assert isinstance(item, Decision)
        known, made = step.decision(blobs.get), item.made
        told = None if known is None else (known.reasoning, known.usage, known.text)
        reasoning, text = (said and clean(said, blobs) for said in (made.reasoning, made.text))
        if told != (reasoning, made.usage, text):
            grown.append(item.step_index)
    return grown
