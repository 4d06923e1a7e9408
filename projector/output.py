"""Results on the screen and for machines: table, JSON, CSV, Parquet.

Works on an Arrow stream, a batch at a time. Knows nothing of where it comes from; `rich` and
Arrow's writers are loaded only by the format that needs them.
"""

from __future__ import annotations

import csv
import sys
from typing import Any, BinaryIO, TextIO

import msgspec

from journal.errors import UsageError

FORMATS = ("table", "json", "csv", "parquet")
_CELL = 200
"""Characters of a value that a table shows; the other formats give all of it."""

_json = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


def write(reader: Any, format: str, out: TextIO) -> None:
    """Write what a `pyarrow.RecordBatchReader` gives. Raises `UsageError` for Parquet on a
    terminal."""
    if format == "table":
        _table(reader, out)
    elif format == "json":
        _write_json(reader, out)
    elif format == "csv":
        _csv(reader, out)
    else:
        if out.isatty():
            raise UsageError("Parquet is no text; send it to a file: … --format parquet > FILE")
        _parquet(reader, out.buffer)


def print_rows(names: list[str], rows: list[list[Any]], out: TextIO) -> None:
    """A small table of ready-made rows."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    numbers = [
        all(isinstance(row[n], int | float | None) for row in rows) for n in range(len(names))
    ]
    for name, number in zip(names, numbers, strict=True):
        table.add_column(name, justify="right" if number and rows else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(value)) for value in row))
    # What is piped on is not folded to a terminal's width.
    Console(file=out, width=None if out.isatty() else 10_000).print(table)


def _table(reader: Any, out: TextIO) -> None:
    names = list(reader.schema.names)
    rows = [row for batch in reader for row in _rows(batch)]
    print_rows(names, rows, out)


def _rows(batch: Any) -> list[list[Any]]:
    # By position: two columns may have one name.
    columns = [column.to_pylist() for column in batch.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    elif isinstance(value, dict | list):
        value = _json.encode(value).decode()
    text = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in str(value))
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def _write_json(reader: Any, out: TextIO) -> None:
    names = list(reader.schema.names)
    between = "[\n"
    for batch in reader:
        for row in _rows(batch):
            cells = dict(zip(names, map(_plain, row), strict=True))
            out.write(between + _json.encode(cells).decode())
            between = ",\n"
    out.write("[]\n" if between == "[\n" else "\n]\n")


def _plain(value: Any) -> Any:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def _csv(reader: Any, out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(reader.schema.names)
    for batch in reader:
        for row in _rows(batch):
            writer.writerow([_cell(value) for value in row])


def _cell(value: Any) -> Any:
    value = _plain(value)
    return _json.encode(value).decode() if isinstance(value, dict | list | bool) else value


def _parquet(reader: Any, out: BinaryIO) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(out, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)


def complain(message: str) -> None:
    """One line on stderr."""
    print(f"projector: {' '.join(message.split())}", file=sys.stderr)
