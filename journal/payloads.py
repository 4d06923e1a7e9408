"""A user's values into the payloads of events, large ones by way of the blob store.

Knows codec, blobs and the shape of a decision; knows no log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from journal.blobs import INLINE_BYTES, BlobStore
from journal.codec import blob_payload, encode, encode_value
from journal.content import Content
from journal.errors import ToolError
from journal.events import CallOutcome, Decision

EVENT_BYTES = 512 * 1024
"""What the payloads of one event may come to, so that it fits Kafka's default message size
(1 MiB) with its envelope."""

_SMALL_BYTES = 4096


async def payload(value: Any, blobs: BlobStore) -> Raw:
    """One value as a payload. Raises `ValueRefused`."""
    return await _stored(await _encoded(value, blobs), blobs)


async def _encoded(value: Any, blobs: BlobStore) -> Raw:
    """Its JSON, large contents being stored before it refers to them."""
    large: list[Content] = []
    raw = encode_value(value, large)
    for content in large:
        await asyncio.to_thread(blobs.put, content.data, content.media_type)
    return raw


async def _stored(raw: Raw, blobs: BlobStore, above: int = INLINE_BYTES) -> Raw:
    data = bytes(raw)
    if len(data) <= above:
        return raw
    return blob_payload(await asyncio.to_thread(blobs.put, data))


async def decision_payload(decision: Decision, blobs: BlobStore) -> Raw:
    """A decision as `StepStarted` and `StepCompleted` hold it. Raises `ValueRefused`."""
    if decision.content is None:
        for call in decision.tool_calls:
            if b'"$' in bytes(encode_value(call.arguments)):
                break
        else:
            raw = encode(decision)
            if len(raw) <= INLINE_BYTES:
                # The common decision goes as it is: whatever is free in it has been checked,
                # and there is no key to escape.
                return Raw(raw)
    fields: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(decision).items():
        if value is None or name == "tool_calls":
            continue
        fields[name] = await _encoded(value, blobs) if name in _FREE else value
    calls = [msgspec.structs.replace(call) for call in decision.tool_calls]
    for call in calls:
        call.arguments = await _encoded(call.arguments, blobs)
    for above in (INLINE_BYTES, _SMALL_BYTES):
        for name in _FREE & fields.keys():
            fields[name] = await _stored(fields[name], blobs, above)
        for call in calls:
            call.arguments = await _stored(call.arguments, blobs, above)
        raw = encode(fields | {"tool_calls": calls} if calls else fields)
        if len(raw) <= EVENT_BYTES:
            break
    return Raw(raw)


_FREE = {"text", "reasoning", "content"}


async def outcome_payloads(results: Sequence[Any], blobs: BlobStore) -> list[CallOutcome]:
    """Results of a recorded step's calls: a value each, or an exception for one that failed,
    or a whole `CallOutcome`."""
    outcomes = []
    total = 0
    for result in results:
        if isinstance(result, CallOutcome):
            outcome = result
        elif isinstance(result, BaseException):
            outcome = CallOutcome(error=str(result), error_type=type_name(result))
        else:
            outcome = CallOutcome(await _encoded(result, blobs))
        size = len(bytes(outcome.result))
        if size > INLINE_BYTES and outcome is not result:
            outcome.result = await _stored(outcome.result, blobs)
            size = len(bytes(outcome.result))
        total += size
        outcomes.append(outcome)
    if total > EVENT_BYTES:
        for outcome in outcomes:
            outcome.result = await _stored(outcome.result, blobs, _SMALL_BYTES)
    return outcomes


def type_name(error: BaseException) -> str:
    """`error_type` of OpenTelemetry: the exception's qualified name, builtins by their own."""
    if isinstance(error, ToolError):
        return error.error_type
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )
