"""Values to JSON and back to the type that is declared: every kind, and what does not fit."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from journal.content import Content
from journal.declared import declared, fit, json_schema, refit, schema_type
from journal.errors import ReplayDiverged, UsageError, ValueRefused
from journal.tools import tool
from journal.values import decode_value, encode_value

if TYPE_CHECKING:
    from somewhere import Unknown  # type: ignore[import-not-found]

Utc = datetime.UTC


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Line:
    text: str
    seen: set[int] = dataclasses.field(default_factory=set)


@attrs.define
class Size:
    width: Decimal
    unit: Colour = Colour.RED


class Report(msgspec.Struct):
    lines: list[Line]
    at: datetime.datetime
    raw: bytes = b""


class Pair(NamedTuple):
    one: int
    two: Line


class Draft(TypedDict):
    day: datetime.date


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")
    born: datetime.date
    tags: set[str] = set()


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime.datetime


class Anything(Protocol):
    x: int


PERSON = Person(fullName="Ada", born=datetime.date(1815, 12, 10), tags={"x"})
PNG = Content(b"\x89PNG", "image/png")


def back(value: Any, kind: Any) -> Any:
    return fit(decode_value(encode_value(value)), kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, None),
        (True, bool),
        (2**63, int),
        (1.5, float),
        ("é", str),
        (b"\x00\xff", bytes),
        (Colour.RED, Colour),
        (Level.HIGH, Level),
        (Decimal("1.10"), Decimal),
        (datetime.datetime(2026, 1, 2, 3, 4, 5, 6, Utc), datetime.datetime),
        (datetime.date(2026, 1, 2), datetime.date),
        (datetime.time(3, 4), datetime.time),
        (datetime.timedelta(days=1, microseconds=5), datetime.timedelta),
        (uuid.UUID(int=5), uuid.UUID),
        ({1, 2}, set[int]),
        (frozenset("a"), frozenset[str]),
        ((1, "a"), tuple[int, str]),
        ({"$a": (Decimal(1),)}, dict[str, tuple[Decimal, ...]]),
        ([Line("a", {1})], list[Line]),
        (Size(Decimal("0.5")), Size),
        (Report([Line("a")], datetime.datetime(2026, 1, 1, tzinfo=Utc), b"\xff"), Report),
        (Pair(1, Line("a")), Pair),
        ({"day": datetime.date(2026, 1, 2)}, Draft),
        (PERSON, Person),
        ({"people": [PERSON]}, dict[str, list[Person]]),
        (None, Person | None),
        (Strict(at=datetime.datetime(2026, 1, 1, tzinfo=Utc)), Strict),
        (PNG, Content),
        ({"a": [PNG]}, dict[str, list[Content]]),
        ("a", Literal["a", "b"]),
    ],
)
def test_it_comes_back_as_it_was(value: Any, kind: Any) -> None:
    got = back(value, kind)
    assert got == value
    assert type(got) is type(value)


def test_without_a_type_it_comes_back_as_json() -> None:
    assert back(Size(Decimal("0.5")), Any) == {"width": "0.5", "unit": "red"}
    assert back(PERSON, Any) == {"fullName": "Ada", "born": "1815-12-10", "tags": ["x"]}
    assert back({1}, Any) == [1]


@pytest.mark.parametrize(
    ("value", "kind", "path", "why"),
    [
        ("a", int, "$", "Expected `int`, got `str`"),
        (True, int, "$", "got `bool`"),
        ([{"text": 1}], list[Line], "$[0].text", "Expected `str`, got `int`"),
        ({"a": "no"}, dict[str, Person], "$[...]", "Input should be"),
        ({"fullName": "secret", "born": "secret"}, Person, "$", "born: Input should be"),
        ("a", Content, "$", "no rule brings back Content"),
        ({"x": 1}, Anything, "$", "no rule brings back Anything"),
        ([1], Iterator[int], "$", "no rule brings back"),
    ],
)
def test_what_does_not_fit_names_its_path(value: Any, kind: Any, path: str, why: str) -> None:
    with pytest.raises(ValueRefused) as raised:
        back(value, kind)
    assert raised.value.path == path
    assert why in raised.value.reason
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(ReplayDiverged, match=r"^there: recorded is .*; has the code changed"):
        refit(decode_value(encode_value(value)), kind, "there")


# --- what a function declares ---------------------------------------------------------------------


def plain() -> Line: ...  # type: ignore[empty-body]
async def coroutine() -> list[Line]: ...  # type: ignore[empty-body]
def awaitable() -> Awaitable[Line]: ...  # type: ignore[empty-body]
def future() -> Coroutine[Any, Any, Line]: ...  # type: ignore[empty-body]
def undeclared(): ...  # type: ignore[no-untyped-def]
def unknown() -> Unknown: ...
def nothing() -> None: ...
def quoted() -> list["Line"]: ...  # type: ignore[empty-body]  # noqa: UP037
def contents() -> list[str | Content]: ...  # type: ignore[empty-body]
def either() -> Line | Size: ...  # type: ignore[empty-body]


class Callee:
    async def __call__(self) -> Line: ...  # type: ignore[empty-body]


@tool(name="a_tool")
def a_tool() -> Line: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (plain, Line),
        (coroutine, list[Line]),
        (awaitable, Line),
        (future, Line),
        (functools.partial(functools.partial(plain)), Line),
        (Callee(), Line),
        (Callee().__call__, Line),
        (a_tool.function, Line),
        (a_tool, Line),
        (undeclared, Any),
        (unknown, Any),
        (nothing, Any),
        (quoted, list[Line]),
        (contents, Any),
        (lambda: 1, Any),
        (len, Any),
        (dict, Any),
    ],
)
def test_what_a_function_says_it_returns(function: Callable[..., Any], kind: Any) -> None:
    assert declared(function) == kind


def test_a_type_that_nothing_comes_back_to_is_refused() -> None:
    with pytest.raises(UsageError) as raised:
        declared(either)
    assert "either says that it returns" in str(raised.value)
    assert "may not contain more than one dataclass" in str(raised.value)
    assert "\n" not in str(raised.value)


# --- schemas --------------------------------------------------------------------------------------


def test_a_type_stands_for_its_schema() -> None:
    assert json_schema(int) == {"type": "integer"}
    assert json_schema(Line)["$defs"]["Line"]["required"] == ["text"]
    assert json_schema(Person)["required"] == ["fullName", "born"]
    for schema in (None, True, {"type": "integer"}):
        assert json_schema(schema) == schema
        assert schema_type(schema) is Any
    assert schema_type(Line) is Line
    for kind in (object, Line | Size):
        with pytest.raises(UsageError, match="no JSON Schema can be made of"):
            json_schema(kind)
