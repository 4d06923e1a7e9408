"""The events that an imported run still lacks in the log, in order.

What is recorded is recognised by its address: a message by its id, which follows from the task
and its place; a decision by its step; a result by step and position.

Knows items, states and the shapes of events; writes to no log, but large payloads go to the
blob store as they are met.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

from msgspec import Raw, Struct

from journal import events as ev
from journal.blobs import BlobStore
from journal.importers.model import (
    Decision,
    Failure,
    ImportedRun,
    Message,
    Result,
    StepDone,
    V1Step,
    Value,
)
from journal.payloads import clean, decision_payload, payload
from journal.state import COMPLETED, FAILED, PENDING, Call, Step, TaskState
from journal.values import digest_value


class Entry(Struct):
    """An event to be written. `id` is a message's; `v` is set where it is not the current one."""

    type: str
    body: Struct
    id: str | None = None
    v: int | None = None


def message_id(task_id: str, place: int) -> str:
    """The id of a task's message: 32 hex digits that follow from its place, from 0 on."""
    return hashlib.sha256(f"{task_id}\n{place}".encode()).hexdigest()[:32]


class Plan:
    """The events of a run that a state lacks, in order."""

    def __init__(self, state: TaskState, run: ImportedRun, blobs: BlobStore) -> None:
        self._state = state
        self._run = run
        self._blobs = blobs
        self._messages = 0
        self._last_message: str | None = None
        self._last: Decision | None = None
        """The decision whose step has not ended."""
        self._answered: set[int] = set()

    async def entries(self) -> AsyncIterator[Entry]:
        ended = self._run.status != "running"
        for place, item in enumerate(self._run.items):
            match item:
                case Message():
                    found = await self._message(item)
                case Decision():
                    for each in await self._decision(item):
                        yield each
                    continue
                case Result():
                    found = await self._result(item)
                case StepDone():
                    # What may still get calls must stay open for them.
                    found = self._done(item) if ended or place < self._run.settled else None
                case Failure():
                    found = self._failure(item)
                case V1Step():
                    found = await self._v1_step(item)
                case Value():
                    found = await self._value(item)
            if found is not None:
                yield found
        if not ended:
            for each in self._open_calls():
                yield each
        elif not self._state.exists or self._state.running:
            yield await self._end()

    def _step(self, index: int) -> Step | None:
        return self._state.steps.get(index)

    def _completed(self, index: int) -> bool:
        step = self._step(index)
        return step is not None and step.status == COMPLETED

    def _call(self, index: int, position: int) -> Call | None:
        step = self._step(index)
        return None if step is None or step.calls is None else step.calls.get(position)

    async def _message(self, item: Message) -> Entry | None:
        id = self._last_message = message_id(self._state.task_id, self._messages)
        self._messages += 1
        if id in self._state.messages_received:
            return None
        content = await payload(item.content, self._blobs)
        body = ev.MessageReceived(item.role, content, item.name, item.tool_call_id, item.at)
        return Entry("MessageReceived", body, id=id)

    async def _decision(self, item: Decision) -> list[Entry]:
        self._last = item
        self._answered = set()
        step = self._step(item.step_index)
        if step is None or (step.raw_decision is None and step.status != COMPLETED):
            decision = await decision_payload(item.made, self._blobs)
            body = ev.StepStarted(
                item.step_index, item.attempt, decision, self._last_message, item.at
            )
            return [Entry("StepStarted", body)]
        if step.status == COMPLETED:
            return []
        # The decision had fewer calls when it was imported.
        later = []
        for position, call in enumerate(item.made.tool_calls):
            if self._call(item.step_index, position) is None:
                arguments = await payload(call.arguments, self._blobs)
                later.append(self._call_started(item, position, arguments))
        return later

    def _call_started(self, item: Decision, position: int, arguments: Raw = ev.ABSENT) -> Entry:
        call = item.made.tool_calls[position]
        body = ev.ToolCallStarted(
            item.step_index,
            position,
            call.name,
            digest_value(call.arguments),
            item.attempt,
            tool_call_id=call.id,
            arguments=arguments,
            started_at=item.at,
        )
        return Entry("ToolCallStarted", body)

    def _attempt(self, index: int) -> int:
        return self._last.attempt if self._last and self._last.step_index == index else 1

    async def _result(self, item: Result) -> Entry | None:
        index, position = item.step_index, item.position
        self._answered.add(position)
        call = self._call(index, position)
        if self._completed(index) or (call is not None and call.finished):
            return None
        attempt = self._attempt(index)
        if item.error is not None:
            failed = ev.ToolCallFailed(
                index,
                position,
                item.error_type or "error",
                clean(item.error, self._blobs),
                True,
                attempt,
                item.at,
            )
            return Entry("ToolCallFailed", failed)
        result = await payload(item.result, self._blobs)
        body = ev.ToolCallCompleted(index, position, result, attempt, item.at)
        return Entry("ToolCallCompleted", body)

    def _done(self, item: StepDone) -> Entry | None:
        attempt, self._last = self._attempt(item.step_index), None
        if self._completed(item.step_index):
            return None
        body = ev.StepCompleted(item.step_index, attempt, completed_at=item.at)
        return Entry("StepCompleted", body)

    def _failure(self, item: Failure) -> Entry | None:
        step = self._step(item.step_index)
        if step is not None:
            failed = step.attempt - 1 + (step.status == FAILED)
            if step.status == COMPLETED or item.attempt <= failed:
                return None
        error = clean(item.error, self._blobs)
        body = ev.StepFailed(item.step_index, item.error_type, error, item.attempt, item.at)
        return Entry("StepFailed", body)

    async def _v1_step(self, item: V1Step) -> Entry | None:
        if self._completed(item.step_index):
            return None
        body = V1Step(
            item.step_index,
            None if item.thought is None else clean(item.thought, self._blobs),
            item.tool_name,
            None if item.tool_args is None else await payload(item.tool_args, self._blobs),
            None if item.observation is None else await payload(item.observation, self._blobs),
            item.tokens_used,
            item.completed_at,
        )
        return Entry("StepCompleted", body, v=1)

    async def _value(self, item: Value) -> Entry | None:
        value = await payload(item.value, self._blobs)
        known = self._state.results.get(item.name)
        if known is not None and bytes(known) == bytes(value):
            return None
        return Entry("ResultRecorded", ev.ResultRecorded(item.name, value))

    def _open_calls(self) -> list[Entry]:
        """The source has asked for these and shows no result: they had begun."""
        last, opened = self._last, []
        if last is None or self._completed(last.step_index):
            return []
        step = self._step(last.step_index)
        for position in range(len(last.made.tool_calls)):
            call = self._call(last.step_index, position)
            # A call that a grown decision brought was started along with it.
            new = step is None or step.raw_decision is None
            pending = call is not None and call.status == PENDING
            if position not in self._answered and (new or pending):
                opened.append(self._call_started(last, position))
        return opened

    async def _end(self) -> Entry:
        run = self._run
        if run.status == "failed":
            error = clean(run.error or "", self._blobs)
            failed = ev.TaskFailed(run.error_type or "error", error, run.ended_at)
            return Entry("TaskFailed", failed)
        if run.status == "cancelled":
            why = None if run.error is None else clean(run.error, self._blobs)
            return Entry("TaskCancelled", ev.TaskCancelled(why, run.ended_at))
        answer = ev.ABSENT
        if run.final_answer is not None:
            answer = await payload(run.final_answer, self._blobs)
        return Entry("TaskCompleted", ev.TaskCompleted(answer, completed_at=run.ended_at))
