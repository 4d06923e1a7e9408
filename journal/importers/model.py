"""What a file of somebody else's run is turned into before anything is written to a log.

Neutral records only, in the order of the source: who said what, what was decided, what came
back. Knows the shapes of events (usage, tool calls, decisions), not how they are written, and
nothing of any source format. Nothing here does I/O or reads a clock.

**Addresses.** A decision and its results are known by (step_index, position), a message by its
place among the messages. They stay the same as the file grows, so that a writer can append
only what is new. `ImportedRun.settled` says which items may still change.

**Task ids.** `FORMAT:RUN`, with a trial or a sub-agent behind it, so that an import can never
touch a task that somebody started here under the same name. Where the source's own id does not
tell runs apart (two trials of one benchmark instance share even their first messages), a digest
of the messages stands behind it; where there is no id at all, the digest is everything. It
covers all messages that the file holds at its first import. A file that has grown since names
in `earlier_ids` every id that a shorter version of it would have had: the writer goes on with
the first of these that the log knows, provided that what is recorded there is a beginning of
this run, and else starts `task_id`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from journal import events
from journal.codec import check_task_id
from journal.errors import UsageError


class Problem(Struct, frozen=True):
    """Something in a file that could not be taken as it is. `line` counts from 1; None where
    the whole file is meant."""

    file: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.reason}"


Report = Callable[[str], None]
"""Takes the reason of a problem; file and line are known to whoever made it."""


class Message(Struct):
    """What came from outside: a user, a system, or (role `tool`) a result without a call.

    `content` is the source's own: text, or a list of parts. `source_id` is the source's id of
    the message, if it has one.
    """

    role: str
    content: Any
    at: str | None = None
    source_id: str | None = None
    tool_call_id: str | None = None
    name: str | None = None


class Decision(Struct):
    """What the model decided in a step. `attempt` is one more than the failures before it."""

    step_index: int
    made: events.Decision
    at: str | None = None
    attempt: int = 1


class Result(Struct):
    """How a call of a decision ended: `result`, unless there is an `error`."""

    step_index: int
    position: int
    result: Any = None
    error: str | None = None
    error_type: str | None = None
    at: str | None = None


class StepDone(Struct):
    """The step has ended: its results are in, or the source went on without them."""

    step_index: int
    at: str | None = None


class Failure(Struct):
    """The model failed before it decided anything; the next attempt has the same index."""

    step_index: int
    attempt: int
    error_type: str
    error: str
    at: str | None = None


class V1Step(Struct):
    """A finished step in the flat shape of plain checkpoints: version 1 of `StepCompleted`."""

    step_index: int
    thought: str | None = None
    tool_name: str | None = None
    tool_args: Any = None
    observation: Any = None
    tokens_used: int | None = None
    completed_at: str | None = None


class Value(Struct):
    """An entry of the run's accumulated results. A later import may bring another value."""

    name: str
    value: Any


Item = Message | Decision | Result | StepDone | Failure | V1Step | Value


class ImportedRun(Struct):
    """One run: one task of the journal.

    description      the task in one line, or whole where nothing else says what it is
    conversation_id  the source's id of the session, thread or instance
    status           running, completed, failed or cancelled; only a source that says so ends a task
    final_answer     of a completed run; None where the source has none
    settled          how many of the items can no longer change when the file grows. Behind it
                     stand a last decision that may still get more calls or text (recognise it
                     by `made.response_id`), its results so far, and values.
    """

    task_id: str
    description: str
    source_format: str
    items: list[Item]
    settled: int
    earlier_ids: tuple[str, ...] = ()
    agent_name: str | None = None
    conversation_id: str | None = None
    request_model: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    status: str = "running"
    final_answer: Any = None
    error_type: str | None = None
    error: str | None = None


# --- task ids ---------------------------------------------------------------------------------


def plain_id(*parts: str) -> str:
    """The parts, joined by colons, as a task id. One that would be too long, or hold control
    characters, has its second part (the source's run id) replaced by that part's digest."""
    task_id = ":".join(parts)
    try:
        return check_task_id(task_id)
    except UsageError:
        rest = [_short(part.encode(errors="replace")) for part in parts[1:]]
        return ":".join([parts[0], *rest])


def digest_ids(items: Iterable[Item], *parts: str) -> tuple[str, tuple[str, ...]]:
    """(task id, earlier ids): the parts with the digest of all messages behind them, and with
    those of every shorter beginning, the longest first."""
    running, digests = hashlib.sha256(), []
    for item in items:
        if isinstance(item, Message | Decision | Result):
            running.update(msgspec.json.encode(_identity(item), order="deterministic"))
            digests.append(running.hexdigest()[:16])
    ids = [plain_id(*parts, digest) for digest in reversed(digests or [_short(b"")])]
    return ids[0], tuple(ids[1:])


def _identity(item: Message | Decision | Result) -> Sequence[Any]:
    """What tells one message from another. Times and call ids belong to it: two runs of one
    script may well say the same."""
    if isinstance(item, Message):
        return ("message", item.role, item.content, item.at, item.tool_call_id)
    if isinstance(item, Decision):
        return ("decision", item.made.text, item.made.tool_calls, item.at)
    return ("result", item.position, item.result, item.error, item.at)


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


# --- descriptions -----------------------------------------------------------------------------

_LABEL_CHARACTERS = 200


def label(content: Any) -> str | None:
    """The first line that says something, for lists of tasks; the message keeps all of it."""
    for line in text_of(content).splitlines():
        line = " ".join(line.split())
        if line and not (line.startswith("<") and line.endswith(">")):
            cut = line[: _LABEL_CHARACTERS - 1]
            return line if len(line) <= _LABEL_CHARACTERS else cut + "…"
    return None


def text_of(content: Any) -> str:
    """The text in a message's content, whether it is text or a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [
        part if isinstance(part, str) else part.get("text")
        for part in content
        if isinstance(part, str | dict)
    ]
    return "\n".join(text for text in texts if isinstance(text, str))
