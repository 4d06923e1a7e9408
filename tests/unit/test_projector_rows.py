"""Rows of states and events, and states of rows."""

from __future__ import annotations

import random
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from journal.events import Envelope
from journal.fold import fold
from journal.genesis import Identity
from journal.log import Record
from projector.arrow import table
from projector.entries import TaskRows, rebuilt
from projector.folding import Changes, Folder
from projector.rows import COLUMNS, Row, as_text, event_row, microseconds, step_rows, task_row
from tests.make_events import Writer, disturbed, pair, run

IDENTITY = Identity("j", 1)


def cells(name: str, row: Row) -> dict[str, Any]:
    """A row by column, payloads as bytes."""
    assert len(row) == len(COLUMNS[name])
    return {
        column: bytes(cell) if isinstance(cell, Raw) else cell
        for column, cell in zip(COLUMNS[name], row, strict=True)
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1970-01-01T00:00:00.250Z", 250_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:01", 1_000_000),
        ("1969-12-31T23:59:59Z", -1_000_000),
        ("0001-01-01T00:00:00+00:01", None),
        ("9999-12-31T23:59:59-00:01", None),
        # Python 3.14 reads an hour of 24, the releases before it do not.
        ("1970-01-01T24:00:00Z", None),
        ("1970-01-01 24:00", None),
        ("1970-01-24T00:00:00Z", 23 * 86_400_000_000),
        ("yesterday", None),
        ("", None),
        (None, None),
    ],
)
def test_times(text: str | None, wanted: int | None) -> None:
    assert microseconds(text) == wanted


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        (None, None),
        (Raw(b"null"), None),
        (Raw(b'"a\\u0000b"'), "a\0b"),
        (Raw(b'{"a": 1}'), b'{"a": 1}'),
        (Raw(b"12"), b"12"),
    ],
)
def test_texts(payload: Raw | None, wanted: object) -> None:
    assert as_text(payload) == wanted


def test_calls_as_recorded_and_as_run() -> None:
    w = Writer("t")
    decision = {"tool_calls": [{"tool_name": "a", "arguments": {"z": 1, "a": 2}}] * 3}
    events = [
        w.start(),
        w.own(
            "StepCompleted",
            step_index=0,
            decision=decision,
            calls=[{"result": None}, {"error": "no", "error_type": "E"}],
            completed_at="1970-01-01T00:00:00Z",
        ),
        w.own("StepStarted", step_index=1, decision=decision),
        w.own(
            "ToolCallStarted",
            step_index=1,
            position=1,
            tool_name="a",
            arguments_digest="d",
            effect="once",
            arguments=[7],
        ),
        w.own("ToolCallStarted", step_index=1, position=5, tool_name="b", arguments_digest="d"),
        w.own("ToolCallFailed", step_index=1, position=5, error_type="E", error="no", final=True),
        w.claim(),
    ]
    state = fold(enumerate(events), "t")
    _, recorded = step_rows("t", state.steps[0], 0, 1, 1)
    assert [
        tuple(cells("tool_calls", r)[c] for c in ("status", "arguments", "result", "error"))
        for r in recorded
    ] == [
        ("completed", b'{"z":1,"a":2}', b"null", None),
        ("failed", b'{"z":1,"a":2}', None, "no"),
        ("pending", b'{"z":1,"a":2}', None, None),
    ]
    assert [cells("tool_calls", r)["completed_at"] for r in recorded] == [0, 0, None]
    row, its = step_rows("t", state.steps[1], 0, 2, 6)
    assert (cells("steps", row)["status"], cells("steps", row)["last_offset"]) == ("open", 6)
    assert [
        tuple(cells("tool_calls", r)[c] for c in ("position", "status", "arguments", "effect"))
        for r in its
    ] == [
        (0, "pending", b'{"z":1,"a":2}', None),
        (1, "uncertain", b"[7]", "once"),
        (2, "pending", b'{"z":1,"a":2}', None),
        (5, "failed", None, "idempotent"),
    ]


def test_a_decision_of_odd_members_has_a_row() -> None:
    w = Writer("t")
    odd = {"text": {"$blob": 1}}
    state = fold(enumerate([w.start(), w.own("StepStarted", step_index=0, decision=odd)]), "t")
    row, calls = step_rows("t", state.steps[0], 0, 1, 1)
    assert (cells("steps", row)["thought"], calls) == (b'{"$blob":1}', [])


def test_cells_that_arrow_cannot_take() -> None:
    event = Envelope("MessageReceived", 1, "m", "t", seq=10**30, body=Raw(b'{"a":"\xff"}'))
    made = table("events", [event_row(0, 5, event)]).to_pylist()[0]
    assert (made["seq"], made["offset"], made["body"]) == (None, 5, '{"a":"�"}')


@pytest.mark.parametrize(
    ("column", "given", "wanted"),
    [
        ("result", [Raw(b'"a"'), Raw(b"1")], ['"a"', "1"]),
        ("result", [None, Raw('"é\\u0000"'.encode()), Raw(b"null")], [None, '"é\\u0000"', "null"]),
        ("result", [None, None], [None, None]),
        ("result", [Raw(b'"\xc3'), Raw(b'\xa9"'), None], ['"�', '�"', None]),
        ("attempt", [1, -(2**63)], [1, -(2**63)]),
        ("attempt", [1, None, 2**63], [1, None, None]),
        ("attempt", [2**63 - 1, 2**63], [2**63 - 1, None]),
        ("partition", [0, 2**31 - 1], [0, 2**31 - 1]),
        ("started_at", [1, None], [datetime(1970, 1, 1, 0, 0, 0, 1), None]),
        ("started_at", [0], [datetime(1970, 1, 1)]),
    ],
)
def test_columns_come_out_as_they_went_in(column: str, given: list[Any], wanted: list[Any]) -> None:
    made = table("tool_calls", [_row("tool_calls", **{column: cell}) for cell in given])
    assert made.column(column).to_pylist() == wanted


def _row(name: str, **given: Any) -> Row:
    return tuple(given.get(column) for column in COLUMNS[name])


def _folded(events: list[Envelope], cuts: list[int]) -> list[Changes]:
    """Fold in batches that end at `cuts`."""
    records = [Record(n, *pair(event), 0) for n, event in enumerate(events)]
    folder = Folder(IDENTITY, lambda _: {})
    bounds = [0, *sorted({c for c in cuts if c < len(records)}), len(records)]
    return [folder.fold([(0, records[a:b])]) for a, b in pairwise(bounds) if a < b]


def _tables(batches: list[Changes]) -> dict[str, list[Row]]:
    """What the file holds after these batches."""
    held: dict[str, dict[Any, list[Row]]] = {
        name: {} for name in ("tasks", "steps", "tool_calls", "events", "anomalies")
    }
    for changes in batches:
        for task in changes.gone_tasks:
            (row,) = held["tasks"].pop(task)
            assert row[-1] >= changes.gone_tasks_from
        for key in changes.gone_steps:
            (row,) = held["steps"].pop(key)
            assert row[-1] >= changes.gone_steps_from
            held["tool_calls"].pop(key, None)
        for name, rows in held.items():
            for row in changes.rows[name]:
                key = row[0] if name == "tasks" else row[:2]
                rows.setdefault(key, []).append(row)
    return {
        name: sorted((tuple(map(_cell, row)) for many in rows.values() for row in many), key=repr)
        for name, rows in held.items()
    }


def _cell(cell: object) -> object:
    return bytes(cell) if isinstance(cell, Raw) else cell


lives = st.integers(0, 2**32).map(
    lambda seed: disturbed(list(run("t", random.Random(seed), 6)), random.Random(seed + 1))
)


@given(lives, st.lists(st.integers(1, 60)))
def test_rows_do_not_depend_on_batches(events: list[Envelope], cuts: list[int]) -> None:
    assert _tables(_folded(events, cuts)) == _tables(_folded(events, []))


@given(lives)
def test_rebuilt_from_rows_is_the_fold(events: list[Envelope]) -> None:
    for n, event in enumerate(events):
        event.traceparent = f"00-{n + 1:032x}-{n + 1:016x}-01" if n % 3 else None
    held = _tables(_folded(events, []))
    ((*_,),) = held["tasks"]
    task = cells("tasks", held["tasks"][0])
    rows = TaskRows(
        "t", 0, task["last_offset"], task["epoch_closed"], task["parent_epoch"], task["chain"],
        sorted((row[1], *row[3:12], row[12].decode()) for row in held["events"]),
    )  # fmt: skip
    state = fold(enumerate(events), "t")
    entry = rebuilt(rows)
    assert entry.state == state
    assert task_row(entry.state, entry.first_offset) == held["tasks"][0]
    assert sorted(entry.steps.items()) == sorted(
        (row[1], (row[-2], row[-1])) for row in held["steps"]
    )


def test_memory_is_bounded_and_nothing_unwritten_goes() -> None:
    asked: list[list[str]] = []
    folder = Folder(IDENTITY, lambda ids: asked.append(ids) or {}, memory_bytes=0)
    a, b = Writer("a"), Writer("b")
    folder.fold([(0, [Record(0, *pair(a.start()), 0)])])
    folder.fold([(0, [Record(1, *pair(b.start()), 0)])])
    folder.written(1)
    folder.fold([(0, [Record(2, *pair(b.recorded(0)), 0), Record(3, *pair(a.recorded(0)), 0)])])
    assert asked == [["a"], ["b"], ["a"]]
