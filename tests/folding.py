"""A task whose events are folded as they are written, for tests of states and histories."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from journal.acceptance import OUT_OF_PLACE
from journal.events import Envelope
from journal.fold import apply
from journal.state import Call, Step, TaskState
from tests.make_events import Writer


class Task(Writer):
    """A writer whose events are folded at once."""

    def __init__(self, **start: Any) -> None:
        super().__init__("t")
        self.state = TaskState("t")
        self.put(self.start(**start))

    def put(self, *events: Envelope) -> str:
        """Fold them; returns why the last one did not fit, "" where it did."""
        for event in events:
            verdict = apply(self.state, event, self.state.offset + 1)
            assert verdict.accepted, verdict
            assert (verdict.label == OUT_OF_PLACE) == bool(verdict.detail)
        return verdict.detail

    def did(self, type: str, **body: Any) -> str:
        return self.put(self.own(type, **body))

    def decided(self, index: int = 0, tools: int = 1, **body: Any) -> str:
        calls = [{"tool_name": f"tool{n}"} for n in range(tools)]
        return self.did("StepStarted", step_index=index, decision={"tool_calls": calls}, **body)

    def called(self, position: int = 0, effect: str = "once", **body: Any) -> str:
        body = {"tool_name": "tool", "arguments_digest": "d", "effect": effect, **body}
        return self.did("ToolCallStarted", step_index=0, position=position, **body)

    def call(self, position: int = 0, index: int = 0) -> Call:
        return self.state.steps[index].all_calls()[position]

    def step(self, index: int = 0) -> Step:
        return self.state.steps[index]


def failed(**body: Any) -> dict[str, Any]:
    return {"step_index": 0, "error_type": "E", "error": "no", **body}


def reopening(task: Task) -> Envelope:
    event = task.claim(worker="w3")
    return replace(event, type="TaskReopened")
