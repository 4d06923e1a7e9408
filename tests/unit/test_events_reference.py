"""docs/events.md names every event, every field and every version: no more and no fewer."""

from __future__ import annotations

import re
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

import msgspec
import pytest
from msgspec import Raw, Struct

from journal import acceptance, events
from journal.events import EVENT_TYPES, Envelope

TEXT = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### `(\w+)`.*?\n(.*?)(?=^##|\Z)", TEXT, re.M | re.S))
CLASSES = {
    events.JOURNAL: "the journal's",
    events.CLAIM: "claim",
    events.OWNER: "owner's",
    events.ANYONE: "anyone's",
}
PARTS = [events.Usage, events.ToolCall, events.Decision, events.CallOutcome]
BODIES = [body for _, _, body in EVENT_TYPES.values()]
NAMES: dict[Any, str] = {
    int: "integer",
    str: "text",
    bool: "boolean",
    Raw: "payload",
    Any: "payload",
    list[tuple[int, int]]: "list of [integer, integer]",
}


def in_words(type: Any) -> str:
    """A field's type as the reference calls it."""
    if type in NAMES:
        return NAMES[type]
    inner = [part for part in get_args(type) if part is not NoneType]
    if get_origin(type) in (list, tuple):
        return f"list of {in_words(inner[0])}"
    return in_words(inner[0]) if inner else f"`{type.__name__}`"


def default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    says_nothing = field.default in (msgspec.NODEFAULT, None, Raw())
    return "" if says_nothing else f"`{msgspec.json.encode(field.default).decode()}`"


def test_every_type_and_part_has_a_section() -> None:
    assert SECTIONS.keys() == EVENT_TYPES.keys() | {p.__name__ for p in PARTS} | {"Envelope"}


@pytest.mark.parametrize("type", sorted(EVENT_TYPES))
def test_the_heading_names_class_and_version(type: str) -> None:
    kind, v, _ = EVENT_TYPES[type]
    assert f"### `{type}`: {CLASSES[kind]}, version {v}\n" in TEXT


@pytest.mark.parametrize("body", [Envelope, *BODIES, *PARTS], ids=lambda body: body.__name__)
def test_the_section_names_every_field_with_type_and_default(body: type[Struct]) -> None:
    rows = re.findall(r"^\| `(\w+)` \|([^|]+)\|([^|]*)\|", SECTIONS[body.__name__], re.M)
    found = [(name, type.strip(), default.strip()) for name, type, default in rows]
    assert found == [
        # A decision is kept as it was written, but it has a shape of its own.
        (
            f.encode_name,
            "`Decision`" if f.name == "decision" else in_words(f.type),
            default_of(f),
        )
        for f in msgspec.structs.fields(body)
        if f.name != "body"
    ]


def test_it_explains_every_label_that_acceptance_gives() -> None:
    states = {"", acceptance.RUNNING, acceptance.WAITS, *acceptance.ENDED}
    labels = {
        value
        for name, value in vars(acceptance).items()
        if name.isupper() and isinstance(value, str) and value not in states
    }
    assert len(labels) == 9
    section = TEXT.split("\n## Labels\n")[1].split("\n## ")[0]
    assert labels == set(re.findall(r"^\| `(\w+)` \|", section, re.M))
