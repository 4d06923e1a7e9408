"""Secrets out of texts: what the ready patterns find, and how a payload is gone through."""

from __future__ import annotations

import sys
import time
import types
from typing import Any

import pytest

from journal import redact
from journal.backends import redact_hook
from journal.content import Content
from journal.errors import UsageError
from journal.values import BlobRef, blob_payload, decode_value, encode_value

# Written in two parts, so that nobody's scanner takes them for real.
SECRETS = [
    "sk-" + "ant-api03-abcdefghijklmnop",
    "sk-" + "proj-ABCDEFGHIJKLMNOP",
    "sk_" + "live_abcdefghijkl",
    "gh" + "p_" + "a1B2" * 9,
    "github_" + "pat_" + "a1B2" * 9,
    "glpat-" + "abcdefghijklmnop",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "a1B2-" * 7,
    "ya29." + "a1B2" * 6,
    "xoxb-" + "1234567890-abc",
    "hf_" + "a1B2" * 8,
    "npm_" + "a1B2" * 9,
    "pypi-" + "a1B2" * 9,
    "eyJ" + "hbGciOiJI." + "eyJ" + "zdWIiOiIx.c2ln",
    "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN " + "PRIVATE KEY-----\nMIIE cut short",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_known_secret_is_replaced_wherever_it_stands(secret: str) -> None:
    clean = redact.patterns()
    assert clean(secret) == redact.MARK
    assert clean(f"({secret})\nx").startswith(f"({redact.MARK}")
    assert secret not in clean(f"a {secret}, {secret}")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Authorization: Bearer abc.DEF-123", "Authorization: Bearer [redacted]"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic [redacted]"),
        ("https://user:hunter2@host/x", "https://[redacted]@host/x"),
        ("PASSWORD=hunter22 and more", "PASSWORD=[redacted] and more"),
        ('{"api_key": "hunter22", "x": 1}', '{"api_key": "[redacted]", "x": 1}'),
        ("OPENAI_API_KEY='hunter22'", "OPENAI_API_KEY='[redacted]'"),
        ("secret: hunter22;", "secret: [redacted];"),
    ],
)
def test_what_stands_around_it_stays(text: str, left: str) -> None:
    assert redact.patterns()(text) == left
    assert redact.patterns()(left) == left


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the token count is 5: input_tokens=10",
        "risk-averse-people-like-to-disk-ask-often",
        "https://host:8080/a@b and user@host:22",
        "mask-1234, ghp_short, AKIA, Bearer of news, password: ?",
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redact.patterns()(text) == text


REPEATED = [
    *("a:", "://a:", "://a:b:", "eyJabcdefgh-", "eyJabcdefgh.", "eyJabcdefgh.eyJabcdefgh-"),
    *("-----BEGIN ", "-----BEGIN A", "token ", "token = ", "secret:'", "bearer ", "sk-", "xoxb-"),
]


@pytest.mark.parametrize("piece", REPEATED)
def test_a_text_is_gone_through_in_time_that_grows_with_it(piece: str) -> None:
    """CPU time, so that a busy machine does not count. Where the time grows with the square of the
    length, this text takes minutes."""
    text = piece * 30_000
    clean = redact.patterns()
    began = time.process_time()
    clean(text)
    assert time.process_time() - began < 10


def test_a_token_behind_a_hyphen_is_found() -> None:
    assert (
        redact.patterns()("x jwt-eyJ" + "hbGciOiJI." + "eyJ" + "zdWIiOiIx.c2ln") == "x [redacted]"
    )


def test_patterns_of_ones_own_come_first() -> None:
    assert (
        redact.patterns(r"\bPIN \d+")("PIN 1234, key sk-" + "a" * 20)
        == "[redacted], key [redacted]"
    )


@pytest.mark.parametrize(
    ("pattern", "why"), [("(", "is no regular expression"), ("x*", "matches an empty text")]
)
def test_a_pattern_that_is_none_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        redact.patterns(pattern)


# --- payloads -------------------------------------------------------------------------------------


def gone(text: str) -> str:
    return text.replace("secret", "***")


def left(value: Any) -> Any:
    return decode_value(redact.redacted(encode_value(value), gone))


@pytest.mark.parametrize(
    ("value", "without"),
    [
        ("a secret", "a ***"),
        ({"a": ["secret", 1, None, {"b": "secret"}]}, {"a": ["***", 1, None, {"b": "***"}]}),
        ({"secret": 1, "***": 2, "x": {"secret": 3}}, {"***": 1, "*** 2": 2, "x": {"***": 3}}),
        ({"$secret": "secret"}, {"$***": "***"}),
        ({"$blob": {"sha256": "secret"}}, {"$blob": {"sha256": "***"}}),
        ([Content(b"secret", "a/secret")], [Content(b"secret", "a/secret")]),
    ],
)
def test_each_text_of_a_payload_is_gone_through(value: Any, without: Any) -> None:
    assert left(value) == without


def test_what_is_ours_is_left_alone_and_cannot_be_made() -> None:
    raw = blob_payload(BlobRef("secret", 1, "secret/secret"))
    assert bytes(redact.redacted(raw, gone)) == bytes(raw)
    form = {"x": {"media_type": "a/b", "data": "YQ=="}}
    made = redact.redacted(encode_value(form), lambda text: "$content" if text == "x" else text)
    assert decode_value(made) == {"$content": form["x"]}


def test_a_function_that_returns_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="redact= returned NoneType; it must return text"):
        redact.redacted(encode_value("x"), lambda _: None)  # type: ignore[arg-type,return-value]


def test_a_function_that_fails_shows_nothing_of_what_it_was_given() -> None:
    def fails(text: str) -> str:
        raise ValueError(text)

    with pytest.raises(UsageError, match=r"failed with ValueError; mend it$") as raised:
        redact.redacted(encode_value("secret"), fails)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


# --- by name --------------------------------------------------------------------------------------


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A user's module with a function that takes out secrets."""
    module = types.ModuleType("shop_secrets")
    module.gone = gone  # type: ignore[attr-defined]
    module.number = 5  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_secrets", module)
    return module


def test_a_function_is_named_by_the_argument_or_by_the_environment(
    shop: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOURNAL_REDACT", raising=False)
    assert redact_hook(None) is None
    assert redact_hook("shop_secrets:gone") is gone
    monkeypatch.setenv("JOURNAL_REDACT", "shop_secrets:gone")
    assert redact_hook(None) is gone
    assert redact_hook("") is None
    assert redact_hook(str.upper) is str.upper
    named = redact_hook("patterns")
    assert named is not None
    assert named(SECRETS[0]) == redact.MARK


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gone", "gone is neither patterns nor MODULE:FUNCTION"),
        ("shop_secrets:", "shop_secrets: is neither patterns nor MODULE:FUNCTION"),
        ("no_such_module:gone", "no_such_module:gone cannot be imported: No module named"),
        ("shop_secrets:no", "shop_secrets:no cannot be imported: .* no attribute .no."),
        ("shop_secrets:number", "shop_secrets:number is no function from a text to a text"),
    ],
)
def test_a_name_of_nothing_is_refused(shop: types.ModuleType, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        redact_hook(name)
