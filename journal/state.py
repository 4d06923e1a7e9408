"""What a run has come to: the state of one task, its steps, calls and messages.

How events change it is `evolve`. Pure; no clock: every time in a state is one that an event
carries. A state keeps payloads as the bytes they were written in and decodes them when asked.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from journal import events as ev
from journal.acceptance import RUNNING, WAITS, Head
from journal.events import CallOutcome, Decision, Usage, given
from journal.values import Load, decode_value, loads

OPEN: Final = "open"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
STARTED: Final = "started"
UNCERTAIN: Final = "uncertain"
PENDING: Final = "pending"
RECEIVED: Final = "received"
FIRED: Final = "fired"


class _Recorded(Decision):
    """A decision as it stands in an event: its texts too may be kept elsewhere."""

    text: Any = None
    reasoning: Any = None


_decision = msgspec.json.Decoder(_Recorded)


def _decode(raw: Raw) -> _Recorded:
    try:
        return _decision.decode(raw)
    except msgspec.ValidationError:
        # A number that Python has no type for; the fold has looked at everything else.
        return msgspec.convert(loads(raw), _Recorded)


class Call(Struct, gc=False):
    """One tool call, known by (step, position). `status` is pending (asked for, not begun),
    started, uncertain (a `once` call whose worker was lost in it), completed or failed."""

    position: int
    tool_name: str
    tool_call_id: str | None = None
    status: str = PENDING
    attempt: int = 1
    effect: str | None = None
    arguments: Raw | None = None
    arguments_digest: str | None = None
    result: Raw | None = None
    error_type: str | None = None
    error: str | None = None
    failures: int = 0
    starts: int = 0
    started_at: str | None = None
    completed_at: str | None = None

    @property
    def finished(self) -> bool:
        return self.status in (COMPLETED, FAILED)


class Step(Struct, gc=False):
    """One turn of the agent. `status` is open, failed (the next attempt has not begun) or
    completed; `attempt` counts from 1 and only a failure raises it."""

    index: int
    status: str = OPEN
    attempt: int = 1
    raw_decision: Raw | None = None
    outcomes: tuple[CallOutcome, ...] | None = None
    calls: dict[int, Call] | None = None
    usage: Usage | None = None
    last_message: str | None = None
    error_type: str | None = None
    error: str | None = None
    started_at: str | None = None
    completed_at: str | None = None

    def decision(self, load: Load | None = None) -> Decision | None:
        """The decision with its payloads decoded; those kept elsewhere come from `load`."""
        if self.raw_decision is None:
            return None
        decision = _decode(self.raw_decision)
        for name in ("text", "reasoning", "content"):
            setattr(decision, name, _plain(getattr(decision, name), load))
        for call in decision.tool_calls:
            call.arguments = _plain(call.arguments, load)
        return decision

    def all_calls(self) -> list[Call]:
        """Every call of the step by position, whichever way it was recorded."""
        calls = dict(self.calls or {})
        if self.raw_decision is not None:
            for position, asked in enumerate(_decode(self.raw_decision).tool_calls):
                call = calls.get(position)
                arguments = Raw(msgspec.json.encode(asked.arguments))
                if call is None:
                    calls[position] = self._recorded(position, asked, arguments)
                elif call.arguments is None:
                    calls[position] = msgspec.structs.replace(call, arguments=arguments)
        return [calls[position] for position in sorted(calls)]

    def _recorded(self, position: int, asked: ev.ToolCall, arguments: Raw) -> Call:
        call = Call(position, asked.name, asked.id, arguments=arguments, attempt=self.attempt)
        if self.outcomes is not None and position < len(self.outcomes):
            outcome = self.outcomes[position]
            call.result, call.error = given(outcome.result), outcome.error
            call.error_type = outcome.error_type
            call.started_at = outcome.started_at
            call.completed_at = outcome.completed_at or self.completed_at
            call.status = COMPLETED if outcome.error is None else FAILED
        return call


class Message(Struct, gc=False):
    """A message from outside, in the order of the log."""

    id: str
    role: str
    content: Raw
    name: str | None = None
    tool_call_id: str | None = None
    received_at: str | None = None


class Subtask(Struct, gc=False):
    """A sub-task as its parent knows it. `status` is started, completed, failed or cancelled;
    `id` is that of its `SubtaskStarted`."""

    id: str
    name: str
    child_task_id: str
    function: str
    arguments_digest: str
    status: str = STARTED
    result: Raw | None = None
    error_type: str | None = None
    error: str | None = None


class Wait(Struct, gc=False):
    """Something that the task waits, or waited, for: an answer (`question` is given) or a time.
    `status` is pending, received or fired; `id` is that of the event that began it, `until` when
    its owner stops waiting."""

    id: str
    key: str
    question: Raw | None = None
    schema: Raw | None = None
    until: str | None = None
    status: str = PENDING
    value: Raw | None = None
    answered_by: str | None = None


class TaskState(Struct):
    """The checkpoint of one task: all that an agent needs to go on. See DESIGN.md part 4.

    `run_epoch` is the epoch of the claim that began the run, `traceparent` that of the last claim
    that had one. `partition` and `offset` are the position of the last event that changed it.
    """

    task_id: str
    head: Head = field(default_factory=Head)
    description: str = ""
    agent_name: str | None = None
    worker: str | None = None
    parent_task_id: str | None = None
    conversation_id: str | None = None
    imported_from: str | None = None
    current_step: int = 0
    steps: dict[int, Step] = field(default_factory=dict)
    messages_received: dict[str, Message] = field(default_factory=dict)
    results: dict[str, Raw] = field(default_factory=dict)
    values: dict[str, ev.ValueRecorded] = field(default_factory=dict)
    subtasks: dict[str, Subtask] = field(default_factory=dict)
    waits: dict[str, Wait] = field(default_factory=dict)
    cancel_reason: str | None = None
    run_epoch: int = 0
    traceparent: str | None = None
    usage: Usage = field(default_factory=Usage)
    final_answer: Raw | None = None
    error_type: str | None = None
    error: str | None = None
    started_at: str | None = None
    updated_at: str | None = None
    ended_at: str | None = None
    partition: int = 0
    offset: int = -1

    @property
    def exists(self) -> bool:
        return self.head.status != ""

    @property
    def status(self) -> str:
        return self.head.status

    @property
    def running(self) -> bool:
        """Whether there is more to do: it is running, or waiting."""
        return self.head.status in (RUNNING, WAITS)

    @property
    def pending(self) -> list[Wait]:
        """What the task waits for, oldest first."""
        return [wait for wait in self.waits.values() if wait.status == PENDING]

    @property
    def total_tokens(self) -> int:
        return self.usage.total

    @property
    def completed_steps(self) -> list[Step]:
        return [s for _, s in sorted(self.steps.items()) if s.status == COMPLETED]

    @property
    def started_calls(self) -> list[tuple[int, int]]:
        """The calls that have begun and not ended, as (step_index, position), in order."""
        return sorted(
            (step.index, call.position)
            for step in self.steps.values()
            for call in (step.calls or {}).values()
            if call.status == STARTED
        )

    def messages(self, style: str = "openai", load: Load | None = None) -> list[dict[str, Any]]:
        """The history for a model: `openai`, `anthropic` or `plain`. What is kept elsewhere comes
        from `load`, a journal's `blobs.get`. Raises `UsageError` for another style."""
        # Here, since that module knows this one.
        from journal.messages import messages

        return messages(self, style, load)

    @property
    def unread(self) -> list[Message]:
        """Messages that no decision has seen yet, oldest first."""
        ids = list(self.messages_received)
        seen = -1
        for step in self.steps.values():
            if step.last_message in self.messages_received:
                seen = max(seen, ids.index(step.last_message))
        return [self.messages_received[i] for i in ids[seen + 1 :]]


def _plain(value: Any, load: Load | None) -> Any:
    """A payload that was decoded along with its surroundings, as its writer had it."""
    if isinstance(value, dict | list):
        return decode_value(msgspec.json.encode(value), load)
    return value
