"""A user's values into the payloads of events, without secrets, large ones by way of the blob
store.

Knows values, blobs, redaction and the shape of a decision; knows no log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from journal.blobs import INLINE_BYTES, BlobStore
from journal.content import Content
from journal.errors import ToolError, ValueRefused
from journal.events import ABSENT, CallOutcome, Decision, DecisionHead
from journal.redact import Redact, redacted, redacted_text
from journal.upcasters import misshapen
from journal.values import (
    BlobRef,
    blob_payload,
    encode,
    encode_tight,
    encode_value,
    may_hold_marks,
    refuse,
)

EVENT_BYTES = 512 * 1024
"""What the payloads of one event may come to, so that it fits Kafka's default message size
(1 MiB) with its envelope."""

_SMALL_BYTES = 4096


class Redacting:
    """A blob store, and what every text goes through before it is written there or to the log."""

    def __init__(self, store: BlobStore, redact: Redact) -> None:
        self._store = store
        self.redact = redact

    def put(self, data: bytes, media_type: str = "application/json") -> BlobRef:
        return self._store.put(data, media_type)

    def get(self, ref: BlobRef) -> bytes:
        return self._store.get(ref)

    def __str__(self) -> str:
        return str(self._store)


def clean(said: BaseException | str, blobs: BlobStore) -> str:
    """A text that is no payload, an error's or a reason, without its secrets. Of an exception's,
    what JSON cannot carry is no reason not to write the rest."""
    text = str(said)
    if isinstance(said, BaseException):
        text = text.encode(errors="backslashreplace").decode()
    return redacted_text(text, blobs.redact) if isinstance(blobs, Redacting) else text


async def payload(value: Any, blobs: BlobStore) -> Raw:
    """One value as a payload. Raises `ValueRefused`."""
    return await _stored(await _encoded(value, blobs), blobs)


async def _encoded(value: Any, blobs: BlobStore) -> Raw:
    """Its JSON, large contents being stored before it refers to them."""
    large: list[Content] = []
    try:
        raw = encode_value(value, large)
    except ValueRefused as error:
        # Its path is made of keys, its reason may name one.
        raise ValueRefused(clean(error.path, blobs), clean(error.reason, blobs)) from None
    if isinstance(blobs, Redacting):
        raw = await asyncio.to_thread(redacted, raw, blobs.redact)
    raw = Raw(encode_tight(raw))
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
    if not isinstance(blobs, Redacting) and _goes_as_it_is(decision):
        try:
            data = encode_tight(decision)
        except UnicodeEncodeError:
            pass  # the closer look names the place
        else:
            if len(data) <= INLINE_BYTES and not may_hold_marks(data):
                return _shaped(data)
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
        try:
            raw = encode(fields | {"tool_calls": calls} if calls else fields)
        except UnicodeEncodeError:
            refuse(decision, "$")
            raise
        if len(raw) <= EVENT_BYTES:
            break
    return _shaped(raw)


_heads = msgspec.json.Decoder(DecisionHead)


def _shaped(raw: bytes) -> Raw:
    """It, if it is what every reader takes for a decision: nothing has checked the types yet."""
    try:
        _heads.decode(raw)
    except msgspec.ValidationError as error:
        raise misshapen(error) from None
    return Raw(raw)


_FREE = {"text", "reasoning", "content"}


def _goes_as_it_is(decision: Decision) -> bool:
    """Whether JSON carries all that is free in it, but for lone surrogates, and nothing of it is
    to be escaped or stored. Raises `ValueRefused`."""
    if decision.content is not None:
        return False
    if type(decision.text) not in _TEXTS or type(decision.reasoning) not in _TEXTS:
        return False
    for call in decision.tool_calls:
        asked = call.arguments
        # Texts by name is what most calls are asked with, and needs no closer look.
        flat = type(asked) is dict and _STR.issuperset(map(type, (*asked, *asked.values())))
        if not flat and may_hold_marks(bytes(encode_value(asked))):
            return False
    return True


_STR = frozenset((str,))
_TEXTS = frozenset((str, type(None)))


async def outcome_payloads(results: Sequence[Any], blobs: BlobStore) -> tuple[CallOutcome, ...]:
    """Results of a recorded step's calls: a value each, or an exception for one that failed,
    or a whole `CallOutcome`."""
    outcomes = []
    total = 0
    for result in results:
        if type(result) is str and not isinstance(blobs, Redacting):
            outcome = CallOutcome(_text(result))
        elif isinstance(result, CallOutcome):
            outcome = _clean_outcome(_checked(result), blobs)
        elif isinstance(result, BaseException):
            outcome = CallOutcome(error=clean(result, blobs), error_type=type_name(result))
        else:
            outcome = CallOutcome(await _encoded(result, blobs))
        size = len(memoryview(outcome.result))
        if size > INLINE_BYTES and outcome is not result:
            outcome.result = await _stored(outcome.result, blobs)
            size = len(memoryview(outcome.result))
        total += size
        outcomes.append(outcome)
    if total > EVENT_BYTES:
        for n, outcome in enumerate(outcomes):
            small = await _stored(outcome.result, blobs, _SMALL_BYTES)
            outcomes[n] = msgspec.structs.replace(outcome, result=small)
    return tuple(outcomes)


def _text(result: str) -> Raw:
    try:
        return Raw(encode_tight(result))
    except UnicodeEncodeError:
        return encode_value(result)  # refuses it


def _checked(outcome: CallOutcome) -> CallOutcome:
    try:
        return msgspec.json.decode(encode(outcome), type=CallOutcome)
    except msgspec.ValidationError as error:
        raise misshapen(error) from None
    except UnicodeEncodeError:
        refuse(outcome, "$")
        raise


def _clean_outcome(outcome: CallOutcome, blobs: BlobStore) -> CallOutcome:
    if not isinstance(blobs, Redacting):
        return outcome
    left = msgspec.structs.replace(outcome)
    if outcome.error is not None:
        left.error = clean(outcome.error, blobs)
    if outcome.result is not ABSENT:
        left.result = redacted(outcome.result, blobs.redact)
    return left


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
