"""The events: one frozen envelope, and the current body of each type.

Names, shapes and classes of DESIGN.md part 3, for the event types that this release writes.
Pure data: no acceptance rule (fold), no old versions (upcasters), no bytes (codec), no clock.
The parts that bodies share stand in `decision`, and can be had from here as well.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw, Struct

from journal.decision import ABSENT as ABSENT
from journal.decision import CallHead as CallHead
from journal.decision import CallOutcome as CallOutcome
from journal.decision import Decision as Decision
from journal.decision import DecisionHead as DecisionHead
from journal.decision import ToolCall as ToolCall
from journal.decision import Usage as Usage
from journal.decision import given as given

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

    # `calls` is kept for as long as the task is open, and a tuple is no work for the collector.

    step_index: int
    attempt: int = 1
    decision: Raw = ABSENT
    calls: tuple[CallOutcome, ...] | None = None
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


class SubtaskStarted(Struct, omit_defaults=True, gc=False):
    """A sub-task is about to be claimed for this task: its claims carry this event's `id` as
    their `ref`. `name` is unique within the task."""

    name: str
    child_task_id: str
    function: str
    arguments_digest: str


class SubtaskCompleted(Struct, omit_defaults=True, gc=False):
    """How a sub-task ended: its `status`, and its `result` or `error`. `ref` is its
    `SubtaskStarted`."""

    name: str
    status: str
    result: Raw = ABSENT
    error_type: str | None = None
    error: str | None = None


class InputRequested(Struct, omit_defaults=True, gc=False):
    """The task waits for somebody's answer. `key` names the request within the task, `schema`
    is a JSON Schema for the answer, `expires_at` is when the owner stops waiting."""

    key: str
    question: Raw
    schema: Raw = ABSENT
    expires_at: str | None = None


class TimerSet(Struct, omit_defaults=True, gc=False):
    """The task waits until `fires_at`. `key` names the timer within the task."""

    key: str
    fires_at: str


class TimerFired(Struct, omit_defaults=True, gc=False):
    """The time of a timer, or of a request for input, has come: `ref` is that event."""


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


class InputReceived(Struct, omit_defaults=True, gc=False):
    """An answer to the `InputRequested` that `ref` names; the first in the log counts."""

    value: Raw
    answered_by: str | None = None


class CancelRequested(Struct, omit_defaults=True, gc=False):
    """Somebody wants the run to end. One that waits ends at once, else its owner ends it."""

    reason: str | None = None


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
    "SubtaskStarted": (OWNER, 1, SubtaskStarted),
    "SubtaskCompleted": (OWNER, 1, SubtaskCompleted),
    "InputRequested": (OWNER, 1, InputRequested),
    "TimerSet": (OWNER, 1, TimerSet),
    "TimerFired": (OWNER, 1, TimerFired),
    "TaskCompleted": (OWNER, 1, TaskCompleted),
    "TaskFailed": (OWNER, 1, TaskFailed),
    "TaskCancelled": (OWNER, 1, TaskCancelled),
    "MessageReceived": (ANYONE, 1, MessageReceived),
    "InputReceived": (ANYONE, 1, InputReceived),
    "CancelRequested": (ANYONE, 1, CancelRequested),
}
"""Type name to (class of acceptance, current version, body)."""

ENDING: Final = {
    "TaskCompleted": "completed",
    "TaskFailed": "failed",
    "TaskCancelled": "cancelled",
}
"""The event types that end a task, and the status that each leaves."""

WAITING: Final = frozenset({"InputRequested", "TimerSet"})
"""The event types that a task waits for the closing of."""

CLOSING: Final = frozenset({"TimerFired", "InputReceived"})
"""The event types that close one of those, which their `ref` names."""

ACCEPTANCE_VERSION: Final = 1
