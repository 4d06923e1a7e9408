"""Rows to Arrow tables, a column at a time. Knows the kinds of `rows.COLUMNS`, no SQL.

What Arrow cannot take (an integer of more than 64 bits that some writer put where nothing
depends on it, bytes that are not UTF-8) costs that one cell, never the batch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from projector.rows import COLUMNS, Row

_TYPES = {
    "text": pa.string(),
    "int": pa.int64(),
    "short": pa.int32(),
    "bool": pa.bool_(),
    "time": pa.timestamp("us"),
    "bytes": pa.binary(),
    "payload": pa.string(),
}
_CODES = {"int": "q", "short": "i", "time": "q"}
"""Of `struct`, which packs these kinds in less than half the time that Arrow takes."""
_BOUND = 1 << 63


def table(name: str, rows: list[Row]) -> pa.Table:
    """Rows of the table `name`, of which there is at least one."""
    kinds = COLUMNS[name]
    columns = [
        _array(column, kind)
        for column, kind in zip(zip(*rows, strict=True), kinds.values(), strict=True)
    ]
    return pa.Table.from_arrays(columns, names=list(kinds))


def _array(column: tuple[Any, ...], kind: str) -> pa.Array:
    try:
        if kind == "payload":
            return _payloads(column)
        if kind in _CODES:
            return _numbers(column, kind)
        return pa.array(column, type=_TYPES[kind])
    except (pa.ArrowException, OverflowError):
        return pa.array([_clean(value, kind) for value in column], type=_TYPES[kind])


def _payloads(column: Sequence[Any]) -> pa.Array:
    """Payloads put together in one go: a third of the time of one after another."""
    present = None
    if None in column:
        present = pa.array([value is not None for value in column]).buffers()[1]
        column = [b"" if value is None else value for value in column]
    ends = struct.pack(f"{len(column) + 1}i", *accumulate(map(len, column), initial=0))
    data = b"".join(column)
    made = pa.StringArray.from_buffers(len(column), pa.py_buffer(ends), pa.py_buffer(data), present)
    if not data.isascii():
        made.validate(full=True)
    return made


def _numbers(column: tuple[Any, ...], kind: str) -> pa.Array:
    try:
        numbers = pa.py_buffer(struct.pack(f"{len(column)}{_CODES[kind]}", *column))
    except struct.error:  # there is a None among them, or too large a number
        return pa.array(column, type=_TYPES[kind])
    return pa.Array.from_buffers(_TYPES[kind], len(column), [None, numbers])


def _clean(value: Any, kind: str) -> Any:
    if isinstance(value, int) and not -_BOUND <= value < _BOUND:
        return None
    if kind == "payload" or (kind == "text" and isinstance(value, bytes)):
        return None if value is None else bytes(value).decode(errors="replace")
    return value
