"""OpenTelemetry spans of tasks, steps, model calls, tool calls and durable functions.

Names are those of the OpenTelemetry semantic conventions for GenAI, release 0.1.0
(`invoke_agent`, `chat`, `execute_tool`, `gen_ai.*`, `error.type`); what they have no name for
begins with `step_journal.`. A span holds no content: no argument, message or result, and of an
error its type without its text. What was recorded before is given back without a span.

The only file that imports OpenTelemetry, and only its API. Knows states and steps; knows no log
and records nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.metadata import version
from types import TracebackType
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, StatusCode, Tracer
from opentelemetry.trace import TracerProvider as TracerProvider

from journal.acceptance import FAILED
from journal.events import Decision
from journal.payloads import type_name
from journal.state import Call, TaskState
from journal.state import Step as StepState
from journal.tools import Tool

_TASK = contexts.create_key("step-journal-task")
"""In a context of OpenTelemetry: the spans of the task whose code runs there."""

_USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_input_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_creation_input_tokens": "gen_ai.usage.cache_write.input_tokens",
    "reasoning_output_tokens": "gen_ai.usage.reasoning.output_tokens",
}


class Span:
    """A span while it runs, the current one of the code inside. Ends with its error, if any."""

    def __init__(self, span: trace.Span, inside: Context) -> None:
        self._span = span
        self._inside = trace.set_span_in_context(span, inside)

    def begin(self) -> None:
        """Make it the current one."""
        self._outside = contexts.get_current()
        contexts.attach(self._inside)

    def end(self, error: BaseException | None = None) -> None:
        """End it, and go back to what was current before."""
        if error is not None:
            self.failed(type_name(error))
        self._leave(self._outside)
        self._span.end()

    def _leave(self, outside: Context) -> None:
        # Not by a token: the end may come in another context than the beginning.
        if contexts.get_current() is self._inside:
            contexts.attach(outside)

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Make it the current one on another thread as well."""
        outside = contexts.get_current()
        contexts.attach(self._inside)
        try:
            yield
        finally:
            self._leave(outside)

    def failed(self, error_type: str) -> None:
        """Say that it ended in an error. The text may be anything, so it is left out."""
        self._span.set_status(StatusCode.ERROR)
        self._span.set_attribute("error.type", error_type)

    def decided(self, made: Decision) -> None:
        """Of a `chat`: what is known once the model has answered."""
        if made.request_model or made.response_model:
            self._span.update_name(f"chat {made.request_model or made.response_model}")
        found: dict[str, Any] = {
            "gen_ai.provider.name": made.provider_name,
            "gen_ai.request.model": made.request_model,
            "gen_ai.response.model": made.response_model,
            "gen_ai.response.id": made.response_id,
            "gen_ai.response.finish_reasons": made.finish_reasons,
        }
        if made.usage is not None:
            found |= {name: getattr(made.usage, ours) or None for ours, name in _USAGE.items()}
        self._span.set_attributes({k: v for k, v in found.items() if v is not None})

    def __enter__(self) -> Span:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(error)


class TaskSpans(Span):
    """The span of one opening of a task, and what makes those inside of it.

    traceparent  the trace that the opening belongs to: its parent's span, or where it has none
                 its own; None where nothing is to be carried
    """

    def __init__(
        self, tracer: Tracer, span: trace.Span, inside: Context, common: dict[str, Any]
    ) -> None:
        super().__init__(span, contexts.set_value(_TASK, self, inside))
        self._tracer = tracer
        self._common = common
        parent = trace.get_current_span(inside).get_span_context()
        self._own = _text(span.get_span_context())
        self.traceparent = _text(parent) or self._own

    @property
    def recording(self) -> bool:
        """Whether anybody wants to see it."""
        return self._span.is_recording()

    def current(self) -> str | None:
        """The innermost span that the calling code runs in, as a traceparent."""
        return _text(trace.get_current_span(self.context()).get_span_context())

    def context(self) -> Context:
        """Where the calling code runs; the task's own span where that is not within it."""
        here = contexts.get_current()
        return here if here.get(_TASK) is self else self._inside

    def left(self, state: TaskState) -> None:
        """The block of the task is over, without an exception."""
        self._span.set_attribute("step_journal.status", state.status)
        if state.status == FAILED:
            self.failed(state.error_type or "_OTHER")

    def step(self, index: int, attempt: int, recorded: StepState | None) -> Span:
        """A step. It is `replayed` where its decision was made before."""
        attributes = {
            "step_journal.step_index": index,
            "step_journal.attempt": attempt,
            "step_journal.replayed": recorded is not None and recorded.raw_decision is not None,
        }
        return self._span_of("step", attributes)

    def chat(self, index: int) -> Span:
        """A call of the model; its name has the model's as soon as that is known."""
        return self._span_of(
            "chat",
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.conversation.id": self._common["gen_ai.conversation.id"],
                "step_journal.step_index": index,
            },
            SpanKind.CLIENT,
        )

    def tool_call(
        self, index: int, position: int, attempt: int, tool: Tool, call: Call | None
    ) -> Span:
        """A call of a tool, with all tries that its policy makes of it here. It is `resumed`
        where it was begun before."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool.name,
            "gen_ai.tool.type": "function",
            "step_journal.step_index": index,
            "step_journal.position": position,
            "step_journal.attempt": attempt,
            "step_journal.effect": tool.effect,
            "step_journal.resumed": call is not None and call.starts > 0,
        }
        if call is not None and call.tool_call_id is not None:
            attributes["gen_ai.tool.call.id"] = call.tool_call_id
        return self._span_of(f"execute_tool {tool.name}", attributes)

    def run(self, function: str) -> Span:
        """A durable function."""
        return self._span_of(f"run {function}", {"step_journal.function": function})

    def _span_of(
        self, name: str, attributes: dict[str, Any], kind: SpanKind = SpanKind.INTERNAL
    ) -> Span:
        attributes["step_journal.task_id"] = self._common["step_journal.task_id"]
        inside = self.context()
        return Span(self._tracer.start_span(name, inside, kind, attributes), inside)


class Spans:
    """What a journal makes spans with. `provider` is by default the global one."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("step-journal", version("step-journal"), provider)

    def current(self) -> str | None:
        """The current span as a traceparent; None where there is none."""
        return _text(trace.get_current_span().get_span_context())

    def task(
        self,
        state: TaskState,
        agent_name: str | None,
        *,
        named: str | None,
        recorded: str | None,
        within: TaskSpans | None,
    ) -> TaskSpans:
        """An opening of a task: a child of the span that `named` is; else, of the current one,
        for a sub-task that of its parent; else of that which `recorded` is. A recorded one that
        is not its parent is linked to."""
        inside = contexts.get_current() if within is None else within.context()
        if named is None and not trace.get_current_span(inside).get_span_context().is_valid:
            named = recorded
        if named is not None:
            inside = trace.set_span_in_context(NonRecordingSpan(_remote(named)), inside)
        parent = trace.get_current_span(inside).get_span_context()
        linked = recorded is not None and _text(parent) != recorded
        common: dict[str, Any] = {
            "gen_ai.conversation.id": state.conversation_id or state.task_id,
            "step_journal.task_id": state.task_id,
        }
        attributes = common | {
            "gen_ai.operation.name": "invoke_agent",
            "step_journal.resumed": state.exists,
        }
        if state.exists:
            attributes["step_journal.steps_reused"] = len(state.completed_steps)
            attributes["step_journal.tokens_reused"] = state.total_tokens
        name = "invoke_agent"
        if agent_name is not None:
            name = f"invoke_agent {agent_name}"
            attributes["gen_ai.agent.name"] = agent_name
        links = [Link(_remote(recorded))] if linked and recorded is not None else []
        span = self._tracer.start_span(name, inside, SpanKind.INTERNAL, attributes, links)
        return TaskSpans(self._tracer, span, inside, common)


def _text(span: SpanContext) -> str | None:
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags & 0xFF:02x}"


def _remote(traceparent: str) -> SpanContext:
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16)))
