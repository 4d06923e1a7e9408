"""Recorded bytes read as they always did, and the current writer writes exactly these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from journal.codec import decode_event
from journal.errors import BadRecord, EventTooNew
from journal.events import EVENT_TYPES, Envelope
from journal.fold import apply
from journal.state import TaskState
from journal.upcasters import upcast
from journal.values import encode
from tests.golden.samples import BARE, FULL, written_now

FOLDER = Path(__file__).parent
EVENT_FILES = FOLDER / "events"
BAD_FILES = FOLDER / "bad"


def reading(value: bytes) -> list[dict[str, Any]]:
    """A record as this release reads it: as events that it would write itself."""
    return upcast(decode_event(value), "0:0")


def reason(value: bytes) -> str:
    """What a reader of a running task makes of a bad record; not in the words of the JSON
    library, which may change."""
    state = TaskState("t")
    start = Envelope("TaskStarted", 1, "s", "t", 0, "o", body=Raw(b'{"description":"d"}'))
    apply(state, start, 0)
    try:
        verdict = apply(state, decode_event(value, b"t"), 1)
    except EventTooNew as error:
        return f"EventTooNew: {error.type} version {error.v} at {error.position}"
    except BadRecord as error:
        return f"BadRecord: {str(error).partition(': ')[0]}"
    return f"{verdict.label}: {verdict.detail.partition(': ')[0]}"


def _names(folder: Path) -> list[str]:
    return sorted(file.name[:-5] for file in folder.glob("*.json") if ".read." not in file.name)


@pytest.mark.parametrize("name", _names(EVENT_FILES))
def test_every_record_reads_as_what_stands_beside_it(name: str) -> None:
    value = (EVENT_FILES / f"{name}.json").read_bytes()
    beside = (EVENT_FILES / f"{name}.read.json").read_text(encoding="utf-8")
    assert reading(value) == json.loads(beside)
    event = decode_event(value)
    assert name.startswith(f"{event.type}.v{event.v}.")


@pytest.mark.parametrize("name", _names(BAD_FILES))
def test_every_bad_record_is_refused_as_it_says_beside_it(name: str) -> None:
    value = (BAD_FILES / f"{name}.json").read_bytes()
    assert reason(value) == (BAD_FILES / f"{name}.reason.txt").read_text("utf-8")[:-1]


@pytest.mark.parametrize(("name", "value"), written_now().items())
def test_the_current_writer_writes_exactly_the_recorded_bytes(name: str, value: bytes) -> None:
    assert value == (EVENT_FILES / f"{name}.json").read_bytes()


def test_every_version_of_every_type_is_recorded() -> None:
    recorded = {tuple(name.split(".")[:2]) for name in _names(EVENT_FILES)}
    written = {(t, f"v{n}") for t, (_, v, _) in EVENT_TYPES.items() for n in range(1, v + 1)}
    assert recorded == written
    assert {type(body) for body in FULL} == {body for _, _, body in EVENT_TYPES.values()}
    assert {type(b).__name__ for b in BARE} == EVENT_TYPES.keys() - {"JournalCreated"}


def test_the_full_samples_leave_no_field_out() -> None:
    for body in FULL:
        written = json.loads(encode(body))
        assert written.keys() == set(body.__struct_encode_fields__), type(body).__name__
