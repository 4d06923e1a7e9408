"""Events as lines of text: JSON objects for programs, rows for people.

`journal replay` and `journal tail` share it. Pure: knows records, events and their old versions;
knows no log and no screen.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from journal.codec import decode_event
from journal.errors import BadRecord, EventTooNew
from journal.events import ENDING
from journal.ids import rfc3339
from journal.log import Record
from journal.upcasters import upcast

_ABOUT_CHARACTERS = 100
"""What a row tells of an event's body at most; the rest is for JSON."""

_WORDS = {
    "TaskStarted": ("description",),
    "TaskClaimed": ("agent_name", "worker", "imported_from"),
    "TaskReopened": ("reason",),
    "ToolCallStarted": ("tool_name",),
    "ValueRecorded": ("function",),
    "ResultRecorded": ("name",),
    "SubtaskStarted": ("name", "function"),
    "SubtaskCompleted": ("name", "status"),
    "InputRequested": ("key", "question"),
    "TimerSet": ("key", "fires_at"),
    "TaskCancelled": ("reason",),
    "MessageReceived": ("role", "content"),
    "InputReceived": ("value", "answered_by"),
    "CancelRequested": ("reason",),
    "JournalCreated": ("journal_id",),
}
"""Event type to the members of its body that say, in a word, what it is about."""


class Row(NamedTuple):
    """One event on one line."""

    position: str
    at: str
    task: str
    type: str
    about: str


def json_lines(position: str, record: Record, *, raw: bool = False) -> list[str]:
    """A record as JSON objects, a line each: the event in today's version, with the position it
    was read at. With `raw` as it was written, and without the position.

    What is no event is an object that says so. Raises `EventTooNew`, unless `raw`.
    """
    try:
        event = decode_event(record.value, record.key)
        if raw:
            # Between the tokens of a JSON text a line's end is as good as a blank.
            return [(record.value or b"").decode().replace("\n", " ").replace("\r", " ")]
        bodies = upcast(event, position)
    except BadRecord as error:
        return [_dumped({"position": position, "undecodable": str(error)})]
    return [_dumped({"position": position} | body) for body in bodies]


def rows(position: str, record: Record, *, raw: bool = False) -> list[Row]:
    """A record as rows of a table; nothing in them breaks a line or moves a cursor.

    Raises `EventTooNew`; with `raw` such an event is a row that says so.
    """
    try:
        event = decode_event(record.value, record.key)
    except BadRecord as error:
        task = (record.key or b"").decode(errors="backslashreplace")
        at = _time(record.timestamp_ms)
        return [_row(position, at, task, "undecodable", str(error))]
    at, task = event.at or _time(record.timestamp_ms), event.task_id or ""
    try:
        shown = [(now["type"], about(now["type"], now["body"])) for now in upcast(event, position)]
    except BadRecord as error:
        shown = [(event.type, f"undecodable: {error}")]
    except EventTooNew:
        if not raw:
            raise
        shown = [(event.type, f"version {event.v}, of a newer release")]
    return [_row(position, at, task, type, text) for type, text in shown]


def about(type: str, body: dict[str, Any]) -> str:
    """A few words about an event: which step and call, which tool, how it ended."""
    words = []
    for name, member in (("step", "step_index"), ("call", "position")):
        if isinstance(body.get(member), int):
            words.append(f"{name} {body[member]}")
    told = [body.get(member) for member in _WORDS.get(type, ())]
    words += [word if isinstance(word, str) else _dumped(word) for word in told if word]
    words += _tools(body.get("decision"))
    if type in ENDING:
        words.append(ENDING[type])
    if isinstance(body.get("error"), str):
        words.append(": ".join(str(body[m]) for m in ("error_type", "error") if body.get(m)))
    if body.get("run_again") is True:
        words.append("run again")
    return " ".join(words)


def _tools(decision: object) -> list[str]:
    calls = decision.get("tool_calls") if isinstance(decision, dict) else None
    if not isinstance(calls, list):
        return []
    return [str(call.get("tool_name", "")) for call in calls if isinstance(call, dict)]


def _row(position: str, at: str, task: str, type: str, text: str) -> Row:
    text = _printable(text[: 2 * _ABOUT_CHARACTERS])
    if len(text) > _ABOUT_CHARACTERS:
        text = text[: _ABOUT_CHARACTERS - 1] + "…"
    return Row(position, _printable(at), _printable(task), _printable(type), text)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " if c in "\n\t" else repr(c)[1:-1] for c in text)


def _time(ms: int) -> str:
    try:
        return rfc3339(ms)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
