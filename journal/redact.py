"""Secrets out of texts before they leave the process: ready patterns, and how a payload is gone
through.

What `journal.connect(redact=…)` takes is any function from a text to a text. It is given each
text of a payload by itself, keys too, and each error's, and what it returns is all that log,
blob store and this library's own errors get to see: of a decision, arguments, a result, a
message, an answer, a description, a reason. Whatever is given back to the agent is read from
what was recorded, so the first run and a replay see the same, redacted, values. It does not see
the bytes of `Content`, names and ids (of tasks, tools, keys, workers), nor two texts together:
`{"password": "abc"}` is the texts `password` and `abc`.

Identity: a call is known by a digest of its arguments, and that is computed over what they were,
not over what is left of them. So another secret is another call, and a pattern added between a
crash and the resumption makes no call another one. The digest is 128 bits of SHA-256: it gives
away no key or token, but a secret that can be guessed, such as a PIN, can be confirmed by
trying. Let a function get such a secret by itself, rather than as an argument; then it may also
be changed while a task is open.

Pure: knows JSON as `values` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw

from journal.content import KEY
from journal.errors import UsageError

Redact = Callable[[str], str]
MARK: Final = "[redacted]"

_PATTERNS: Final = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    # JSON Web Tokens. It begins only where such a run does, so that a run is gone through once.
    r"(?<![\w-])(?=(?:[\w-]*-)?eyJ)[\w-]{11,}\.eyJ[\w-]{8,}\.[\w-]*",
    r"\bsk-[\w-]{16,}",  # OpenAI, Anthropic
    r"\b[srp]k_(?:live|test)_\w{10,}",  # Stripe
    r"\bgh[pousr]_\w{30,}|\bgithub_pat_\w{30,}|\bglpat-[\w-]{16,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",  # AWS
    r"\bAIza[\w-]{35}|\bya29\.[\w-]{20,}",  # Google
    r"\bxox[abeoprs]-[\w-]{10,}|\bxapp-[\w-]{10,}",  # Slack
    r"\bhf_\w{30,}|\bnpm_\w{30,}|\bpypi-[\w-]{30,}",
    r"(?i:(?<=\bbearer )|(?<=\bbasic ))[\w.~+/=-]{8,}",
    r"(?<=://)[^\s/:@]{0,100}:[^\s/@]{1,200}(?=@)",  # user and password in a URL
)
_ASSIGNED: Final = re.compile(
    r"(?i)((?:api[_-]?key|access[_-]?key|secret|token|passwd|password)[\"']?\s{0,4}[=:]\s{0,4}[\"']?)"
    r"[^\s\"',;&}]{6,}"
)


def patterns(*more: str) -> Redact:
    """What replaces keys and tokens of well-known shapes, and matches of `more`, regular
    expressions, by `[redacted]`: API keys, access tokens, JSON Web Tokens, private keys,
    `Bearer …`, passwords in URLs, and `password=…` and the like.

    Raises `UsageError` for a pattern that is none, or that matches an empty text.
    """
    for pattern in more:
        try:
            empty = re.search(pattern, "")
        except re.error as error:
            raise UsageError(f"redact: a pattern is no regular expression: {error}") from None
        if empty:
            raise UsageError("redact: a pattern matches an empty text; make it match a secret")
    known = [re.compile(pattern) for pattern in (*more, *_PATTERNS)]

    def redact(text: str) -> str:
        for pattern in known:
            text = pattern.sub(MARK, text)
        return _ASSIGNED.sub(rf"\1{MARK}", text)

    return redact


def redacted_text(text: str, redact: Redact) -> str:
    """One text without its secrets. Raises `UsageError` where `redact` returns no text, or fails:
    its own exception may show what it was given."""
    try:
        left = redact(text)
    except Exception as error:
        raise UsageError(f"redact= failed with {type(error).__name__}; mend it") from None
    if not isinstance(left, str):
        raise UsageError(f"redact= returned {type(left).__name__}; it must return text")
    return left


def redacted(raw: Raw, redact: Redact) -> Raw:
    """A payload, every text of it without its secrets. Two keys of an object that come to be
    the same are told apart by a number."""

    def of(value: Any) -> Any:
        if isinstance(value, str):
            return redacted_text(value, redact)
        if isinstance(value, list):
            return [of(inner) for inner in value]
        if not isinstance(value, dict) or value.keys() in ({KEY}, {"$blob"}):
            # A single `$` is ours: bytes, or where they are.
            return value
        left: dict[str, Any] = {}
        for key, inner in value.items():
            name = redacted_text(key.removeprefix("$"), redact)
            name = plain = "$" + name if name.startswith("$") else name
            number = 1
            while name in left:
                number += 1
                name = f"{plain} {number}"
            left[name] = of(inner)
        return left

    return Raw(msgspec.json.encode(of(msgspec.json.decode(bytes(raw)))))
