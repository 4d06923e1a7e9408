"""What the current writer is asked to write: each type full and, where that differs, bare.

Old versions are bytes only, since nothing writes them from these structs any more; their
records were made when they were current.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

from journal import events as ev
from journal.codec import encode_event
from journal.events import CLAIM, EVENT_TYPES, JOURNAL, OWNER, CallOutcome, Envelope
from journal.values import BlobRef, blob_payload, encode, encode_value

ID = "0123456789abcdef0123456789abcdef"
NONCE = "fedcba9876543210fedcba9876543210"
AT = "2026-11-30T09:15:00.250Z"
EARLIER = "2026-11-30T09:14:58Z"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
REF = blob_payload(BlobRef("ab" * 32, 300_000))

DECISION = ev.Decision(
    text="Zuerst lesen: \u00e9, \u2028, NUL \u0000",
    tool_calls=[
        ev.ToolCall("read", Raw(encode_value({"path": "a.txt", "$key": [1, 1.5, None]})), "c1"),
        ev.ToolCall("read", Raw(bytes(REF)), "c1"),
        ev.ToolCall("now"),
    ],
    usage=ev.Usage(120, 30, 100, 5, 7),
    reasoning="hidden",
    content=[{"type": "text", "text": "Zuerst lesen"}],
    request_model="model-a",
    response_model="model-a-2026",
    finish_reasons=["tool_calls"],
    response_id="r1",
    provider_name="provider",
)
_D = Raw(encode(DECISION))
_V = encode_value

FULL: list[Struct] = [
    ev.JournalCreated(ID, 12, 1),
    ev.TaskStarted("Count the words", "counter", "host-1", "parent", "c7", "atif", EARLIER),
    ev.TaskClaimed("host-2", "counter", "atif", [(3, 0), (3, 2)]),
    ev.TaskReopened("host-2", "asked for"),
    ev.StepStarted(3, 2, _D, ID, EARLIER),
    ev.ToolCallStarted(3, 1, "read", "d" * 32, 2, "once", "c1", _V({"path": "b.txt"}), EARLIER),
    ev.ToolCallCompleted(3, 1, _V({"words": 7, "$x": {"$$y": None}}), 2, AT),
    ev.ToolCallFailed(3, 1, "OSError", "no such file", True, 2, AT),
    ev.CallResolved(3, 1, REF, "it was not done", "E", True, "an operator"),
    ev.StepCompleted(
        3,
        2,
        _D,
        (
            CallOutcome(_V("seen"), None, None, EARLIER, AT),
            CallOutcome(error="no such file", error_type="OSError"),
            CallOutcome(_V(None)),
        ),
        ID,
        EARLIER,
        AT,
    ),
    ev.StepFailed(3, "TimeoutError", "the model did not answer", 2, AT),
    ev.ValueRecorded("fetch:0", "fetch", _V([2**64 - 1, -0.0]), "d" * 32),
    ev.ResultRecorded("files/report.md", REF),
    ev.SubtaskStarted("q1", "research-42:q1", "work", "d" * 32),
    ev.SubtaskCompleted("q1", "failed", _V({"n": 1}), "ValueError", "no such city"),
    ev.InputRequested("approve", _V("Send it?"), _V({"type": "boolean"}), AT),
    ev.TimerSet("tomorrow", AT),
    ev.TimerFired(),
    ev.TaskCompleted(_V("42"), 3, AT),
    ev.TaskFailed("RuntimeError", "gave up", AT),
    ev.TaskCancelled("asked for", AT),
    ev.MessageReceived("tool", _V([{"type": "text", "text": "hi"}]), "ops", "c9", EARLIER),
    ev.InputReceived(_V(True), "an operator"),
    ev.CancelRequested("too dear"),
]

BARE: list[Struct] = [
    ev.TaskStarted("Count the words"),
    ev.TaskClaimed(),
    ev.TaskReopened(),
    ev.StepStarted(0),
    ev.ToolCallStarted(0, 0, "read", "d" * 32),
    ev.ToolCallCompleted(0, 0, _V(None)),
    ev.ToolCallFailed(0, 0, "OSError", "no such file"),
    ev.CallResolved(0, 0),
    ev.StepCompleted(0),
    ev.StepFailed(0, "TimeoutError", ""),
    ev.ValueRecorded("k", "f"),
    ev.ResultRecorded("n", _V("")),
    ev.SubtaskStarted("q1", "research-42:q1", "work", "d" * 32),
    ev.SubtaskCompleted("q1", "completed"),
    ev.InputRequested("approve", _V("Send it?")),
    ev.TimerSet("tomorrow", AT),
    ev.TimerFired(),
    ev.TaskCompleted(),
    ev.TaskFailed("E", ""),
    ev.TaskCancelled(),
    ev.MessageReceived("user", _V("")),
    ev.InputReceived(_V(None)),
    ev.CancelRequested(),
]


ABOUT_ANOTHER = (ev.SubtaskCompleted, ev.TimerFired)
"""The owner's events that name another."""


def envelope(body: Struct, *, full: bool) -> Envelope:
    """An envelope with all members that the type's class has; a full one with every other."""
    kind, v, _ = EVENT_TYPES[type(body).__name__]
    members: dict[str, Any] = {}
    if kind != JOURNAL:
        members["task_id"] = "research-42/\u00e9"
    if kind in (CLAIM, OWNER):
        members |= {"epoch": 1, "owner": NONCE}
    if kind == OWNER:
        members["seq"] = 17
    if kind not in (CLAIM, OWNER, JOURNAL) or type(body) in ABOUT_ANOTHER:
        members["ref"] = ID
    if full:
        members |= {"at": AT, "traceparent": TRACE}
        if kind == CLAIM:
            members |= {"ref": NONCE, "parent_epoch": 2}
    return Envelope(type(body).__name__, v, ID, body=Raw(encode(body)), **members)


def written_now() -> dict[str, bytes]:
    """File name (without its ending) to the bytes that the current writer gives."""
    out = {}
    for which, bodies in (("full", FULL), ("bare", BARE)):
        for body in bodies:
            event = envelope(body, full=which == "full")
            out[f"{event.type}.v{event.v}.{which}"] = encode_event(event)
    return out


def _v1(body: bytes) -> bytes:
    return encode_event(
        Envelope("StepCompleted", 1, ID, "research-42", 0, NONCE, 1, at=AT, body=Raw(body))
    )


WRITTEN_ONCE = {
    "StepCompleted.v1.full": _v1(
        b'{"step_index":46,"thought":"read it","tool_name":"read","tool_args":{"path":"a.txt",'
        b'"$$key":[1,1.5,null]},"observation":"caf\xc3\xa9 \\u0000","tokens_used":678,'
        b'"completed_at":"2026-01-01T00:00:00Z"}'
    ),
    "StepCompleted.v1.bare": _v1(b'{"step_index":0}'),
    "StepCompleted.v1.nulls": _v1(
        b'{"step_index":0,"thought":null,"tool_name":null,"tool_args":null,"observation":null,'
        b'"tokens_used":null,"completed_at":null}'
    ),
    "StepCompleted.v1.blob": _v1(
        b'{"step_index":1,"observation":{"$blob":{"sha256":"' + b"ab" * 32 + b'",'
        b'"size":300000,"media_type":"application/json"}}}'
    ),
    # Another writer's: members in another order, white space, members that nobody knows yet.
    "TaskStarted.v1.foreign": (
        b'{ "body": {"later": [1], "description": "d"},\n  "owner": "o", "epoch": 0, '
        b'"task_id": "t", "id": "i", "v": 1, "type": "TaskStarted", "later": {"a": 1}, '
        b'"seq": null }'
    ),
}

_HEAD = b'{"type":"StepCompleted","v":2,"id":"i","task_id":"t","epoch":0,"owner":"o","seq":1,'

BAD = {
    "empty": b"",
    "not-json": b"hello",
    "not-an-object": b"[]",
    "cut-short": _HEAD + b'"body":{"step_index":0}',
    "two-objects": _HEAD + b'"body":{}}{}',
    "byte-order-mark": b"\xef\xbb\xbf" + _HEAD + b'"body":{}}',
    "body-not-an-object": _HEAD + b'"body":[]}',
    "version-zero": _HEAD.replace(b'"v":2', b'"v":0') + b'"body":{}}',
    "no-seq": _HEAD.replace(b'"seq":1,', b"") + b'"body":{}}',
    "no-ref": b'{"type":"MessageReceived","v":1,"id":"i","task_id":"t","body":{}}',
    "lone-surrogate": _HEAD + b'"body":{"calls":[{"result":"\\ud800"}]}}',
    "not-utf-8": _HEAD + b'"body":{"step_index":0,"calls":[{"result":"\xff"}]}}',
    "no-step-index": _HEAD + b'"body":{}}',
    "step-index-text": _HEAD + b'"body":{"step_index":"0"}}',
    "decision-null": _HEAD + b'"body":{"step_index":0,"decision":null}}',
    "call-without-a-name": _HEAD + b'"body":{"step_index":0,"decision":{"tool_calls":[{}]}}}',
    "v1-tokens-text": _HEAD.replace(b'"v":2', b'"v":1')
    + b'"body":{"step_index":0,"tokens_used":"7"}}',
    "v1-no-step-index": _HEAD.replace(b'"v":2', b'"v":1') + b'"body":{"thought":"x"}}',
    "newer-version": _HEAD.replace(b'"v":2', b'"v":3') + b'"body":{}}',
    "newer-type": _HEAD.replace(b"StepCompleted", b"StepDreamt") + b'"body":{}}',
    "body-in-a-blob": _HEAD + b'"body":{"$blob":{"sha256":"ab","size":1}}}',
    "body-encrypted": _HEAD + b'"body":{"$enc":"x"}}',
}
