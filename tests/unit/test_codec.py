"""Bytes to envelopes and values to JSON: what passes, what is refused, and where it stood."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import pathlib
import sys
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec import Raw, Struct

from journal.codec import LEVELS, check_task_id, decode_event
from journal.errors import BadRecord, UsageError, ValueRefused
from journal.events import CLAIM, EVENT_TYPES, JOURNAL, OWNER, Envelope
from journal.values import (
    BlobRef,
    blob_payload,
    blob_ref,
    decode_value,
    digest,
    digest_value,
    encode,
    encode_value,
)


def record(**members: Any) -> bytes:
    """A `StepFailed` with members changed; one that is `...` is left out."""
    whole = {
        "type": "StepFailed",
        "v": 1,
        "id": "e1",
        "task_id": "t",
        "epoch": 0,
        "owner": "o",
        "seq": 1,
        "body": {},
    }
    return encode({k: v for k, v in (whole | members).items() if v is not ...})


# --- envelopes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "no value"),
        (b"", "no event"),
        (b"null", "no event"),
        (b"[]", "no event"),
        (b"{}", "`type`"),
        (b"\xef\xbb\xbf" + record(), "no event"),
        (record() + b"{}", "no event"),
        (record()[:-1], "no event"),
        (record(type=5), "`str`, got `int`"),
        (record(type=...), "`type`"),
        (record(v="1"), "`int`, got `str`"),
        (record(v=1.5), "`int`, got `float`"),
        (record(v=True), "`int`, got `bool`"),
        (record(v=0), "`v` counts from 1"),
        (record(v=-1), "`v` counts from 1"),
        (record(id=...), "`id`"),
        (record(id=None), "`str`, got `null`"),
        (record(seq=...), "`seq` is missing"),
        (record(owner=...), "`owner` is missing"),
        (record(epoch=None), "`epoch` is missing"),
        (record(task_id=...), "`task_id` is missing"),
        (record(type="TaskClaimed", owner=...), "`owner` is missing"),
        (record(type="TaskClaimed", epoch=...), "`epoch` is missing"),
        (record(type="MessageReceived"), "`ref` is missing"),
        (record(body=None), "`body` is not an object"),
        (record(body=[]), "`body` is not an object"),
        (record(body="{"), "`body` is not an object"),
        (record().replace(b"{}", b'{"a":nul}'), "no event"),
        (record().replace(b"{}", b'{"a":"\xff"}'), "can't decode byte 0xff"),
        (record().replace(b"{}", b'{"a":"\\ud800"}'), "no event"),
        (record().replace(b"{}", b'{"a":"\\udc00x"}'), "no event"),
        (record().replace(b"{}", b'{"a":"\\q"}'), "no event"),
        (record().replace(b"{}", b'{"a":"\x00"}'), "no event"),
        (record().replace(b'"t"', b'"\\ud800"'), "no event"),
        (record().replace(b"{}", b"[" * 100_000), "no event"),
    ],
)
def test_what_is_no_event_is_refused_by_name(value: bytes | None, why: str) -> None:
    with pytest.raises(BadRecord) as raised:
        decode_event(value)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


TEXTS = ["[" * 500, '"' + "{" * 500, '\\\\"' + "[" * 500 + "\\\\", '\\"[' * 500]


@pytest.mark.parametrize("text", TEXTS)
def test_how_deep_an_event_may_be_is_told_by_its_structure_alone(text: str) -> None:
    def said(content: Any) -> bytes:
        return record(type="MessageReceived", ref="r", body={text: content})

    # The record and its body are two levels.
    deepest = [text, nested(LEVELS - 3), *([] for _ in range(LEVELS))]
    assert msgspec.json.decode(decode_event(said(deepest)).body) == {text: deepest}
    with pytest.raises(BadRecord, match="nested more than 400 levels deep"):
        decode_event(said([nested(LEVELS - 2), text]))


def test_an_owners_event_is_read_or_refused_however_deep_it_is() -> None:
    ends = []
    for levels in (400, 4_000, 40_000, 400_000, 4_000_000):
        try:
            ends.append(decode_event(record(body={"a": Raw(b"[" * levels + b"]" * levels)})).type)
        except BadRecord as error:
            ends.append(str(error))
    assert ends[0] == "StepFailed"
    assert ends[-1] == "no event: nested more than 400 levels deep"
    assert set(ends) == {ends[0], ends[-1]}


def test_a_stack_that_is_too_deep_is_no_verdict_on_an_event() -> None:
    """What one reader has no room for another one reads: it must not be passed over."""
    value = record(body={"a": nested(LEVELS - 2)})

    def below(frames: int) -> Envelope:
        return below(frames - 1) if frames else decode_event(value)

    for frames in range(0, sys.getrecursionlimit(), 20):
        try:
            assert below(frames).type == "StepFailed"
        except RecursionError:
            break
    assert frames > 200


@pytest.mark.parametrize("type", sorted(EVENT_TYPES))
def test_each_class_has_what_acceptance_looks_at(type: str) -> None:
    kind = EVENT_TYPES[type][0]
    needed = {
        JOURNAL: [],
        CLAIM: ["task_id", "epoch", "owner"],
        OWNER: ["task_id", "epoch", "owner", "seq"],
    }.get(kind, ["task_id", "ref"])
    whole = {name: {"epoch": 0, "seq": 1}.get(name, "x") for name in needed}
    bare = {"type": type, "v": 1, "id": "e"}
    assert decode_event(encode(bare | whole)).type == type
    for name in needed:
        with pytest.raises(BadRecord, match=f"`{name}` is missing"):
            decode_event(encode(bare | {k: v for k, v in whole.items() if k != name}))


@pytest.mark.parametrize(
    ("key", "fits"),
    [(b"t", True), (b"T", False), (b"", False), (None, False), (b"\x00journal", False)],
)
def test_an_event_stands_under_its_tasks_key(key: bytes | None, fits: bool) -> None:
    if fits:
        assert decode_event(record(), key).task_id == "t"
        return
    with pytest.raises(BadRecord, match="key is not its task_id"):
        decode_event(record(), key)


def test_an_unknown_type_is_an_event() -> None:
    event = decode_event(record(type="Dreamt", seq=..., owner=..., body=...), b"t")
    assert (event.type, bytes(event.body)) == ("Dreamt", b"{}")


def test_later_members_are_ignored_and_the_last_of_two_counts() -> None:
    value = record(later={"a": [1]}).replace(b'"id":"e1"', b'"id":"e0","id":"e1"')
    assert decode_event(value) == decode_event(record())


def test_the_body_stays_as_it_was_written() -> None:
    value = record().replace(b"{}", b'{ "b" : 1.0,\n"a":"\\u00e9"}')
    assert bytes(decode_event(value).body) == b'{ "b" : 1.0,\n"a":"\\u00e9"}'


@pytest.mark.parametrize("task_id", ["a", "é" * 127, "a" * 255, " ", "a/b:c", "日本", "\u2028"])
def test_a_task_id_is_used_as_it_is(task_id: str) -> None:
    assert check_task_id(task_id) == task_id


@pytest.mark.parametrize(
    ("task_id", "why"),
    [
        ("", "has 0"),
        ("a" * 256, "has 256"),
        ("é" * 128, "has 256"),
        ("a\n", "control"),
        ("\x00", "control"),
        ("\x7f", "control"),
        ("\x9f", "control"),
        ("\ud800", "surrogate"),
    ],
)
def test_what_is_no_task_id_is_refused(task_id: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_task_id(task_id)


# --- values -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = 0


class Pair(NamedTuple):
    one: Any
    two: Any


class Record(Struct):
    score: Any = None
    absent: int | msgspec.UnsetType = msgspec.UNSET


class Colour(enum.Enum):
    RED = "red"


def nested(levels: int, inside: Any = None) -> Any:
    value: Any = [] if inside is None else [inside]
    for level in range(levels - 1):
        value = {"a": value} if level % 2 else [value]
    return value


@pytest.mark.parametrize(
    ("value", "path", "why"),
    [
        (math.nan, "$", "nan"),
        ({"rows": [1, 2, {"score": math.inf}]}, "$.rows[2].score", "inf"),
        ([None, -math.inf], "$[1]", "-inf"),
        ((1, (2, math.nan)), "$[1][1]", "nan"),
        (Point(1, math.nan), "$.y", "nan"),
        ({"p": [Point(Point(math.nan))]}, "$.p[0].x.x", "nan"),
        (Pair(1, math.nan), "$[1]", "nan"),
        (Record(math.nan), "$.score", "nan"),
        ({"null": None, "x": math.nan}, "$.x", "nan"),
        ("\ud800", "$", "surrogate"),
        (["ok", "a\udfff"], "$[1]", "surrogate"),
        ({"a": {"\ud800": 1}}, "$.a", "surrogate"),
        ({1: "x"}, "$", "the key 1 is no string"),
        ({"a": [{None: 1}]}, "$.a[0]", "the key None is no string"),
        ({"a": {(1, 2): 1}}, "$.a", "no string"),
        ({"a": {True: 1}}, "$.a", "no string"),
        ({"a": {datetime.date(2026, 1, 1): 1}}, "$.a", "no string"),
        (2**64, "$", "64 bits"),
        ({"n": [0, -(2**63) - 1]}, "$.n[1]", "64 bits"),
        ([Point(10**400)], "$[0].x", "64 bits"),
        ([10**5000], "$[0]", "64 bits"),
        (object(), "$", "object"),
        ({"f": [len]}, "$.f[0]", "builtin_function_or_method"),
        (pathlib.Path("a"), "$", "Path"),
        (Point, "$", "type"),
        ([Point(object())], "$[0].x", "object"),
        ({"e": ValueError("x")}, "$.e", "ValueError"),
        ({"r": Raw(b"{bad")}, "$.r", "Raw"),
        ({"r": Raw(b"[18446744073709551616]")}, "$.r[0]", "64 bits"),
        (nested(201), "$" + ".a[0]" * 100, "200 levels"),
        (nested(201, math.nan), "$" + ".a[0]" * 100, "200 levels"),
        ((nested(200),), "$[0]" + "[0].a" * 99 + "[0]", "200 levels"),
        ({"$a": nested(600)}, "$.$a" + "[0].a" * 99 + "[0]", "200 levels"),
        (nested(100_001), "$" + ".a[0]" * 100, "200 levels"),
    ],
)
def test_what_json_cannot_carry_names_its_path(value: Any, path: str, why: str) -> None:
    with pytest.raises(ValueRefused) as raised:
        encode_value(value)
    assert raised.value.path == path
    assert why in raised.value.reason
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (None, b"null"),
        ("null", b'"null"'),
        ('"$a"', b'"\\"$a\\""'),
        ("", b'""'),
        ("\x00é\u2028", '"\\u0000é\u2028"'.encode()),
        ([2**64 - 1, -(2**63)], b"[18446744073709551615,-9223372036854775808]"),
        ([1, 1.0, -0.0, True, 1e300], b"[1,1.0,-0.0,true,1e300]"),
        ((1, (2,)), b"[1,[2]]"),
        (Point(1), b'{"x":1,"y":0}'),
        (Pair(1, 2), b"[1,2]"),
        (Record(1), b'{"score":1}'),
        ([Record((1,))], b'[{"score":[1]}]'),
        (Colour.RED, b'"red"'),
        (datetime.date(2026, 1, 2), b'"2026-01-02"'),
        (decimal.Decimal("1.10"), b'"1.10"'),
        (b"ab", b'"YWI="'),
        ({"s": {1}}, b'{"s":[1]}'),
        ({"r": Raw(b"[1]")}, b'{"r":[1]}'),
        ({"$a": 1}, b'{"$$a":1}'),
        ({"$$a": {"$": [{"$b": "$c"}]}}, b'{"$$$a":{"$$":[{"$$b":"$c"}]}}'),
        ({"a$": 1}, b'{"a$":1}'),
        (Point({"$x": 1}), b'{"x":{"$$x":1},"y":0}'),
        (
            {"$blob": {"sha256": "a", "size": 1, "media_type": "x"}},
            b'{"$$blob":{"sha256":"a","size":1,"media_type":"x"}}',
        ),
    ],
)
def test_what_it_can_is_written_so_and_comes_back(value: Any, raw: bytes) -> None:
    encoded = encode_value(value)
    assert bytes(encoded) == raw
    assert decode_value(encoded) == msgspec.json.decode(encode(value))


def test_two_hundred_levels_are_carried() -> None:
    assert decode_value(encode_value(nested(200))) == nested(200)
    # Many lists side by side are not deep.
    wide = [[[]] for _ in range(300)]
    assert decode_value(encode_value(wide)) == wide


REF = BlobRef("ab" * 32, 300_000)


def test_a_reference_is_loaded_or_given() -> None:
    raw = blob_payload(REF)
    assert bytes(raw) == (
        b'{"$blob":{"sha256":"' + b"ab" * 32 + b'","size":300000,"media_type":"application/json"}}'
    )
    assert blob_ref(raw) == REF
    assert decode_value(raw) == REF
    asked = []

    def load(ref: BlobRef) -> bytes:
        asked.append(ref)
        return bytes(encode_value({"$a": [1]}))

    assert decode_value(raw, load) == {"$a": [1]}
    assert asked == [REF]


@pytest.mark.parametrize(
    "raw", [b'{"$blob":5}', b'{"$blob":{"size":1}}', b'{"$$blob":{"sha256":"a","size":1}}', b"1"]
)
def test_what_only_looks_like_a_reference_is_a_value(raw: bytes) -> None:
    assert blob_ref(raw) is None
    value = msgspec.json.decode(raw)
    if raw.startswith(b'{"$$'):
        value = {"$blob": value["$$blob"]}
    assert decode_value(raw) == value


def test_no_payload_is_none() -> None:
    assert decode_value(None) is None


def test_a_digest_is_short_and_blind_to_the_order_of_keys() -> None:
    assert digest(b"{}") == "44136fa355b3678a1146ad16f7e8649e"
    assert digest_value({"a": 1, "b": {"x": 1, "y": [1]}}) == digest_value(
        {"b": {"y": (1,), "x": 1}, "a": 1}
    )
    assert digest_value({"a": 1}) != digest_value({"a": 1.0})
    assert digest_value([1, 2]) != digest_value([2, 1])
    with pytest.raises(ValueRefused) as raised:
        digest_value({"a": [object()]})
    assert raised.value.path == "$.a[0]"


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": (1, -math.inf)}])
def test_what_would_pass_for_null_has_no_digest(value: Any) -> None:
    with pytest.raises(ValueRefused, match="JSON cannot carry"):
        digest_value([value, None])


def test_an_envelope_is_compact_json() -> None:
    event = Envelope("StepFailed", 1, "e1", "t", 0, "o", 1, body=Raw(b"{}"))
    assert encode(event) == record()
