"""A user's values to JSON and back, whole or not at all, and the digests that name them.

Knows JSON, contents and the reference that stands for a blob; knows no event (codec) and no blob
store. Pure.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from array import array
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Annotated, Any, Final

import msgspec
from msgspec import Raw, Struct

from journal.content import KEY, Content, from_inline, inline
from journal.errors import ValueRefused


class _HasContent(Exception):
    """A value holds contents, which the common encoder does not write."""


def _plain(value: Any) -> Any:
    """What msgspec has no rule for. A pydantic model is known by its method; a model's own
    names are those that it reads."""
    if isinstance(value, Content):
        raise _HasContent
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise TypeError(f"a {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
encode: Final = _encoder.encode
"""Any struct of `journal.events` to JSON, and any value that needs no closer look."""


def encode_tight(value: Any) -> bytes:
    """The same in just as many bytes. What `encode` returns has room behind it, up to half as much
    again, which whoever keeps it would keep too."""
    buffer = bytearray()
    _encoder.encode_into(value, buffer)
    return bytes(buffer)


class BlobRef(Struct, frozen=True):
    """What stands in an event for a payload kept elsewhere: hex SHA-256, bytes, media type."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, msgspec.Meta(ge=0)]
    media_type: str = "application/json"


class _Blob(Struct, rename={"blob": "$blob"}):
    blob: BlobRef


_blobs = msgspec.json.Decoder(_Blob)
_BLOB_HEAD = b'{"$blob":'
Load = Callable[[BlobRef], bytes]


CONTENT_BYTES: Final = 64 * 1024
"""A content of more bytes than this stands in the blob store."""


def encode_value(value: Any, large: list[Content] | None = None) -> Raw:
    """A user's value to JSON, complete or not at all.

    Contents of more than `CONTENT_BYTES` are written as references and added to `large`, for
    the caller to store; without `large` each stands inline. A key that begins with `$` is
    written with a second one, so that nobody's data can look like a reference or a content.
    Raises `ValueRefused`, with the path, for NaN and infinities, lone surrogates, keys that are
    no strings, integers of more than 64 bits, more than 200 levels, and whatever else JSON or
    its readers cannot carry.
    """
    try:
        raw = encode(value)
        if type(value) is str:
            return Raw(raw)
        back = msgspec.json.decode(raw)
        # Refuses integers of more than 64 bits, many times faster than a walk.
        _integers(back)
    except _HasContent:
        return _with_contents(value, large)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        refuse(value, "$")
        raise ValueRefused("$", f"JSON cannot carry it: {error}") from None
    if too_deep(raw, _LEVELS) or back != value:
        # Tuples, dates and structs come back as other types; what must not pass is what
        # comes back as another value: NaN as null, 1 as "1".
        refuse(value, "$")
    return Raw(encode(_escape(back))) if may_hold_marks(raw) else Raw(raw)


def decode_value(raw: Raw | bytes | None, load: Load | None = None) -> Any:
    """What `encode_value` was given, as JSON types. A reference is loaded by `load`, or given
    as `BlobRef` where there is none."""
    if raw is None:
        return None
    data = bytes(raw)
    if data.startswith(_BLOB_HEAD):
        ref = blob_ref(data)
        if ref is not None:
            return ref if load is None else decode_value(load(ref), load)
    value = loads(data)
    return _unescape(value, load) if may_hold_marks(data) else value


def loads(data: bytes | Raw) -> Any:
    """JSON as Python's own types. A number that none of them holds (`1e400`, or thousands of
    digits) is given as its text: no writer of ours makes one, and it must not hide a run."""
    try:
        return msgspec.json.decode(data)
    except msgspec.ValidationError:
        return json.loads(bytes(data), parse_int=_integer, parse_float=_float, parse_constant=str)


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= _DIGITS else text


def _float(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def may_hold_marks(raw: bytes) -> bool:
    """Whether a key in this JSON may begin with `$`."""
    # Not `in`: that takes its operand for a number first, and is told no by an exception. And the
    # one character first, which most do not hold: it is found many times faster than two are.
    return raw.find(b"$") >= 0 and raw.find(b'"$') >= 0


def too_deep(data: bytes, levels: int) -> bool:
    """Whether more than `levels` lists and objects of this JSON stand one in the other. With
    more, whether a reader can decode it depends on its Python and on how deep its stack is."""
    if data.count(b"[") + data.count(b"{") <= levels:
        return False
    # What stands in strings is no structure.
    outside = b"".join(data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    steps = array("b", outside.translate(_STEPS, _NO_BRACKETS))
    return max(accumulate(steps, initial=0)) > levels


_STEPS: Final = bytes.maketrans(b"[{]}", b"\1\1\xff\xff")
"""One level down, and as a signed byte one up."""
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))


def _with_contents(value: Any, large: list[Content] | None) -> Raw:
    refuse(value, "$")
    found: list[Content] = []
    mark = ""

    def hook(inner: Any) -> Any:
        if not isinstance(inner, Content):
            return _plain(inner)
        found.append(inner)
        return {mark: len(found) - 1}

    encoder = msgspec.json.Encoder(enc_hook=hook)
    # Where contents stand is marked with a hash of all that stands around them, which nothing
    # in there can hold.
    mark = hashlib.sha256(encoder.encode(value)).hexdigest()
    found.clear()
    back = msgspec.json.decode(encoder.encode(value))

    def written(inner: Any) -> Any:
        if isinstance(inner, dict):
            if mark in inner:
                return _content(found[inner[mark]], large)
            return {"$" + k if k[:1] == "$" else k: written(v) for k, v in inner.items()}
        return [written(v) for v in inner] if isinstance(inner, list) else inner

    return Raw(encode(written(back)))


def _content(content: Content, large: list[Content] | None) -> dict[str, Any]:
    if large is None or len(content.data) <= CONTENT_BYTES:
        return inline(content)
    large.append(content)
    sha256 = hashlib.sha256(content.data).hexdigest()
    return {KEY: _Blob(BlobRef(sha256, len(content.data), content.media_type))}


def _loaded(form: Any, load: Load | None) -> Any:
    """What stands under `KEY`: a content, or the reference to one that is not loaded; None
    where it is neither."""
    if not isinstance(form, dict) or form.keys() != {"$blob"}:
        return from_inline(form)
    try:
        ref = msgspec.convert(form, _Blob).blob
    except msgspec.MsgspecError:
        return None
    return ref if load is None else Content(load(ref), ref.media_type)


def blob_ref(raw: Raw | bytes) -> BlobRef | None:
    """The reference that this payload is, or None where it is a value."""
    data = bytes(raw)
    if not data.startswith(_BLOB_HEAD):
        return None
    try:
        return _blobs.decode(data).blob
    except msgspec.MsgspecError:
        return None


def blob_payload(ref: BlobRef) -> Raw:
    """The payload that stands for a blob."""
    return Raw(encode(_Blob(ref)))


def digest(raw: bytes | Raw) -> str:
    """A short name for a value: 128 bits of SHA-256 over its JSON, in hex."""
    return hashlib.sha256(bytes(raw)).hexdigest()[:32]


def digest_value(value: Any) -> str:
    """The digest of a value whose keys may stand in any order. Raises `ValueRefused`."""
    try:
        raw = _digested.encode(value)
        if raw.find(b"null") >= 0 and not _finite(msgspec.to_builtins(value, enc_hook=_named)):
            raise ValueError("NaN and infinities would pass for null")
        return digest(raw)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        refuse(value, "$")
        raise ValueRefused("$", f"JSON cannot carry it: {error}") from None


def _finite(plain: Any) -> bool:
    if isinstance(plain, float):
        return math.isfinite(plain)
    if isinstance(plain, dict):
        return all(map(_finite, plain.values()))
    return not isinstance(plain, list | tuple | set) or all(map(_finite, plain))


def _named(value: Any) -> Any:
    if not isinstance(value, Content):
        return _plain(value)
    return {KEY: [hashlib.sha256(value.data).hexdigest(), value.media_type]}


_digested = msgspec.json.Encoder(enc_hook=_named, order="deterministic")
_LEVELS: Final = 200
_DIGITS: Final = 4300
"""More than that, and Python makes no integer of it."""
_integers = msgspec.msgpack.Encoder().encode


def _escape(value: Any) -> Any:
    if isinstance(value, dict):
        return {"$" + k if k[:1] == "$" else k: _escape(v) for k, v in value.items()}
    return [_escape(v) for v in value] if isinstance(value, list) else value


def _unescape(value: Any, load: Load | None) -> Any:
    if isinstance(value, dict):
        if value.keys() == {KEY}:
            content = _loaded(value[KEY], load)
            if content is not None:
                return content
        return {k[1:] if k[:2] == "$$" else k: _unescape(v, load) for k, v in value.items()}
    return [_unescape(v, load) for v in value] if isinstance(value, list) else value


def refuse(value: Any, path: str, depth: int = 0) -> None:
    """Raise for the first thing in `value` that JSON cannot carry, naming its path."""
    if depth >= _LEVELS and isinstance(value, dict | list | tuple | set | frozenset):
        raise ValueRefused(path, f"nested more than {_LEVELS} levels deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueRefused(path, f"JSON cannot carry {value}")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueRefused(path, "JSON cannot carry a lone surrogate") from None
    elif isinstance(value, dict):
        for k, v in value.items():
            if not isinstance(k, str):
                raise ValueRefused(path, f"the key {k!r} is no string")
            try:
                k.encode()
            except UnicodeEncodeError:
                raise ValueRefused(path, "a key holds a lone surrogate") from None
            refuse(v, f"{path}.{k}", depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for i, v in enumerate(value):
            refuse(v, f"{path}[{i}]", depth + 1)
    elif isinstance(value, Struct):
        _refuse_fields(value, value.__struct_fields__, path, depth)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _refuse_fields(value, [f.name for f in dataclasses.fields(value)], path, depth)
    elif not isinstance(value, int | bool | None | float | Content):
        try:
            plain = msgspec.json.decode(encode(value))
            if not isinstance(value, Raw):
                plain = msgspec.to_builtins(value, enc_hook=_plain)
        except (TypeError, ValueError, msgspec.MsgspecError):
            raise ValueRefused(path, f"JSON cannot carry a {type(value).__name__}") from None
        if isinstance(plain, dict | list | tuple | float):
            refuse(plain, path, depth)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise ValueRefused(path, "an integer of more than 64 bits; write it as a string")


def _refuse_fields(value: Any, names: Iterable[str], path: str, depth: int) -> None:
    for name in names:
        inner = getattr(value, name)
        # A payload that is not there is an empty `Raw`.
        if inner is not msgspec.UNSET and inner != Raw():
            refuse(inner, f"{path}.{name}", depth + 1)
