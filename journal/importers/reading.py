"""From bytes to JSON values with their lines, and checked access to what is inside them.

A file is one JSON document, or JSON Lines, perhaps with several objects on one line. What JSON
cannot carry (a lone surrogate, NaN, an integer of more than 64 bits) is replaced and reported
with its path; what is no JSON is reported and left out. Knows no format of a run and no log.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from journal.importers.model import Report

Dict = dict[str, Any]
ReportAt = Callable[[int | None, str], None]
"""Takes a line, counted from 1, or None, and a reason."""

_MAX_DEPTH = 200
_TOO_DEEP = "nested too deep"
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_slow = json.JSONDecoder()


def at_line(report: ReportAt, line: int | None) -> Report:
    """A report about one line."""

    def tell(reason: str) -> None:
        report(line, reason)

    return tell


class Malformed(Exception):
    """A value inside a document has the wrong shape; the message names its path."""


# --- documents --------------------------------------------------------------------------------


def documents(data: bytes, report: ReportAt) -> Iterator[tuple[int, Any]]:
    """(line, value) for each JSON value of a file. A document that is a list of objects other
    than messages gives each of them."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        report(None, "the file is empty")
        return
    try:
        whole = _fast(data, at_line(report, 1))
    except (msgspec.MsgspecError, RecursionError):
        yield from _several(data, report)
        return
    yield from _flatten(whole)


def _flatten(value: Any) -> Iterator[tuple[int, Any]]:
    inside = isinstance(value, list) and value and isinstance(value[0], dict)
    if inside and "role" not in value[0]:
        for each in value:
            yield 1, each
    else:
        yield 1, value


def _fast(data: bytes, report: Report) -> Any:
    value = msgspec.json.decode(data)
    return mend(value, report) if _LONG_NUMBER.search(data) else value


def _several(data: bytes, report: ReportAt) -> Iterator[tuple[int, Any]]:
    first = data.lstrip().split(b"\n", 1)[0]
    broken: str | None = None
    if not _parses(first):
        # Not JSON Lines, unless its first line is damaged: perhaps one document over many
        # lines that holds something which only the lenient decoder takes.
        try:
            text = data.decode()
            value = _slow.decode(text)
        except UnicodeDecodeError as error:
            broken = f"not UTF-8: {error.reason} at byte {error.start}"
        except ValueError as error:
            broken = f"neither JSON nor JSON Lines: {error}"
        except RecursionError:
            broken = _TOO_DEEP
        else:
            yield from _flatten(mend(value, at_line(report, None)))
            return
    held: list[tuple[int, str]] = []
    found = broken is None

    def tell(line: int | None, reason: str) -> None:
        if found or line is None:
            report(line, reason)
        else:
            held.append((line, reason))

    for number, line in enumerate(io.BytesIO(data), 1):
        if not line.strip():
            continue
        for value in _line(line, number, tell):
            if not found and isinstance(value, dict | list):
                found = True
                for each in held:
                    report(*each)
            yield number, value
    if not found:
        report(None, broken or "no JSON in it")


def _parses(line: bytes) -> bool:
    try:
        _slow.raw_decode(line.strip().decode())
    except (ValueError, RecursionError):
        return False
    return True


def _line(line: bytes, number: int, report: ReportAt) -> Iterator[Any]:
    """The values on one line; what follows the last good one is reported."""
    try:
        yield _fast(line, at_line(report, number))
        return
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        text = line.strip().decode()
    except UnicodeDecodeError as error:
        report(number, f"not UTF-8: {error.reason} at byte {error.start}; line skipped")
        return
    place, values = 0, 0
    while place < len(text):
        try:
            value, place = _slow.raw_decode(text, place)
            yield mend(value, at_line(report, number))
        except (ValueError, RecursionError) as error:
            cut = not line.endswith(b"\n")
            why = "the last line is not finished" if cut else f"malformed JSON: {error}"
            if isinstance(error, RecursionError):
                why = _TOO_DEEP
            rest = "line skipped" if not values else "the rest of the line skipped"
            report(number, f"{why}; {rest}")
            return
        values += 1
        while place < len(text) and text[place].isspace():
            place += 1


def mend(value: Any, report: Report, path: str = "$", depth: int = 0) -> Any:
    """The value with everything that JSON cannot carry replaced, and each reported. Raises
    `RecursionError` for what is nested too deep."""
    if depth > _MAX_DEPTH:
        raise RecursionError(f"nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, str):
        if _SURROGATE.search(value):
            report(f"{path}: JSON cannot carry a lone surrogate; replaced by U+FFFD")
            return _SURROGATE.sub("\ufffd", value)
    elif isinstance(value, dict):
        return {
            mend(key, report, path): mend(
                each, report, f"{path}.{_SURROGATE.sub('?', key)}", depth + 1
            )
            for key, each in value.items()
        }
    elif isinstance(value, list):
        return [mend(each, report, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]
    elif isinstance(value, float) and not math.isfinite(value):
        report(f"{path}: JSON cannot carry {value}; replaced by null")
        return None
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        report(f"{path}: an integer of more than 64 bits; kept as a string")
        return str(value)
    return value


# --- what is inside ---------------------------------------------------------------------------


def need_dict(value: Any, path: str) -> Dict:
    """The object at `path`. Raises `Malformed`."""
    if not isinstance(value, dict):
        raise Malformed(f"{path} is {_kind(value)}, not an object")
    return value


def need_list(value: Any, path: str) -> list[Any]:
    """The list at `path`; none at all is an empty one. Raises `Malformed`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise Malformed(f"{path} is {_kind(value)}, not a list")
    return value


def maybe_dict(value: Any, path: str, report: Report) -> Dict:
    """The object at `path`, or an empty one; anything else is reported."""
    if value is not None and not isinstance(value, dict):
        report(f"{path} is {_kind(value)}, not an object; ignored")
    return value if isinstance(value, dict) else {}


def maybe_list(value: Any, path: str, report: Report) -> list[Any]:
    """The list at `path`, or an empty one; anything else is reported."""
    if value is not None and not isinstance(value, list):
        report(f"{path} is {_kind(value)}, not a list; ignored")
    return value if isinstance(value, list) else []


def maybe_str(value: Any, path: str, report: Report) -> str | None:
    """The text at `path`, or None; anything else is reported."""
    if value is not None and not isinstance(value, str):
        report(f"{path} is {_kind(value)}, not text; ignored")
    return value if isinstance(value, str) else None


def count(value: Any, path: str, report: Report) -> int:
    """The number of tokens at `path`; 0 where there is none. Anything else is reported."""
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        report(f"{path} is {_kind(value)}, not a number of tokens; ignored")
        return 0
    return value


def moment(value: Any, path: str, report: Report) -> str | None:
    """A time as the source wrote it; a number of seconds or milliseconds since the epoch in
    RFC 3339. Anything else is reported."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value / 1000 if abs(value) >= 1e11 else value
        try:
            at = datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            report(f"{path} is no time; ignored")
            return None
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return maybe_str(value, path, report)


def parsed(arguments: Any) -> Any:
    """What a model wrote as arguments: the value in a string where that is an object or a list
    in JSON, else as it is."""
    if not isinstance(arguments, str):
        return arguments
    reasons: list[str] = []
    try:
        value = _fast(arguments.encode(), reasons.append)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return arguments
    return value if isinstance(value, dict | list) and not reasons else arguments


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    for kinds, name in ((int | float, "a number"), (str, "text"), (list, "a list")):
        if isinstance(value, kinds):
            return name
    return "null" if value is None else "an object"
