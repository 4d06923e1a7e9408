"""OpenTelemetry's SDK in memory, and what a test asks of the spans that it has seen."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from journal.events import Decision, ToolCall, Usage

REQUEST = f"00-{0xABC:032x}-{0xDEF:016x}-01"


class Seen:
    """A provider, and what has been exported by it."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def spans(self) -> list[ReadableSpan]:
        """In the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.all(name)
        return span

    def tree(self) -> list[str]:
        """Each span in the order of the beginnings, indented below its parent."""
        depths: dict[int, int] = {}
        lines = []
        for span in sorted(self.spans, key=lambda s: s.start_time or 0):
            depth = 0 if span.parent is None else depths.get(span.parent.span_id, -1) + 1
            depths[span.context.span_id] = depth
            lines.append("  " * depth + span.name)
        return lines

    def forget(self) -> None:
        self._exporter.clear()


def text(span: ReadableSpan) -> str:
    here = span.context
    return f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def asks(*names: str) -> Decision:
    return Decision(
        text="a thought",
        tool_calls=[ToolCall(n, {"x": i}, f"call_{i}") for i, n in enumerate(names)],
        usage=Usage(
            input_tokens=10,
            output_tokens=5,
            cache_read_input_tokens=4,
            cache_creation_input_tokens=3,
            reasoning_output_tokens=2,
        ),
        request_model="model-a",
        response_model="model-a-2026",
        finish_reasons=["tool_calls"],
        response_id="r1",
        provider_name="openai",
    )
