"""Which texts are W3C's `traceparent`, level 1."""

from __future__ import annotations

import pytest

from journal.errors import UsageError
from journal.tracecontext import check_traceparent, is_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
RIGHT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("text", [RIGHT, f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-ff"])
def test_it_is_one(text: str) -> None:
    assert check_traceparent(text) == text


def test_none_is_left_out() -> None:
    assert check_traceparent(None) is None
    assert not is_traceparent(None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        RIGHT.upper(),
        f"01-{TRACE}-{SPAN}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}0-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}",
        f"00_{TRACE}_{SPAN}_01",
        RIGHT + "-extra",
        RIGHT + "\n",
        " " + RIGHT,
        RIGHT.replace("4", "４", 1),
        RIGHT.encode(),
    ],
)
def test_it_is_none(text: str) -> None:
    assert not is_traceparent(text)
    with pytest.raises(UsageError) as refused:
        check_traceparent(text)
    said = str(refused.value)
    assert "00-<32 hex digits>-<16>-<2>" in said
    assert "\n" not in said
    assert TRACE not in said
