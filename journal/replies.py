"""A model's reply, in whichever client's shape, as a `Decision`.

Reads attributes or members by name, so that no client library is needed. Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec

from journal.errors import UsageError
from journal.events import Decision, ToolCall, Usage


def as_decision(reply: Any) -> Decision:
    """A `Decision`, a text, or an OpenAI chat completion or Anthropic message (object or dict).

    Raises `UsageError` for anything else.
    """
    if isinstance(reply, Decision):
        return reply
    if isinstance(reply, str):
        return Decision(text=reply)
    if _get(reply, "choices"):
        return _openai(reply)
    if _get(reply, "role") == "assistant" and isinstance(_get(reply, "content"), list):
        return _anthropic(reply)
    raise UsageError(
        f"step.decide got a {type(reply).__name__}; return a Decision, a text, or an OpenAI or "
        f"Anthropic response"
    )


def _get(thing: Any, name: str, default: Any = None) -> Any:
    if isinstance(thing, dict):
        return thing.get(name, default)
    return getattr(thing, name, default)


def _openai(reply: Any) -> Decision:
    """Chat completions: `prompt_tokens` includes what was read from the cache."""
    choice = _get(reply, "choices")[0]
    message = _get(choice, "message")
    usage = _get(reply, "usage")
    finish = _get(choice, "finish_reason")
    return Decision(
        text=_get(message, "content"),
        tool_calls=[
            ToolCall(
                _get(_get(call, "function"), "name"),
                _parsed(_get(_get(call, "function"), "arguments")),
                _get(call, "id"),
            )
            for call in _get(message, "tool_calls") or []
        ],
        usage=None
        if usage is None
        else Usage(
            input_tokens=_get(usage, "prompt_tokens") or 0,
            output_tokens=_get(usage, "completion_tokens") or 0,
            cache_read_input_tokens=_get(_get(usage, "prompt_tokens_details"), "cached_tokens")
            or 0,
            reasoning_output_tokens=_get(
                _get(usage, "completion_tokens_details"), "reasoning_tokens"
            )
            or 0,
        ),
        response_model=_get(reply, "model"),
        response_id=_get(reply, "id"),
        finish_reasons=[finish] if finish else None,
        provider_name="openai",
    )


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return msgspec.json.decode(arguments)
    except msgspec.MsgspecError:
        return arguments


def _anthropic(reply: Any) -> Decision:
    """Messages: `input_tokens` leaves out what went through the cache; ours includes it."""
    blocks = _get(reply, "content")
    usage = _get(reply, "usage")
    read = _get(usage, "cache_read_input_tokens") or 0
    created = _get(usage, "cache_creation_input_tokens") or 0
    stop = _get(reply, "stop_reason")
    texts = [_get(b, "text") for b in blocks if _get(b, "type") == "text"]
    thoughts = [_get(b, "thinking") for b in blocks if _get(b, "type") == "thinking"]
    return Decision(
        text="\n".join(texts) if texts else None,
        tool_calls=[
            ToolCall(_get(b, "name"), _get(b, "input"), _get(b, "id"))
            for b in blocks
            if _get(b, "type") == "tool_use"
        ],
        usage=None
        if usage is None
        else Usage(
            input_tokens=(_get(usage, "input_tokens") or 0) + read + created,
            output_tokens=_get(usage, "output_tokens") or 0,
            cache_read_input_tokens=read,
            cache_creation_input_tokens=created,
        ),
        reasoning="\n".join(thoughts) if thoughts else None,
        response_model=_get(reply, "model"),
        response_id=_get(reply, "id"),
        finish_reasons=[stop] if stop else None,
        provider_name="anthropic",
    )
