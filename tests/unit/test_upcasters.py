"""Old bodies read as current ones, and every way in which a chain can be wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import Raw, Struct

from journal import upcasters
from journal.errors import BadRecord, EventTooNew
from journal.events import EVENT_TYPES, OWNER, Envelope, StepCompleted, ValueRecorded
from journal.upcasters import check_chains, read_bodies, upcast, upcaster
from journal.values import encode, encode_value

Dict = dict[str, Any]


def event(type: str, v: int, body: Any) -> Envelope:
    raw = body if isinstance(body, bytes) else encode(body)
    return Envelope(type, v, "e1", "t", 0, "o", 1, body=Raw(raw))


V1 = {
    "step_index": 3,
    "thought": "look",
    "tool_name": "read",
    "tool_args": {"path": "a.txt", "$$blob": 1},
    "observation": "seen\u0000",
    "tokens_used": 7,
    "completed_at": "2026-01-01T00:00:00Z",
}
V2 = {
    "step_index": 3,
    "decision": {
        "text": "look",
        "tool_calls": [{"tool_name": "read", "arguments": {"path": "a.txt", "$$blob": 1}}],
        "usage": {"total_tokens": 7},
    },
    "calls": [{"result": "seen\u0000"}],
    "completed_at": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (V1, V2),
        ({"step_index": 0}, {"step_index": 0, "decision": {"text": None}}),
        (
            {"step_index": 0, "thought": "done", "tool_name": None, "tool_args": {"ignored": 1}},
            {"step_index": 0, "decision": {"text": "done"}},
        ),
        (
            {"step_index": 0, "observation": "alone"},
            {
                "step_index": 0,
                "decision": {"text": None, "tool_calls": [{"tool_name": "", "arguments": None}]},
                "calls": [{"result": "alone"}],
            },
        ),
        (
            {"step_index": 0, "tool_name": "ping", "tool_args": None, "unknown": [1]},
            {
                "step_index": 0,
                "decision": {
                    "text": None,
                    "tool_calls": [{"tool_name": "ping", "arguments": None}],
                },
                "calls": [{"result": None}],
            },
        ),
        (
            {
                "step_index": 0,
                "observation": {"$blob": {"sha256": "a", "size": 1}},
                "tokens_used": 0,
            },
            {
                "step_index": 0,
                "decision": {
                    "text": None,
                    "tool_calls": [{"tool_name": "", "arguments": None}],
                    "usage": {"total_tokens": 0},
                },
                "calls": [{"result": {"$blob": {"sha256": "a", "size": 1}}}],
            },
        ),
    ],
)
def test_a_flat_step_becomes_a_recorded_one(old: Dict, new: Dict) -> None:
    assert read_bodies(event("StepCompleted", 1, old), "0:0") == read_bodies(
        event("StepCompleted", 2, new), "0:0"
    )


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"step_index": None},
        {"step_index": "3"},
        {"step_index": 0, "completed_at": 5},
        b'{"step_index":0,"thought":"\xff"}',
        b'{"step_index":0,"thought":1e999}',
    ],
)
def test_a_body_of_the_wrong_shape_is_a_bad_record(body: Any) -> None:
    with pytest.raises(BadRecord, match="StepCompleted version 1: "):
        read_bodies(event("StepCompleted", 1, body), "0:0")


@pytest.mark.parametrize(("type", "v"), [("StepCompleted", 3), ("TaskStarted", 2), ("Dreamt", 1)])
def test_a_newer_version_is_named_with_its_position(type: str, v: int) -> None:
    with pytest.raises(EventTooNew) as raised:
        read_bodies(event(type, v, {}), "4:17")
    assert (raised.value.type, raised.value.v, raised.value.position) == (type, v, "4:17")
    assert f"4:17: event {type} version {v}" in str(raised.value)


@pytest.mark.parametrize("body", [b'{"$blob":{"sha256":"a","size":1}}', b'{"$enc":"x"}'])
@pytest.mark.parametrize("type", sorted(EVENT_TYPES))
def test_a_body_kept_elsewhere_is_never_read_as_an_empty_one(type: str, body: bytes) -> None:
    with pytest.raises(EventTooNew):
        read_bodies(event(type, EVENT_TYPES[type][1], body), "0:0")


def test_a_body_nested_near_this_pythons_limit_is_a_bad_record_or_read() -> None:
    """That of an owner's event, which is decoded as far as the reader's Python can."""

    def ends(depth: int) -> bool:
        deep = b"[" * depth + b"]" * depth
        old = event("StepCompleted", 1, b'{"step_index":3,"tool_name":"","tool_args":%b}' % deep)
        try:
            return read_bodies(old, "p") != []
        except BadRecord as error:
            return "nested too deep" not in str(error)

    read, refused = 400, 1 << 20
    assert ends(read)
    assert not ends(refused)
    while refused - read > 1:
        middle = (read + refused) // 2
        read, refused = (middle, refused) if ends(middle) else (read, middle)
    for depth in range(read - 20, read + 20):
        ends(depth)


def test_a_stack_that_is_too_deep_is_no_verdict_on_a_body() -> None:
    old = event("StepCompleted", 1, V1 | {"tool_args": {"a": json.loads("[" * 300 + "]" * 300)}})

    def below(frames: int) -> list[Struct]:
        return below(frames - 1) if frames else read_bodies(old, "p")

    for frames in range(0, sys.getrecursionlimit(), 20):
        try:
            assert below(frames) != []
        except RecursionError:
            break
    assert frames > 200


def test_people_see_old_events_as_they_would_be_written_today() -> None:
    assert upcast(event("StepCompleted", 1, V1), "0:0") == [
        {
            "type": "StepCompleted",
            "v": 2,
            "id": "e1",
            "task_id": "t",
            "epoch": 0,
            "owner": "o",
            "seq": 1,
            "body": V2,
        }
    ]


class Later(Struct):
    """A current body, version 3, of a type that only these tests know."""

    n: int


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EVENT_TYPES, "Later", (OWNER, 3, Later))
    monkeypatch.setattr(upcasters, "_upcasters", dict(upcasters._upcasters))
    decoder = upcasters.msgspec.json.Decoder(Later)
    monkeypatch.setitem(upcasters._decoders, ("Later", 3), decoder)


@pytest.mark.usefixtures("later")
def test_a_hole_in_a_chain_is_found() -> None:
    with pytest.raises(RuntimeError, match="no upcaster reads Later version 1"):
        check_chains()
    upcaster("Later", 1)(lambda body: [("Later", 2, body)])
    with pytest.raises(RuntimeError, match="no upcaster reads Later version 2"):
        check_chains()
    upcaster("Later", 2)(lambda body: [("Later", 3, body)])
    check_chains()


@pytest.mark.usefixtures("later")
def test_one_event_may_become_none_or_many_in_order() -> None:
    def split(body: Dict) -> Iterable[tuple[str, int, Dict]]:
        return [("Later", 3 if n > 9 else 2, {"n": n}) for n in body["all"]]

    def drop_two(body: Dict) -> Iterable[tuple[str, int, Dict]]:
        if body["n"] == 2:
            return []
        if body["n"] == 4:
            return [("ValueRecorded", 1, {"key": "k", "function": "f", "value": 4})]
        return [("Later", 3, body), ("Later", 3, {"n": -body["n"]})]

    upcaster("Later", 1)(split)
    upcaster("Later", 2)(drop_two)
    bodies = read_bodies(event("Later", 1, {"all": [1, 10, 2, 3, 4]}), "0:0")
    assert bodies == [
        *(Later(n) for n in (1, -1, 10, 3, -3)),
        ValueRecorded("k", "f", encode_value(4)),
    ]
    assert read_bodies(event("Later", 1, {"all": [2]}), "0:0") == []


def test_a_version_has_one_reader() -> None:
    with pytest.raises(ValueError, match="StepCompleted version 1 has an upcaster already"):
        upcaster("StepCompleted", 1)(lambda body: [])


def test_current_bodies_keep_their_payloads_as_written() -> None:
    body = b'{"step_index":0,"calls":[{"result":{ "b":1, "a":2 }}]}'
    (read,) = read_bodies(event("StepCompleted", 2, body), "0:0")
    assert isinstance(read, StepCompleted)
    assert read.calls is not None
    assert bytes(read.calls[0].result) == b'{ "b":1, "a":2 }'
