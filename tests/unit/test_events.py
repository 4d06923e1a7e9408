"""The events as data: what is frozen, what each class demands, and tokens."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from journal import events
from journal.events import ABSENT, ENDING, EVENT_TYPES, OWNER, Envelope, Usage, given
from journal.values import encode


def test_the_envelope_is_frozen_for_ever() -> None:
    assert Envelope.__struct_fields__ == (
        "type",
        "v",
        "id",
        "task_id",
        "epoch",
        "owner",
        "seq",
        "ref",
        "parent_epoch",
        "at",
        "traceparent",
        "body",
    )


def test_every_body_is_in_the_table_once_and_under_its_own_name() -> None:
    assert all(name == body.__name__ for name, (_, _, body) in EVENT_TYPES.items())
    assert all(EVENT_TYPES[name][0] == OWNER for name in ENDING)


def test_members_that_say_nothing_are_not_written() -> None:
    assert encode(Envelope("TaskCancelled", 1, "i")) == (b'{"type":"TaskCancelled","v":1,"id":"i"}')
    assert encode(events.TaskCancelled()) == b"{}"


@pytest.mark.parametrize("body", [b for _, _, b in EVENT_TYPES.values()])
def test_an_absent_payload_is_not_null(body: type[msgspec.Struct]) -> None:
    """`null` is a value that somebody wrote; absence is told by identity."""
    required = {
        f.encode_name: {int: 1, str: "x", Raw: [None]}[f.type]
        for f in msgspec.structs.fields(body)
        if f.required
    }
    bare = msgspec.json.decode(encode(required), type=body)
    for f in msgspec.structs.fields(body):
        if f.type is Raw and not f.required:
            assert getattr(bare, f.name) is ABSENT
            full = msgspec.json.decode(encode({**required, f.encode_name: None}), type=body)
            assert given(getattr(full, f.name)) == Raw(b"null")
            assert b'":null' in encode(full)
    assert b"null" not in encode(bare).replace(b"[null]", b"")
    assert given(ABSENT) is None


@pytest.mark.parametrize(
    ("parts", "total"),
    [
        ([Usage(total_tokens=100)], 100),
        ([Usage(input_tokens=10, output_tokens=5)], 15),
        ([Usage(total_tokens=100), Usage(input_tokens=10, output_tokens=5)], 115),
        ([Usage(input_tokens=10, output_tokens=5), Usage(total_tokens=100)], 115),
        ([Usage(input_tokens=1), Usage(total_tokens=2), Usage(output_tokens=3)], 6),
        ([], 0),
    ],
)
def test_totals_add_up_whichever_way_they_are_known(parts: list[Usage], total: int) -> None:
    usage = Usage()
    for part in parts:
        usage.add(part)
    assert usage.total == total
    assert usage.input_tokens == sum(p.input_tokens for p in parts)
