"""Old bodies to current ones: pure functions from one version's dict to the next one's.

A chain runs from every version ever written to the current one; holes are found at import.
An upcaster sees bodies only: acceptance has looked at the envelope before, and all bodies that
one record becomes share that envelope. Knows nothing of states or logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from journal.codec import LEVELS
from journal.errors import BadRecord, EventTooNew, ValueRefused
from journal.events import EVENT_TYPES, Envelope
from journal.values import encode, loads, refuse, too_deep

Dict = dict[str, Any]
Upcaster = Callable[[Dict], Iterable[tuple[str, int, Dict]]]
"""A raw body of one version to zero, one or many (type, version, body), each of a version
that is current or has an upcaster of its own."""

_upcasters: dict[tuple[str, int], Upcaster] = {}
_decoders = {(name, v): msgspec.json.Decoder(body) for name, (_, v, body) in EVENT_TYPES.items()}


def upcaster(type: str, v: int) -> Callable[[Upcaster], Upcaster]:
    """Register the function that reads version `v` of `type`."""

    def register(function: Upcaster) -> Upcaster:
        if (type, v) in _upcasters:
            raise ValueError(f"{type} version {v} has an upcaster already")
        _upcasters[type, v] = function
        return function

    return register


def read_bodies(event: Envelope, position: str) -> list[Struct]:
    """The event's bodies in their current versions; `position` is for messages.

    Raises `EventTooNew` for a version that this release does not know, and for a body that is
    kept elsewhere or encrypted: only a later release writes one, and read as it stands it would
    be an empty body. Raises `BadRecord` for a body that does not have the shape of its type and
    version.
    """
    key = (event.type, event.v)
    decoder = _decoders.get(key)
    if (decoder is None and key not in _upcasters) or _elsewhere(event.body):
        raise EventTooNew(event.type, event.v, position)
    try:
        if decoder is not None:
            return [decoder.decode(event.body)]
        pending = [(event.type, event.v, msgspec.json.decode(event.body))]
        bodies: list[Struct] = []
        while pending:
            type, v, raw = pending.pop(0)
            if (type, v) in _decoders:
                bodies.append(_decoders[type, v].decode(msgspec.json.encode(raw)))
            else:
                pending[:0] = _upcasters[type, v](raw)
        return bodies
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
        raise BadRecord(f"{event.type} version {event.v}: {error}") from None
    except RecursionError:
        if too_deep(bytes(event.body), LEVELS):
            raise BadRecord(f"{event.type} version {event.v}: nested too deep") from None
        raise  # see `decode_event`


def written(type: str, v: int, body: Struct, given: bool = True) -> Raw:
    """A body as every reader will read it; `given` where what is in it came from a user, whose
    types nobody has checked. Raises `ValueRefused`."""
    try:
        raw = encode(body)
        if given:
            _decoders[type, v].decode(raw)
        return Raw(raw)
    except msgspec.ValidationError as error:
        raise misshapen(error) from None
    except UnicodeEncodeError:
        refuse(body, "$")
        raise


def misshapen(error: msgspec.ValidationError) -> ValueRefused:
    """What msgspec says, as what a user is told."""
    reason, _, path = str(error).partition(" - at ")
    return ValueRefused(path.strip("`") or "$", reason[:1].lower() + reason[1:])


_DOLLAR = ord("$")
_ELSEWHERE = (b'{"$blob":', b'{"$enc":')


def _elsewhere(body: Raw) -> bool:
    # One byte rules out nearly every body; to copy each would cost more than the look.
    return len(body) > 2 and memoryview(body)[2] == _DOLLAR and bytes(body).startswith(_ELSEWHERE)


def upcast(event: Envelope, position: str) -> list[Dict]:
    """The event as it would be written today, one dict for each body, for people to read."""
    names = {body: name for name, (_, _, body) in EVENT_TYPES.items()}
    head = {
        name: getattr(event, name)
        for name in Envelope.__struct_fields__
        if name != "body" and getattr(event, name) is not None
    }
    return [
        head
        | {
            "type": names[type(body)],
            "v": EVENT_TYPES[names[type(body)]][1],
            "body": loads(msgspec.json.encode(body)),
        }
        for body in read_bodies(event, position)
    ]


def check_chains() -> None:
    """Raise unless every version from 1 to the current one of every type can be read."""
    for name, (_, current, _) in EVENT_TYPES.items():
        for v in range(1, current):
            if (name, v) not in _upcasters:
                raise RuntimeError(f"no upcaster reads {name} version {v}")


@upcaster("StepCompleted", 1)
def _step_completed_v1(body: Dict) -> Iterable[tuple[str, int, Dict]]:
    """The flat shape that everybody starts with: one thought, at most one tool call."""
    decision: Dict = {"text": body.get("thought")}
    new: Dict = {"step_index": body["step_index"], "decision": decision}
    if body.get("tool_name") is not None or body.get("observation") is not None:
        decision["tool_calls"] = [
            # An observation without a tool is kept as the result of a call without a name.
            {"tool_name": body.get("tool_name") or "", "arguments": body.get("tool_args")}
        ]
        new["calls"] = [{"result": body.get("observation")}]
    if body.get("tokens_used") is not None:
        decision["usage"] = {"total_tokens": body["tokens_used"]}
    if body.get("completed_at") is not None:
        new["completed_at"] = body["completed_at"]
    yield "StepCompleted", 2, new


check_chains()
