"""From JSON types back to the type that a function says it returns.

A value is recorded as JSON, and what is given back is made from that, in the first run as on a
replay: by msgspec, by a pydantic model's own validation, never by pickle. Pure.
"""

from __future__ import annotations

import collections.abc
import functools
import typing
from typing import Any

import msgspec

from journal.content import Content
from journal.errors import ReplayDiverged, UsageError, ValueRefused
from journal.values import encode

_AWAITED = (collections.abc.Awaitable, collections.abc.Coroutine)


def declared(function: Any) -> Any:
    """The type that a function, sync or async, says that it returns; `Any` where it says none
    or `None`, or one that is not known when it runs. Raises `UsageError` for one that values
    cannot be brought back to, before anything has run."""
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        partial = isinstance(function, functools.partial)
        function = function.func if partial else function.__wrapped__
    kind = getattr(function, "__annotations__", {}).get("return", Any)
    if kind is Any and not hasattr(function, "__code__"):
        function = getattr(type(function), "__call__", None)  # noqa: B004 - its annotations
        kind = getattr(function, "__annotations__", {}).get("return", Any)
    kind = _resolved(kind, getattr(function, "__globals__", {}))
    if typing.get_origin(kind) in _AWAITED:
        kind = typing.get_args(kind)[-1]
    return _readable(kind, getattr(function, "__qualname__", "the function"))


def _resolved(kind: Any, names: dict[str, Any]) -> Any:
    """An annotation that is a text, or has texts in it, as what they name."""
    if kind is None or kind == "None":
        return Any  # it says nothing of a result that somebody else found out
    if kind is Any or type(kind) is type:
        return kind
    holder = type("holder", (), {"__annotations__": {"kind": kind}})
    try:
        return typing.get_type_hints(holder, names, {}, include_extras=True)["kind"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Any


def _readable(kind: Any, name: str) -> Any:
    if kind is Any or (type(kind) is type and kind.__module__ == "builtins"):
        return kind
    try:
        msgspec.json.Decoder(kind, dec_hook=_custom)
    except TypeError as error:
        if _has_content(kind):
            return Any  # a content comes back as one, whatever is declared
        why = str(error).partition(" - ")[0]
        raise UsageError(
            f"{name} says that it returns {kind}: {why}; declare another type, or none"
        ) from None
    return kind


def _has_content(kind: Any) -> bool:
    return kind is Content or any(_has_content(inner) for inner in typing.get_args(kind))


def fit(value: Any, kind: Any) -> Any:
    """JSON types as the declared type. Raises `ValueRefused`, with the path."""
    if kind is Any:
        return value
    try:
        return msgspec.convert(value, kind, dec_hook=_custom)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        raise ValueRefused(
            path.removesuffix("`") or "$", f"does not fit the declared type: {reason}"
        ) from None


def refit(value: Any, kind: Any, what: str) -> Any:
    """The same for a value that is recorded. Raises `ReplayDiverged`."""
    try:
        return fit(value, kind)
    except ValueRefused as error:
        raise ReplayDiverged(f"{what}: recorded is {error}; has the code changed since?") from None


def _custom(kind: Any, value: Any) -> Any:
    """What msgspec has no rule for: a pydantic model, or what is of its type already."""
    if hasattr(kind, "model_validate_json"):
        try:
            return kind.model_validate_json(encode(value))
        except ValueError as error:
            raise ValueError(_first(error)) from None
    protocol = getattr(kind, "_is_protocol", False)
    if isinstance(kind, type) and not protocol and isinstance(value, kind):
        return value
    raise TypeError(f"no rule brings back {getattr(kind, '__qualname__', kind)}")


def _first(error: ValueError) -> str:
    """The first of what pydantic found, without the values that its text shows."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return type(error).__name__
    found = errors()[0]
    where = ".".join(str(part) for part in found["loc"])
    return f"{where}: {found['msg']}" if where else str(found["msg"])


def json_schema(kind: Any) -> Any:
    """The JSON Schema of a type; one that is a schema already, or None, as it is. Raises
    `UsageError`."""
    if kind is None or isinstance(kind, dict | bool):
        return kind
    if hasattr(kind, "model_json_schema"):
        return kind.model_json_schema()
    try:
        return msgspec.json.schema(kind)
    except (TypeError, NotImplementedError):
        raise UsageError(
            f"schema: no JSON Schema can be made of {kind}; give another type, or a schema"
        ) from None


def schema_type(kind: Any) -> Any:
    """The type that answers come back as."""
    return Any if kind is None or isinstance(kind, dict | bool) else kind
