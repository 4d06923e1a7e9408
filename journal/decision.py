"""What a model decided and how its calls ended: the parts that bodies of events are made of.

A payload (arguments, results, message content, answers) stands as `Raw`: the JSON as it was
written, so that folding a run neither decodes nor copies what it only keeps. Pure data.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Raw, Struct

ABSENT: Final = Raw()
"""A payload that is not there, told by identity; JSON's `null` is one that is."""


def given(payload: Raw) -> Raw | None:
    """The payload, or None where it is absent."""
    return None if payload is ABSENT else payload


class Usage(Struct, omit_defaults=True, gc=False):
    """Tokens by kind, in OpenTelemetry GenAI names. `input_tokens` includes what was read from
    or written to a cache. `total_tokens` is only for sources that know nothing finer."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0

    @property
    def total(self) -> int:
        """Input plus output; the reported total where that is more."""
        total = self.input_tokens + self.output_tokens
        return total if total > self.total_tokens else self.total_tokens

    def add(self, other: Usage) -> None:
        """Add another usage to this one; the total is that of all that was added."""
        self.total_tokens = self.total + other.total
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        # Most sources tell no more, and this runs once a step.
        if other.cache_read_input_tokens:
            self.cache_read_input_tokens += other.cache_read_input_tokens
        if other.cache_creation_input_tokens:
            self.cache_creation_input_tokens += other.cache_creation_input_tokens
        if other.reasoning_output_tokens:
            self.reasoning_output_tokens += other.reasoning_output_tokens


class ToolCall(Struct, omit_defaults=True, rename={"name": "tool_name", "id": "tool_call_id"}):
    """A tool call as the model asked for it. `arguments` is an object, or whatever the model
    wrote where that was no object. `id` is the model's own and may repeat within a run."""

    name: str
    arguments: Any = None
    id: str | None = None


class Decision(Struct, omit_defaults=True):
    """What a model decided in one step.

    text             what it said, or its thought
    tool_calls       in the order asked for; the position in this list names a call
    usage            tokens of this reply
    reasoning        hidden reasoning, where the model shows it
    content          the provider's own content parts, where text alone would lose something
    request_model, response_model, finish_reasons, response_id, provider_name
                     as OpenTelemetry GenAI defines them
    """

    text: str | None = None
    tool_calls: list[ToolCall] = []
    usage: Usage | None = None
    reasoning: str | None = None
    content: Any = None
    request_model: str | None = None
    response_model: str | None = None
    finish_reasons: list[str] | None = None
    response_id: str | None = None
    provider_name: str | None = None


class CallHead(Struct, rename={"name": "tool_name", "id": "tool_call_id"}, gc=False):
    """Of a tool call only what the fold needs; the arguments are skipped, not decoded."""

    name: str
    id: str | None = None


class DecisionHead(Struct, gc=False):
    """Of a decision what the fold needs, and whatever else must have the right type for a
    `Decision` to be made of it later; payloads are skipped."""

    usage: Usage | None = None
    tool_calls: list[CallHead] = []
    request_model: str | None = None
    response_model: str | None = None
    finish_reasons: list[str] | None = None
    response_id: str | None = None
    provider_name: str | None = None


class CallOutcome(Struct, omit_defaults=True, gc=False):
    """How one call of a recorded step ended: a `result`, or an `error` and its type."""

    result: Raw = ABSENT
    error: str | None = None
    error_type: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
