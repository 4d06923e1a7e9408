"""The laws of DESIGN.md part 4, on random logs of one task, and of codec and messages.

The logs come from `world`; what must hold of them is said here. No log backend, no clock.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from journal.acceptance import ACCEPTED, OUT_OF_PLACE
from journal.codec import decode_event, encode_event
from journal.errors import BadRecord, EventTooNew, ValueRefused
from journal.events import EVENT_TYPES, JOURNAL, Envelope
from journal.fold import apply, fold
from journal.messages import messages
from journal.state import COMPLETED, TaskState
from journal.upcasters import upcast
from journal.values import decode_value, digest_value, encode, encode_value
from tests.folding import Task
from tests.property.model import Model
from tests.property.world import (
    BODIES,
    decisions,
    json_values,
    law,
    logs,
    payloads,
    renamed,
    usages,
)


def folded(log: Iterable[Envelope]) -> TaskState:
    """The state that a log leads to."""
    return fold(enumerate(log), "t")


def same(one: TaskState, other: TaskState) -> bool:
    return replace(one, offset=0) == replace(other, offset=0)


# --- acceptance -------------------------------------------------------------------------------


@law(3)
@given(logs(rude=True, versions=True))
def test_acceptance_follows_the_design(log: list[Envelope]) -> None:
    model, state = Model(), TaskState("t")
    for offset, event in enumerate(log):
        verdict = apply(state, event, offset)
        expected = model.judge_and_take(event)
        got = "" if verdict.label == OUT_OF_PLACE else verdict.label
        assert (got, verdict.accepted) == (expected, expected == "")
        if model.accepted:
            ending, head = model.ending, state.head
            assert (head.epoch, head.owner) == (model.claim.epoch, model.claim.owner)
            assert (head.seq, head.run_id) == (model.seq, model.run.id)
            assert head.ending_id == (ending and ending.id)
            assert (state.status, state.running) == (model.status, ending is None)
        else:
            assert not state.exists


# --- the fold ---------------------------------------------------------------------------------


@law()
@given(logs(rude=True, versions=True), st.integers(0, 100))
def test_folding_in_two_parts_is_folding_whole(log: list[Envelope], cut: int) -> None:
    cut %= len(log) + 1
    log_from_cut = list(enumerate(log))[cut:]
    assert fold(log_from_cut, "t", state=folded(log[:cut])) == folded(log)


@law()
@given(logs(versions=True), st.data())
def test_replaying_any_earlier_slice_changes_nothing(log: list[Envelope], data: Any) -> None:
    at = data.draw(st.integers(0, len(log)), "at")
    start = data.draw(st.integers(0, at), "start")
    end = data.draw(st.integers(start, at), "end")
    replayed = [*log[:at], *log[start:end], *log[at:]]
    assert same(folded(replayed), folded(log))


@law(0.5)
@given(logs(versions=True))
def test_doubling_every_event_changes_nothing(log: list[Envelope]) -> None:
    whole = folded(log)
    assert same(folded([event for event in log for _ in (1, 2)]), whole)
    assert same(folded(log + log), whole)


@law()
@given(logs(), st.data())
def test_a_fenced_writer_changes_nothing(log: list[Envelope], data: Any) -> None:
    model, fenced, out = Model(), [("nobody", 0)], []
    for n, event in enumerate(log):
        before = model.claim if model.accepted else None
        model.judge_and_take(event)
        out.append(event)
        if before is not None and before is not model.claim:
            fenced.append((before.owner, before.epoch))
        for k in range(data.draw(st.integers(0, 2), "events")):
            owner, epoch = data.draw(st.sampled_from(fenced), "who")
            type = data.draw(st.sampled_from([t for t in BODIES if EVENT_TYPES[t][0] == 2]))
            seq = model.seq + data.draw(st.integers(-1, 3), "seq")
            body = Raw(encode(data.draw(BODIES[type])))
            id = f"fenced-{n}-{k}"
            out.append(Envelope(type, EVENT_TYPES[type][1], id, "t", epoch, owner, seq, body=body))
    assert same(folded(out), folded(log))


@law(0.5)
@given(logs(versions=True, wrong=False))
def test_upcasting_first_leads_to_the_same_state(log: list[Envelope]) -> None:
    today = []
    for event in log:
        (now,) = upcast(event, "0:0")
        assert now["v"] == EVENT_TYPES[event.type][1]
        today.append(decode_event(encode(now)))
    assert folded(today) == folded(log)


_JUNK = st.dictionaries(
    st.sampled_from(
        sorted({name for _, _, b in EVENT_TYPES.values() for name in b.__struct_fields__})
    ),
    json_values | st.integers(-1, 3) | decisions | st.just([[0, 1]]) | st.just([{}]),
    max_size=6,
)


@law(2)
@given(logs(versions=True), st.data())
def test_the_fold_is_total(log: list[Envelope], data: Any) -> None:
    """Bodies of the wrong shape never raise, and what does not fit changes nothing but the
    head; what the fold has taken can be read in every style."""
    state = TaskState("t")
    for offset, event in enumerate(log):
        junk = data.draw(st.none() | _JUNK)
        if junk is not None:
            whole = data.draw(st.booleans())
            body = msgspec.json.decode(event.body) if whole else {}
            event = replace(event, body=Raw(encode(body | junk)))
        event = decode_event(encode_event(event), b"t")
        before = copy.deepcopy(state)
        verdict = apply(state, event, offset)
        if not verdict.accepted or verdict.label == OUT_OF_PLACE:
            assert replace(state, head=before.head, offset=before.offset) == before
            assert bool(verdict.detail) == verdict.accepted
        else:
            assert verdict.label == ACCEPTED
    for style in ("openai", "anthropic", "plain"):
        encode(messages(state, style, lambda ref: b'"kept elsewhere"'))
    assert state.total_tokens >= 0 or any(u < 0 for u in _counts(state))
    assert all(state.steps[i].status == COMPLETED for i in range(state.current_step))
    current = state.steps.get(state.current_step)
    assert current is None or current.status != COMPLETED


def _counts(state: TaskState) -> list[int]:
    return [n for step in state.steps.values() if step.usage for n in _numbers(step.usage)]


def _numbers(usage: Any) -> list[int]:
    return [getattr(usage, name) for name in usage.__struct_fields__]


@law(0.5)
@given(logs(), st.sampled_from([("StepCompleted", 3), ("StepCompleted", 99), ("Dreamt", 1)]))
def test_what_is_too_new_stops_with_nothing_changed(
    log: list[Envelope], newer: tuple[str, int]
) -> None:
    state = folded(log)
    before = copy.deepcopy(state)
    head = state.head
    event = Envelope(*newer, "new", "t", head.epoch, head.owner, head.seq + 1)
    if newer[0] == "StepCompleted" and (head.epoch_closed or not state.running):
        # It is not accepted, so nobody has to read it.
        assert not apply(state, event, 1_000).accepted
        return
    with pytest.raises(EventTooNew) as raised:
        apply(state, event, 1_000)
    assert (raised.value.type, raised.value.v, raised.value.position) == (*newer, "0:1000")
    assert state == before


@law()
@given(st.lists(usages, max_size=6))
def test_totals_are_the_sum_of_the_steps(reported: list[dict[str, int] | None]) -> None:
    task, total = Task(), 0
    for index, usage in enumerate(reported):
        task.did("StepCompleted", step_index=index, decision={"usage": usage})
        fine = sum((usage or {}).get(name, 0) for name in ("input_tokens", "output_tokens"))
        total += fine or (usage or {}).get("total_tokens", 0)
    assert task.state.total_tokens == total
    assert sum(s.usage.total for s in task.state.completed_steps if s.usage) == total


# --- encoding ---------------------------------------------------------------------------------

_ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9)
_int = st.none() | st.integers(0, 2**63 - 1)
envelopes = st.builds(
    Envelope,
    type=st.sampled_from([*sorted(EVENT_TYPES), "Dreamt"]),
    v=st.integers(1, 99),
    id=_ids,
    task_id=_ids,
    epoch=st.integers(0, 2**63 - 1),
    owner=_ids,
    seq=st.integers(0, 2**63 - 1),
    ref=_ids,
    parent_epoch=_int,
    at=st.none() | _ids,
    traceparent=st.none() | _ids,
    body=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), json_values).map(
        lambda body: Raw(encode(body))
    ),
).filter(lambda e: EVENT_TYPES.get(e.type, (0,))[0] != JOURNAL)


@law()
@given(envelopes)
def test_envelopes_come_back_as_they_were(event: Envelope) -> None:
    value = encode_event(event)
    back = decode_event(value, (event.task_id or "").encode())
    assert back == event
    assert encode_event(back) == value


@law()
@given(envelopes, json_values)
def test_unknown_members_of_the_envelope_are_ignored(event: Envelope, extra: Any) -> None:
    value = msgspec.json.decode(encode_event(event)) | {"a_later_member": extra}
    assert decode_event(encode(value)) == event


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _equal(one: Any, other: Any) -> bool:
    """Equal in types and signs too: 1, 1.0 and True are three values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return type(one) is type(other) and one == other


@law(3)
@given(json_values)
def test_values_come_back_as_they_were(value: Any) -> None:
    raw = encode_value(value)
    assert _equal(decode_value(raw), value)
    assert not bytes(raw).startswith(b'{"$blob":')
    assert digest_value(value) == digest_value(decode_value(raw))


@law()
@given(
    st.recursive(
        json_values | st.dates() | st.uuids() | st.decimals(allow_nan=False) | st.binary(),
        lambda inner: st.tuples(inner, inner) | st.dictionaries(st.sampled_from("ab$"), inner),
        max_leaves=5,
    )
)
def test_other_values_come_back_in_their_json_form(value: Any) -> None:
    assert _equal(decode_value(encode_value(value)), _plain(value))


_BAD = [
    (math.nan, "nan"),
    (math.inf, "inf"),
    (-math.inf, "-inf"),
    ("a\ud800b", "lone surrogate"),
    ({1: 2}, "no string"),
    ({"\udfff": 1}, "lone surrogate"),
    (2**64, "64 bits"),
    (-(2**63) - 1, "64 bits"),
    (object(), "object"),
    (1j, "complex"),
]


@law(2)
@given(json_values, st.sampled_from(_BAD), st.data())
def test_what_json_cannot_carry_is_refused_with_its_path(
    good: Any, bad: tuple[Any, str], data: Any
) -> None:
    value, path = bad[0], "$"
    for kind in data.draw(st.lists(st.sampled_from(["list", "tuple", "dict"]), max_size=4)):
        if kind == "dict":
            value, path = {"a": good, "b": value}, path.replace("$", "$.b", 1)
        else:
            value, path = [good, good, value], path.replace("$", "$[2]", 1)
            value = tuple(value) if kind == "tuple" else value
    with pytest.raises(ValueRefused) as raised:
        encode_value(value)
    assert raised.value.path == path
    assert bad[1] in raised.value.reason


@law()
@given(st.binary(max_size=40) | payloads.map(bytes), st.none() | st.binary(max_size=2))
def test_no_bytes_make_the_reader_fail_otherwise_than_by_name(
    value: bytes, key: bytes | None
) -> None:
    with pytest.raises(BadRecord):
        decode_event(value, key)


@law()
@given(envelopes, st.data())
def test_damaged_records_are_read_whole_or_refused(event: Envelope, data: Any) -> None:
    value = bytearray(encode_event(event))
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] = data.draw(st.integers(0, 255))
    try:
        back = decode_event(bytes(value))
    except BadRecord:
        return
    # Whatever passes is whole: JSON all through, the payloads too.
    assert isinstance(msgspec.json.decode(back.body), dict)
    assert renamed(back, "x").id == "x"
