"""Recorded events, mutated, and arbitrary JSON and bytes, through decoder, fold and rows."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal.codec import decode_event, encode_event
from journal.errors import BadRecord
from journal.events import EVENT_TYPES
from tests.fuzz.pipeline import (
    GOOD,
    as_records,
    check,
    check_pieces,
    check_rebuilt,
    decoded,
    hostile,
    whole,
)
from tests.fuzz.seeds import TOKENS, WORDS, lines, lives, records
from tests.make_events import Pair

slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
LINES = lines()
_LAWFUL = re.compile(rb"((?!Journal)\w+ \d+) 1 ")
FULL = list(
    {m[1]: m.string for line in sorted(LINES, key=len) if (m := _LAWFUL.match(line))}.values()
)
"""The longest recorded body of each type and version."""

_STEP = b'StepStarted 1 1 {"step_index":3,"decision":{"tool_calls":[{"tool_name":"a"}]}}'
_CALL = (
    b'ToolCallStarted 1 1 {"step_index":3,"position":1,"tool_name":"read","arguments_digest":"d"}'
)
BEFORE = {b"ToolCallStarted": [_STEP], b"ToolCallCompleted": [_STEP, _CALL]}
"""What some of them need to have an effect."""

HOLE = "\x1ahole\x1a"

jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
tokens = st.sampled_from(TOKENS) | st.builds(lambda v: json.dumps(v).encode(), jsons)


@st.composite
def other_bytes(draw: st.DrawFn) -> bytes:
    """A recorded line with pieces cut out, put in or taken from another one."""
    line = draw(st.sampled_from(LINES))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(line)))
        until = draw(st.integers(at, min(len(line), at + 40)))
        put = draw(st.sampled_from(WORDS) | st.binary(max_size=6) | st.just(line[at:until] * 2))
        line = line[:at] + put + line[until:]
    return line


@st.composite
def other_members(draw: st.DrawFn) -> bytes:
    """A recorded line, some of its members changed, taken out or doubled; still JSON or nearly."""
    line = draw(st.sampled_from(LINES))
    head, brace, rest = line.partition(b"{")
    try:
        value = json.loads(brace + rest)
    except ValueError:
        return line
    for _ in range(draw(st.integers(1, 3))):
        if places := _places(value):
            holder, name = draw(st.sampled_from(places))
            if draw(st.booleans()):
                holder[name] = HOLE
            else:
                del holder[name]
    text = head + json.dumps(value).encode()
    while json.dumps(HOLE).encode() in text:
        text = text.replace(json.dumps(HOLE).encode(), draw(tokens), 1)
    return text


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value, as a container and a key or an index."""
    if not isinstance(value, dict | list):
        return []
    found = [(value, name) for name in _names(value)]
    return found + [place for holder, name in list(found) for place in _places(holder[name])]


def _names(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value)))


@st.composite
def any_envelope(draw: st.DrawFn) -> bytes:
    """A known or unknown type with members of any kind."""
    members: dict[str, Any] = {
        "type": draw(st.sampled_from([*EVENT_TYPES, "Dreamt", ""])),
        "task_id": "t",
    }
    for name in ("v", "epoch", "seq", "parent_epoch"):
        members[name] = draw(st.sampled_from([0, 1, 2, -1, 2**63, 2**64, None]) | jsons)
    for name in ("id", "owner", "ref", "at", "traceparent"):
        members[name] = draw(st.sampled_from(["t-1", "t-owner-0", None]) | jsons)
    members["body"] = draw(st.dictionaries(st.sampled_from(["step_index", "decision"]), jsons))
    return json.dumps(members).encode()


anything = st.one_of(
    st.sampled_from(LINES), other_members(), other_bytes(), any_envelope(), st.binary(max_size=40)
)


@given(st.lists(anything, min_size=1, max_size=6))
@slow
def test_every_record_is_a_row_and_good_ones_are_kept(drawn: list[bytes]) -> None:
    check(hostile(drawn))


@given(st.lists(anything, min_size=1, max_size=6))
@slow
def test_a_crash_after_any_record_changes_nothing(drawn: list[bytes]) -> None:
    check_pieces(hostile(drawn))


@pytest.mark.parametrize("life", lives(), ids=range(len(lives())))
def test_lives_hold_too(life: bytes) -> None:
    pairs = hostile(life.split(b"\n"))
    check(pairs)
    check_pieces(pairs)


def changed(line: bytes) -> Iterator[bytes]:
    """The line with each token in the place of each member of its body, and with each left out."""
    head, brace, rest = line.partition(b"{")
    for n in range(len(_places(json.loads(brace + rest)))):
        value = json.loads(brace + rest)
        holder, name = _places(value)[n]
        holder[name] = HOLE
        text = head + json.dumps(value).encode()
        for token in TOKENS:
            yield text.replace(json.dumps(HOLE).encode(), token)
        del holder[name]
        yield head + json.dumps(value).encode()


@pytest.mark.parametrize("line", FULL, ids=lambda line: " ".join(line.decode().split()[:2]))
def test_any_token_in_the_place_of_any_member(line: bytes) -> None:
    pairs: list[Pair] = []
    for n, other in enumerate(changed(line)):
        pairs += hostile([*BEFORE.get(line.split()[0], []), other], f"t{n}")
    tables, stopped = whole(as_records(pairs))
    assert stopped is None
    offsets = {row["offset"] for name in ("events", "anomalies") for row in tables.rows[name]}
    assert len(offsets) == len(pairs)
    check_rebuilt(tables)


@given(anything, st.sampled_from([b"t", b"T", b"", b"\x00journal", b"\xff\xfe"]))
def test_what_is_decoded_comes_back_as_it_was(value: bytes, key: bytes) -> None:
    event = decoded(value, key)
    if isinstance(event, BadRecord):
        return
    again = decode_event(encode_event(event), key)
    assert again == event
    assert encode_event(again) == encode_event(event)


@pytest.mark.parametrize("type", [b"StepStarted 1", b"StepCompleted 2"])
def test_an_event_nested_near_this_pythons_limit_is_a_row_or_an_anomaly(type: bytes) -> None:
    asked = b'{"step_index":0,"decision":{"tool_calls":[{"tool_name":"a","arguments":%b}]}}'

    def steps(depth: int) -> int:
        line = type + b" 1 " + asked % (b"[" * depth + b"]" * depth)
        rows = whole(as_records(hostile([line])))[0].rows
        assert len(rows["events"]) + len(rows["anomalies"]) == 2
        return len(rows["steps"])

    read, refused = 200, 1 << 20
    assert (steps(read), steps(refused)) == (1, 0)
    while refused - read > 1:
        middle = (read + refused) // 2
        read, refused = (middle, refused) if steps(middle) else (read, middle)
    for depth in range(read - 20, read + 20):
        steps(depth)


def test_what_is_drawn_reaches_the_fold() -> None:
    """Or the tests above would show nothing."""
    read = [decoded(value, b"t") for value in records()]
    assert sum(not isinstance(event, BadRecord) for event in read) >= 50
    reached = hostile(LINES)
    assert sum(not isinstance(decoded(v, k), BadRecord) for k, v in reached) >= 100
    tables, _ = whole(as_records(hostile(b"\n".join(lives()).split(b"\n"))))
    assert all(tables.rows.values())


# --- in bounded time ----------------------------------------------------------------------------

MEGABYTES = 100
MOST_S = 60.0
"""Of one record of `MEGABYTES`."""


def _large(name: str) -> bytes:
    size = MEGABYTES << 20
    return {
        "a number": lambda: b"9" * size,
        "a version": lambda: b'{"type":"StepFailed","id":"i","v":' + b"9" * size + b"}",
        "an id": lambda: b'{"type":"StepFailed","v":1,"id":"' + b"x" * size + b'"}',
        "an integer": lambda: _step(b"9" * size),
        "a fraction": lambda: _step(b"0." + b"9" * size),
        "an exponent": lambda: _step(b"1e" + b"9" * size),
        "a step's index": lambda: b'StepCompleted 2 1 {"step_index":' + b"9" * size + b"}",
        "an old body": lambda: b'StepCompleted 1 1 {"tokens_used":' + b"9" * size + b"}",
        "levels": lambda: _step(b"[" * size),
        "levels, closed": lambda: _step(b"[" * (size // 2) + b"]" * (size // 2)),
        "a text": lambda: _step(b'"' + b"x" * size + b'"'),
        "escapes": lambda: _step(b'"' + rb"\u0000" * (size // 6) + b'"'),
        "NULs": lambda: bytes(size),
    }[name]()


def _step(text: bytes) -> bytes:
    return b'StepCompleted 2 1 {"step_index":0,"decision":{"text":%b}}' % text


LARGE = (
    "a number", "a version", "an id", "an integer", "a fraction", "an exponent", "a step's index",
    "an old body", "levels", "levels, closed", "a text", "escapes", "NULs",
)  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_a_hundred_megabytes_are_done_with_in_time(name: str) -> None:
    pairs = hostile([_large(name)])
    began = time.monotonic()
    tables, stopped = whole(as_records([*pairs, *GOOD]))
    assert time.monotonic() - began < MOST_S
    assert stopped is None
    rows = tables.rows["anomalies"] + tables.rows["events"]
    assert {row["offset"] for row in rows} == set(range(len(pairs) + len(GOOD)))
    assert len(tables.of("good")["events"]) == len(GOOD)
