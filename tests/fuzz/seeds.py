"""What to begin with: the recorded events of every version, good and bad, as lines of `pipeline`,
and the words that are worth inserting."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from journal.codec import decode_event
from journal.errors import BadRecord
from journal.events import EVENT_TYPES, Envelope
from tests.make_events import run

_GOLDEN = Path(__file__).parents[1] / "golden"

_TASK_IDS = '"task_id":"research-42/é"'.encode(), b'"task_id":"research-42"'


def records() -> list[bytes]:
    """Every recorded event, as an event of the task `t`, and every bad one."""
    files = [
        file
        for folder in ("events", "bad")
        for file in sorted((_GOLDEN / folder).glob("*.json"))
        if ".read." not in file.name
    ]
    found = [file.read_bytes() for file in files]
    for task_id in _TASK_IDS:
        found = [value.replace(task_id, b'"task_id":"t"') for value in found]
    return found


def lines() -> list[bytes]:
    """The same, and each event's body once more in an envelope that is accepted."""
    found = records()
    for value in records():
        try:
            event = decode_event(value)
        except BadRecord:
            continue
        found.append(_line(event))
    return [line.replace(b"\n", b" ") for line in found]


def lives() -> list[bytes]:
    """Whole lives of tasks, as lines of `pipeline`."""
    found = [b"\n".join(_line(event) for event in run("t", Random(seed), 4)) for seed in range(12)]
    # Once more with a conflict or a gap, which closes the epoch, before what follows of it.
    return found + [
        b"\n".join([_CLOSES % (n % 2 * 2), *life.split(b"\n")]) for n, life in enumerate(found)
    ]


_CLOSES = b'StepFailed 1 %d {"step_index":0,"error_type":"E","error":"no"}'


def _line(event: Envelope) -> bytes:
    return b"%s %d 1 %s" % (event.type.encode(), event.v, bytes(event.body))


TOKENS: list[bytes] = [
    b"NaN", b"Infinity", b"1e999", b"-1e999", b"1e-999", b"1" * 5_000, b"-9223372036854775809",
    b"18446744073709551616", b"9223372036854775807", b"-1", b"0", b"1.5", b"true", b"null", b'""',
    b'"\\ud800"', b'"\\u0000"', b'"\xff"', b'"\xed\xa0\x80"', b"[]", b"{}", b"[[]]",
    b'{"a":1,"a":2}', b'{"$blob":{}}', b'{"$enc":1}', b'{"$":{}}', b"[" * 2_000 + b"]" * 2_000,
    b'"' + b"x" * 5_000 + b'"', b'"2026-99-01T00:00:00Z"', b'"0001-01-01T00:00:00+23:59"',
    b'{"$content":{"media_type":"x","data":"!!"}}', b'[{"tool_name":1}]', b"\xef\xbb\xbf", b"",
]  # fmt: skip
"""Values, or what stands in for one, that have broken a JSON reader somewhere."""

WORDS: list[bytes] = [
    *(token for token in TOKENS if 0 < len(token) < 60),
    *sorted(set(re.findall(rb'"\w+":', b"".join(lines())))),
    *(f"{name} {v} 1 ".encode() for name, (_, v, _) in EVENT_TYPES.items()),
    b"StepCompleted 1 1 ",
    b" 0 ",
    b" 2 ",
    b"\n",
]
"""For the fuzzer's dictionary."""
