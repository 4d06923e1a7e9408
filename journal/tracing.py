"""What trace an opening of a task belongs to, with OpenTelemetry (`spans`) or without it.

The one that the caller names; else, where OpenTelemetry is there, the current span's; else the
one that the task's last claim recorded, so that a resumption elsewhere goes on in it. Its claims
carry that one, its other events the span that they were written in. Imports `spans`, and with it
OpenTelemetry, only when a task is opened, and only where the extra `otel` is installed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from journal.owner import Owner
from journal.tracecontext import is_traceparent

if TYPE_CHECKING:
    from journal.spans import Span, Spans, TaskSpans, TracerProvider


def load_spans(provider: TracerProvider | None) -> Spans | None:
    """What makes spans; None where the extra is not installed."""
    try:
        from journal.spans import Spans
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        return None
    return Spans(provider)


def carry(spans: Spans | None, owner: Owner, traceparent: str | None = None) -> None:
    """Let what is appended outside of an open task carry `traceparent`, or that of the current
    span."""
    owner.traceparent = traceparent or (None if spans is None else spans.current())


def inside(span: Span | None) -> contextlib.AbstractContextManager[None]:
    """The span, if there is one, as the current one of this thread too."""
    return contextlib.nullcontext() if span is None else span.here()


@contextlib.contextmanager
def traced(
    spans: Spans | None,
    owner: Owner,
    traceparent: str | None = None,
    *,
    agent_name: str | None = None,
    parent: tuple[TaskSpans | None, str | None] = (None, None),
) -> Iterator[TaskSpans | None]:
    """One opening of a task, from before its claim to its end. Gives what the spans inside of it
    are made with; None where nobody records them.

    traceparent  what the caller has named, checked
    parent       of a sub-task: its parent's spans and traceparent
    """
    state = owner.state
    recorded = state.traceparent if is_traceparent(state.traceparent) else None
    if spans is None:
        owner.traceparent = traceparent or parent[1] or recorded
        yield None
        return
    within, inherited = parent
    task = spans.task(
        state,
        state.agent_name or agent_name,
        named=traceparent or (inherited if within is None else None),
        recorded=recorded,
        within=within,
    )
    owner.traceparent = task.traceparent
    if not task.recording:
        # Nobody will see a span, so none is made; what is carried has been found.
        yield None
        return
    owner.tracing = task.current
    with task:
        yield task
        task.left(state)
