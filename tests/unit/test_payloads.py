"""A decision and results as payloads: what goes as it is, and what needs a closer look."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from journal import Content, Decision, ToolCall
from journal.blobs import DirectoryBlobs
from journal.errors import ValueRefused
from journal.events import CallOutcome
from journal.payloads import decision_payload, outcome_payloads
from journal.values import encode, encode_value


@pytest.fixture
def blobs(tmp_path: Path) -> DirectoryBlobs:
    return DirectoryBlobs(tmp_path)


@pytest.mark.parametrize(
    ("decision", "path"),
    [
        (Decision(text="\ud800"), "$"),
        (Decision(text=math.nan), "$"),  # type: ignore[arg-type]
        (Decision(reasoning={1: "x"}), "$"),  # type: ignore[arg-type]
        (Decision(tool_calls=[ToolCall("f", {"k": "\ud800"})]), "$.k"),
        (Decision(tool_calls=[ToolCall("f", {"k": 1 << 70})]), "$.k"),
        (Decision(tool_calls=[ToolCall("f", {"k": math.inf})]), "$.k"),
    ],
)
async def test_what_json_cannot_carry_is_refused_by_its_path(
    decision: Decision, path: str, blobs: DirectoryBlobs
) -> None:
    with pytest.raises(ValueRefused) as raised:
        await decision_payload(decision, blobs)
    assert raised.value.path == path


@pytest.mark.parametrize(
    ("decision", "written"),
    [
        (Decision("x $y", [ToolCall("f", {"a": "1"})]), None),
        (
            Decision("x", [ToolCall("f", {"$a": "1"})]),
            b'{"text":"x","tool_calls":[{"tool_name":"f","arguments":{"$$a":"1"}}]}',
        ),
        (
            Decision(Content(b"a", "a/b")),  # type: ignore[arg-type]
            b'{"text":{"$content":{"media_type":"a/b","data":"YQ=="}}}',
        ),
    ],
)
async def test_a_decision_is_written_as_it_is_or_escaped(
    decision: Decision, written: bytes | None, blobs: DirectoryBlobs
) -> None:
    assert bytes(await decision_payload(decision, blobs)) == (written or encode(decision))


async def test_a_result_that_json_cannot_carry_is_refused(blobs: DirectoryBlobs) -> None:
    with pytest.raises(ValueRefused, match="lone surrogate") as refused:
        await outcome_payloads(["fine", "\ud800"], blobs)
    assert refused.value.path == "$"


async def test_results_that_are_large_together_leave_the_callers_as_they_were(
    blobs: DirectoryBlobs,
) -> None:
    given: list[Any] = [CallOutcome(encode_value("x" * 200_000)) for _ in range(3)]
    written = await outcome_payloads(given, blobs)
    assert all(bytes(one.result).startswith(b'{"$blob"') for one in written)
    assert all(len(bytes(one.result)) > 200_000 for one in given)
