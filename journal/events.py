"""The events: one frozen envelope, and the current body of each type.

Names, shapes and classes of DESIGN.md part 3, for the event types that this release writes.
Pure data: no acceptance rule (fold), no old versions (upcasters), no bytes (codec), no clock.

A payload (arguments, results, message content, answers) stands in a body as `Raw`: the JSON as
it was written, so that folding a run neither decodes nor copies what it only keeps.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Raw, Struct

ABSENT: Final = Raw()
"""A payload that is not there, told by identity; JSON's `null` is one that is."""


def given(payload: Raw) -> Raw | None:
    """The payload, or None where it is absent."""
    return None if payload is ABSENT else payload


# --- the envelope ---------------------------------------------------------------------------


class Envelope(Struct, omit_defaults=True, gc=False):
    """What every record carries, of any type and version. Frozen for ever.

    type, v        the type and the version of its body
    id             unique, minted once, kept by retries
    task_id        1 to 255 bytes of UTF-8 without control characters; the record's key;
                   null for events about a partition
    epoch, owner   of claims and owner's events: the claim's number and its 128-bit nonce
    seq            owner's: from 1, running on across epochs
    ref            the `id` of the event that this one is about
    parent_epoch   on a sub-task's claims
    at             UTC, RFC 3339, when it was written; information only
    traceparent    W3C trace context
    body           an object whose shape belongs to (type, v)
    """

    type: str
    v: int
    id: str
    task_id: str | None = None
    epoch: int | None = None
    owner: str | None = None
    seq: int | None = None
    ref: str | None = None
    parent_epoch: int | None = None
    at: str | None = None
    traceparent: str | None = None
    body: Raw = Raw(b"{}")


# --- parts of bodies ------------------------------------------------------------------------


class Usage(Struct, omit_defaults=True, gc=False):
    """Tokens by kind, in OpenTelemetry GenAI names. `input_tokens` includes what was read from
    or written to a cache. `total_tokens` is only for sources that know nothing finer."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0

    @property
    def total(self) -> int:
        """Input plus output; the reported total where that is more."""
        total = self.input_tokens + self.output_tokens
        return total if total > self.total_tokens else self.total_tokens

    def add(self, other: Usage) -> None:
        """Add another usage to this one; the total is that of all that was added."""
        total = self.total + other.total
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cache_read_input_tokens += other.cache_read_input_tokens
        self.cache_creation_input_tokens += other.cache_creation_input_tokens
        self.reasoning_output_tokens += other.reasoning_output_tokens
        self.total_tokens = total


class ToolCall(Struct, omit_defaults=True, rename={"name": "tool_name", "id": "tool_call_id"}):
    """A tool call as the model asked for it. `arguments` is an object, or whatever the model
    wrote where that was no object. `id` is the model's own and may repeat within a run."""

    name: str
    arguments: Any = None
    id: str | None = None


class Decision(Struct, omit_defaults=True):
    """What a model decided in one step.

    text             what it said, or its thought
    tool_calls       in the order asked for; the position in this list names a call
    usage            tokens of this reply
    reasoning        hidden reasoning, where the model shows it
    content          the provider's own content parts, where text alone would lose something
    request_model, response_model, finish_reasons, response_id, provider_name
                     as OpenTelemetry GenAI defines them
    """

    text: str | None = None
    tool_calls: list[ToolCall] = []
    usage: Usage | None = None
    reasoning: str | None = None
    content: Any = None
    request_model: str | None = None
    response_model: str | None = None
    finish_reasons: list[str] | None = None
    response_id: str | None = None
    provider_name: str | None = None


class CallHead(Struct, rename={"name": "tool_name", "id": "tool_call_id"}, gc=False):
    """Of a tool call only what the fold needs; the arguments are skipped, not decoded."""

    name: str
    id: str | None = None


class DecisionHead(Struct, gc=False):
    """Of a decision what the fold needs, and whatever else must have the right type for a
    `Decision` to be made of it later; payloads are skipped."""

    usage: Usage | None = None
    tool_calls: list[CallHead] = []
    request_model: str | None = None
    response_model: str | None = None
    finish_reasons: list[str] | None = None
    response_id: str | None = None
    provider_name: str | None = None


class CallOutcome(Struct, omit_defaults=True, gc=False):
    """How one call of a recorded step ended: a `result`, or an `error` and its type."""

    result: Raw = ABSENT
    error: str | None = None
    error_type: str | None = None
    started_at: str | None = None
    completed_at: str | None = None


# --- bodies: the journal ----------------------------------------------------------------------


class JournalCreated(Struct, gc=False):
    """The genesis record, first of every partition. `acceptance` is the version of the rules
    by which events are accepted; a reader that does not know it must stop."""

    journal_id: str
    partitions: int
    acceptance: int


# --- bodies: claims -------------------------------------------------------------------------


class TaskStarted(Struct, omit_defaults=True, gc=False):
    """A task begins, and its writer owns it. `imported_from` is a format's name where the run
    happened elsewhere; `started_at` is then the source's time."""

    description: str
    agent_name: str | None = None
    worker: str | None = None
    parent_task_id: str | None = None
    conversation_id: str | None = None
    imported_from: str | None = None
    started_at: str | None = None


class TaskClaimed(Struct, omit_defaults=True, gc=False):
    """A worker takes the task over, or renews its own claim. `running` lists the calls, as
    [step_index, position], that still run in the claiming process."""

    worker: str | None = None
    agent_name: str | None = None
    imported_from: str | None = None
    running: list[tuple[int, int]] = []


class TaskReopened(Struct, omit_defaults=True, gc=False):
    """A failed task runs again."""

    worker: str | None = None
    reason: str | None = None


# --- bodies: owner's ------------------------------------------------------------------------


class StepStarted(Struct, omit_defaults=True, gc=False):
    """A step's whole decision, so that a crash never costs a second model call.
    `last_message` is the id of the last message that the decision saw."""

    step_index: int
    attempt: int = 1
    decision: Raw = ABSENT
    last_message: str | None = None
    started_at: str | None = None


class ToolCallStarted(Struct, omit_defaults=True, gc=False):
    """A call is about to run. `arguments` only where they are not the decision's own."""

    step_index: int
    position: int
    tool_name: str
    arguments_digest: str
    attempt: int = 1
    effect: str = "idempotent"
    tool_call_id: str | None = None
    arguments: Raw = ABSENT
    started_at: str | None = None


class ToolCallCompleted(Struct, omit_defaults=True, gc=False):
    """A call's result."""

    step_index: int
    position: int
    result: Raw
    attempt: int = 1
    completed_at: str | None = None


class ToolCallFailed(Struct, omit_defaults=True, gc=False):
    """A call failed; it is finished only when this says `final`."""

    step_index: int
    position: int
    error_type: str
    error: str
    final: bool = False
    attempt: int = 1
    completed_at: str | None = None


class CallResolved(Struct, omit_defaults=True, gc=False):
    """A decision about an uncertain call: it had this `result`, or this `error`, or it is to
    be run again."""

    step_index: int
    position: int
    result: Raw = ABSENT
    error: str | None = None
    error_type: str | None = None
    run_again: bool = False
    resolved_by: str | None = None


class StepCompleted(Struct, omit_defaults=True, gc=False):
    """A step is done. Written by `record_step` it also carries the decision and, in `calls`,
    one `CallOutcome` for each tool call of it."""

    step_index: int
    attempt: int = 1
    decision: Raw = ABSENT
    calls: list[CallOutcome] | None = None
    last_message: str | None = None
    started_at: str | None = None
    completed_at: str | None = None


class StepFailed(Struct, omit_defaults=True, gc=False):
    """An attempt at a step failed; the next attempt keeps its decision and finished calls."""

    step_index: int
    error_type: str
    error: str
    attempt: int = 1
    completed_at: str | None = None


class ValueRecorded(Struct, omit_defaults=True, gc=False):
    """What a durable function returned, once. `key` names it within the task: by scope,
    function, digest of the arguments and occurrence, or as its caller said."""

    key: str
    function: str
    value: Raw = ABSENT
    arguments_digest: str | None = None


class ResultRecorded(Struct, omit_defaults=True, gc=False):
    """One entry of the task's accumulated results; a later one of this name replaces it."""

    name: str
    value: Raw


class TaskCompleted(Struct, omit_defaults=True, gc=False):
    """The task has ended well. In an open step (`step_index`) it completes that step too."""

    final_answer: Raw = ABSENT
    step_index: int | None = None
    completed_at: str | None = None


class TaskFailed(Struct, omit_defaults=True, gc=False):
    """The task has ended badly; `journal retry` reopens it."""

    error_type: str
    error: str
    completed_at: str | None = None


class TaskCancelled(Struct, omit_defaults=True, gc=False):
    """The owner has ended the task because it was asked to."""

    reason: str | None = None
    completed_at: str | None = None


# --- bodies: anyone's -------------------------------------------------------------------------


class MessageReceived(Struct, omit_defaults=True, gc=False):
    """What came in from outside, durable before the model sees it. The event's `id` is the
    message's. Role `tool` is a result that belongs to no call of this journal."""

    role: str
    content: Raw
    name: str | None = None
    tool_call_id: str | None = None
    received_at: str | None = None


# --- what there is --------------------------------------------------------------------------

CLAIM: Final = 1
OWNER: Final = 2
ANYONE: Final = 3
JOURNAL: Final = 4

Body = Struct

EVENT_TYPES: Final[dict[str, tuple[int, int, type[Struct]]]] = {
    "JournalCreated": (JOURNAL, 1, JournalCreated),
    "TaskStarted": (CLAIM, 1, TaskStarted),
    "TaskClaimed": (CLAIM, 1, TaskClaimed),
    "TaskReopened": (CLAIM, 1, TaskReopened),
    "StepStarted": (OWNER, 1, StepStarted),
    "ToolCallStarted": (OWNER, 1, ToolCallStarted),
    "ToolCallCompleted": (OWNER, 1, ToolCallCompleted),
    "ToolCallFailed": (OWNER, 1, ToolCallFailed),
    "CallResolved": (OWNER, 1, CallResolved),
    "StepCompleted": (OWNER, 2, StepCompleted),
    "StepFailed": (OWNER, 1, StepFailed),
    "ValueRecorded": (OWNER, 1, ValueRecorded),
    "ResultRecorded": (OWNER, 1, ResultRecorded),
    "TaskCompleted": (OWNER, 1, TaskCompleted),
    "TaskFailed": (OWNER, 1, TaskFailed),
    "TaskCancelled": (OWNER, 1, TaskCancelled),
    "MessageReceived": (ANYONE, 1, MessageReceived),
}
"""Type name to (class of acceptance, current version, body)."""

ENDING: Final = {
    "TaskCompleted": "completed",
    "TaskFailed": "failed",
    "TaskCancelled": "cancelled",
}
"""The event types that end a task, and the status that each leaves."""

ACCEPTANCE_VERSION: Final = 1
