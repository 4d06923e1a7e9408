"""States and events to rows, one tuple a row, in the column order of `sql/schema.sql`.

Pure: knows neither DuckDB nor Arrow, no clock, and nothing of batches, so that a row says the
same however the log was cut. Total: whatever the fold has accepted has a row.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from journal.events import ABSENT, Envelope, Usage, given
from journal.state import COMPLETED, FAILED, PENDING, Call, Step, TaskState

Row = tuple[Any, ...]

TABLES: Final = ("tasks", "steps", "tool_calls", "events", "anomalies", "offsets")


def _columns(spec: str) -> dict[str, str]:
    return {name: kind or "text" for name, _, kind in (w.partition(":") for w in spec.split())}


COLUMNS: Final[dict[str, dict[str, str]]] = {
    "tasks": _columns(
        "task_id parent_task_id agent_name description status current_step:int "
        "input_tokens:int output_tokens:int total_tokens:int "
        "started_at:time updated_at:time ended_at:time final_answer error_type error results "
        "imported:bool epoch:int owner seq:int last_id claim_id run_id ending_id "
        "epoch_closed:bool parent_epoch:int cancel_requested:bool chain "
        "partition:short first_offset:int last_offset:int"
    ),
    "steps": _columns(
        "task_id step_index:int attempt:int status thought request_model input_tokens:int "
        "output_tokens:int cache_read_input_tokens:int cache_creation_input_tokens:int "
        "reasoning_output_tokens:int total_tokens:int started_at:time completed_at:time "
        "partition:short first_offset:int last_offset:int"
    ),
    "tool_calls": _columns(
        "task_id step_index:int attempt:int position:int tool_name tool_call_id effect status "
        "arguments:payload result:payload error_type error started_at:time completed_at:time "
        "partition:short first_offset:int last_offset:int"
    ),
    "events": _columns(
        "partition:short offset:int task_id type v:int id epoch:int owner seq:int ref at "
        "traceparent body:payload"
    ),
    "anomalies": _columns(
        "partition:short offset:int task_id type id epoch:int owner seq:int label detail raw:bytes"
    ),
    "offsets": _columns("partition:short next_offset:int last_id last_checksum journal_id"),
}
"""Table to column to kind. A `time` is in microseconds since the epoch; a `text` is str, or the
UTF-8 of it as bytes; a `payload` is JSON as it was written, in a `Raw`."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(4096)
def microseconds(text: str | None) -> int | None:
    """An ISO 8601 time since the epoch, UTC where it names no zone; None for anything else, for
    an hour of 24, which only some releases of Python read, and for one that is in no year from 1
    to 9999 of UTC, which none can show."""
    if text is None or "T24" in text or " 24" in text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        elif moment.tzinfo is not UTC:
            moment = moment.astimezone(UTC)
        return (moment - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None


def as_text(payload: Raw | None) -> str | bytes | None:
    """A payload for a column of text: a string as it is, anything else as its JSON."""
    if payload is None or payload is ABSENT:
        return None
    data = bytes(payload)
    if data == b"null":
        return None
    if data[:1] == b'"':
        try:
            return msgspec.json.decode(data, type=str)
        except msgspec.MsgspecError:
            return data
    return data


# --- events ---------------------------------------------------------------------------------


def event_row(partition: int, offset: int, e: Envelope) -> Row:
    """One accepted event."""
    return (
        partition, offset, e.task_id, e.type, e.v, e.id, e.epoch, e.owner, e.seq, e.ref, e.at,
        e.traceparent, e.body,
    )  # fmt: skip


def anomaly_row(
    partition: int, offset: int, e: Envelope | None, label: str, detail: str, raw: bytes | None
) -> Row:
    """One record that does not count or does not fit; `e` is None where it is no event."""
    if e is None:
        return (partition, offset, None, None, None, None, None, None, label, detail or None, raw)
    return (
        partition, offset, e.task_id, e.type, e.id, e.epoch, e.owner, e.seq, label,
        detail or None, raw,
    )  # fmt: skip


# --- states ---------------------------------------------------------------------------------


def task_row(s: TaskState, first_offset: int) -> Row:
    """The task itself."""
    h = s.head
    return (
        s.task_id, s.parent_task_id, s.agent_name, s.description, h.status, s.current_step,
        s.usage.input_tokens, s.usage.output_tokens, s.usage.total,
        microseconds(s.started_at), microseconds(s.updated_at), microseconds(s.ended_at),
        as_text(s.final_answer), s.error_type, s.error,
        msgspec.json.encode(s.results) if s.results else None, s.imported_from is not None,
        h.epoch, h.owner, h.seq, h.last_id, h.claim_id, h.run_id, h.ending_id,
        h.epoch_closed, h.parent_epoch, h.cancel_requested, h.chain.hex(),
        s.partition, first_offset, s.offset,
    )  # fmt: skip


class _Asked(Struct, gc=False, rename={"name": "tool_name", "id": "tool_call_id"}):
    name: str | None = None
    id: str | None = None
    arguments: Raw = ABSENT


class _Decision(Struct, gc=False):
    """Laxer than `journal.events.Decision`: the fold looked at no more than `DecisionHead`."""

    text: Raw = ABSENT
    request_model: str | None = None
    tool_calls: list[_Asked] = []


_decisions = msgspec.json.Decoder(_Decision)
_NOTHING = _Decision()
_NO_USAGE = Usage()


def step_rows(
    task_id: str, s: Step, partition: int, first: int, last: int
) -> tuple[Row, list[Row]]:
    """A step and its tool calls; `first` and `last` are offsets of the events about it."""
    decision = _NOTHING
    if s.raw_decision is not None:
        try:
            decision = _decisions.decode(s.raw_decision)
        except msgspec.MsgspecError:
            decision = _NOTHING
    thought = as_text(decision.text)
    u = s.usage or _NO_USAGE
    row = (
        task_id, s.index, s.attempt, s.status, thought, decision.request_model,
        u.input_tokens, u.output_tokens, u.cache_read_input_tokens,
        u.cache_creation_input_tokens, u.reasoning_output_tokens, u.total,
        microseconds(s.started_at), microseconds(s.completed_at), partition, first, last,
    )  # fmt: skip
    calls: list[Row] = []
    known = s.calls or {}
    for position, asked in enumerate(decision.tool_calls):
        call = known.get(position)
        if call is None:
            calls.append(_recorded_row(task_id, s, position, asked, partition, first, last))
        else:
            arguments = given(asked.arguments) if call.arguments is None else call.arguments
            calls.append(_call_row(task_id, s, call, arguments, partition, first, last))
    if known:
        for position in sorted(known):
            if position >= len(decision.tool_calls):
                call = known[position]
                calls.append(_call_row(task_id, s, call, call.arguments, partition, first, last))
    return row, calls


def _call_row(
    task_id: str, s: Step, c: Call, arguments: Raw | None, partition: int, first: int, last: int
) -> Row:
    """A call that has events of its own, or is waited for."""
    return (
        task_id, s.index, c.attempt, c.position, c.tool_name, c.tool_call_id, c.effect, c.status,
        arguments, c.result, c.error_type, c.error,
        microseconds(c.started_at), microseconds(c.completed_at), partition, first, last,
    )  # fmt: skip


def _recorded_row(
    task_id: str, s: Step, position: int, asked: _Asked, partition: int, first: int, last: int
) -> Row:
    """A call of a step that was recorded whole: what `Step.all_calls` makes of it, but with the
    arguments' own bytes."""
    name = asked.name or ""
    arguments = given(asked.arguments)
    outcomes = s.outcomes
    if outcomes is None or position >= len(outcomes):
        return (
            task_id, s.index, s.attempt, position, name, asked.id, None, PENDING,
            arguments, None, None, None, None, None, partition, first, last,
        )  # fmt: skip
    o = outcomes[position]
    return (
        task_id, s.index, s.attempt, position, name, asked.id, None,
        COMPLETED if o.error is None else FAILED, arguments, given(o.result),
        o.error_type, o.error, microseconds(o.started_at),
        microseconds(o.completed_at or s.completed_at), partition, first, last,
    )  # fmt: skip
