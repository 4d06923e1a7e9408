"""Contents: how they are written among other values, and how each API is shown them."""

from __future__ import annotations

import base64
import hashlib
import math
from typing import Any

import pytest
from msgspec import Raw

from journal.content import Content
from journal.errors import UsageError, ValueRefused
from journal.messages import messages
from journal.state import TaskState
from journal.values import CONTENT_BYTES, BlobRef, decode_value, digest_value, encode_value
from tests.folding import Task

PNG = Content(b"\x89PNG", "image/png")
PDF = Content(b"%PDF", "application/pdf")
NOTE = Content("é".encode(), "text/plain; charset=utf-8")
SOUND = Content(b"RIFF", "audio/wav")
WRITTEN = b'{"$content":{"media_type":"image/png","data":"iVBORw=="}}'
LARGE = Content(b"x" * (CONTENT_BYTES + 1), "image/png")


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (PNG, WRITTEN),
        ([PNG, {"a": PNG}], b"[" + WRITTEN + b',{"a":' + WRITTEN + b"}]"),
        ({"$a": [PNG]}, b'{"$$a":[' + WRITTEN + b"]}"),
        (
            [PNG, {"$content": {"media_type": "image/png", "data": "iVBORw=="}}],
            b"[" + WRITTEN + b',{"$$content":{"media_type":"image/png","data":"iVBORw=="}}]',
        ),
    ],
)
def test_a_content_is_written_so_and_comes_back(value: Any, raw: bytes) -> None:
    assert bytes(encode_value(value)) == raw
    assert decode_value(raw) == value


@pytest.mark.parametrize(
    "value",
    [
        {"$content": {"media_type": "image/png", "data": "iVBORw=="}},
        {"$content": {"$blob": {"sha256": "a", "size": 1, "media_type": "x/y"}}},
        {"$content": 0},
    ],
)
def test_nobodys_data_looks_like_a_content(value: Any) -> None:
    assert decode_value(encode_value(value)) == value
    assert decode_value(encode_value([PNG, value])) == [PNG, value]


@pytest.mark.parametrize(
    "form",
    [
        b"5",
        b"{}",
        b'{"media_type":"image/png","data":"*"}',
        b'{"media_type":"image/png","data":5}',
        b'{"media_type":"image","data":"iVBORw=="}',
        b'{"media_type":null,"data":"iVBORw=="}',
        b'{"media_type":"image/png","data":"iVBORw==","more":1}',
        b'{"$blob":{"size":1}}',
    ],
)
def test_what_only_looks_like_one_is_a_value(form: bytes) -> None:
    value = decode_value(b'{"$content":' + form + b"}")
    assert isinstance(value, dict)
    assert value.keys() == {"$content"}


def test_a_large_one_is_a_reference_to_its_bytes() -> None:
    large: list[Content] = []
    raw = encode_value([LARGE, PNG], large)
    ref = BlobRef(hashlib.sha256(LARGE.data).hexdigest(), len(LARGE.data), "image/png")
    assert large == [LARGE]
    assert len(bytes(raw)) < 300
    assert bytes(raw).startswith(b'[{"$content":{"$blob":{"sha256":"' + ref.sha256.encode())
    assert decode_value(raw) == [ref, PNG]
    asked = []

    def load(wanted: BlobRef) -> bytes:
        asked.append(wanted)
        return LARGE.data

    assert decode_value(raw, load) == [LARGE, PNG]
    assert asked == [ref]
    assert decode_value(encode_value(LARGE)) == LARGE


@pytest.mark.parametrize(
    ("value", "path"), [([PNG, math.nan], "$[1]"), ({"a": [PNG, object()]}, "$.a[1]")]
)
def test_what_stands_beside_one_is_checked(value: Any, path: str) -> None:
    with pytest.raises(ValueRefused) as raised:
        encode_value(value)
    assert raised.value.path == path


@pytest.mark.parametrize(
    ("data", "media_type", "why"),
    [("text", "text/plain", "takes bytes, not str"), (b"", "png", "'png' is no media type")],
)
def test_what_is_no_content_is_refused(data: Any, media_type: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Content(data, media_type)


def test_it_is_equal_by_bytes_and_type_and_shown_without_them() -> None:
    assert {PNG, Content(b"\x89PNG", "image/png")} == {PNG}
    assert Content(b"\x89PNG", "image/gif") != PNG
    assert Content(b"", "image/png") != PNG
    assert PNG != b"\x89PNG"
    assert repr(PNG) == "Content(4 bytes, 'image/png')"
    assert digest_value([PNG]) == digest_value([Content(b"\x89PNG", "image/png")])
    assert digest_value([PNG]) != digest_value([Content(b"\x89PNG", "image/gif")])


# --- in a history ---------------------------------------------------------------------------------

IMAGE = base64.b64encode(PNG.data).decode()


@pytest.fixture
def seen() -> TaskState:
    task = Task(description="d")
    task.put(task.message(Raw(bytes(encode_value(["look", PNG, PDF, NOTE, SOUND, 1])))))  # type: ignore[arg-type]
    decision = {
        "tool_calls": [{"tool_name": n, "tool_call_id": n} for n in ("shot", "both", "deep")]
    }
    results: list[Any] = [PNG, ["here", PNG], {"image": PNG}]
    outcomes = [{"result": encode_value(r)} for r in results]
    task.did("StepCompleted", step_index=0, decision=decision, calls=outcomes)
    return task.state


def test_openai_is_shown_data_urls(seen: TaskState) -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}}
    file = {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}
    history = messages(seen, "openai")
    assert {
        "role": "user",
        "content": [
            {"type": "text", "text": "look"},
            image,
            {"type": "file", "file": file},
            {"type": "text", "text": "é"},
            {"type": "text", "text": "[audio/wav, 4 bytes]"},
            {"type": "text", "text": "1"},
        ],
    } in history
    # What a tool's message cannot hold stands behind the last of them.
    at = next(i for i, m in enumerate(history) if m["role"] == "tool")
    assert history[at : at + 4] == [
        {"role": "tool", "tool_call_id": "shot", "content": "[image/png, 4 bytes]"},
        {"role": "tool", "tool_call_id": "both", "content": '["here","[image/png, 4 bytes]"]'},
        {"role": "tool", "tool_call_id": "deep", "content": '{"image":"[image/png, 4 bytes]"}'},
        {"role": "user", "content": [image, {"type": "text", "text": "here"}, image]},
    ]


def test_anthropic_is_shown_base64_sources(seen: TaskState) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE}
    image = {"type": "image", "source": source}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
    history = messages(seen, "anthropic")
    assert {
        "role": "user",
        "content": [
            {"type": "text", "text": "look"},
            image,
            {"type": "document", "source": pdf},
            {"type": "text", "text": "é"},
            {"type": "text", "text": "[audio/wav, 4 bytes]"},
            {"type": "text", "text": "1"},
        ],
    } in history
    assert [result["content"] for result in history[-2]["content"]] == [
        [image],
        [{"type": "text", "text": "here"}, image],
        '{"image":"[image/png, 4 bytes]"}',
    ]


def test_plain_says_what_they_are(seen: TaskState) -> None:
    told = [m["content"] for m in messages(seen, "plain")]
    assert any(t.startswith("Observation: [image/png, 4 bytes]\nObservation: [") for t in told)
