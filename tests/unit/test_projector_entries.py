"""Which steps' rows an accepted event may have changed."""

from __future__ import annotations

from msgspec import Raw

from journal.events import StepCompleted, TaskClaimed, TaskCompleted, ToolCallCompleted
from journal.state import COMPLETED, Step, TaskState
from projector.entries import MOST, Entry


def test_what_an_event_touches() -> None:
    state = TaskState("t", steps={0: Step(0, COMPLETED), 1: Step(1), MOST + 1: Step(MOST + 1)})
    entry = Entry(state)
    entry.accepted(5, 10, [StepCompleted(0)])
    assert (entry.steps, entry.changed) == ({0: (5, 5)}, {0: None})
    # What does not fit, has no row, or is of no step.
    entry.accepted(6, 10, [ToolCallCompleted(7, 0, Raw(b"1"))])
    entry.accepted(7, 10, [StepCompleted(MOST + 1)])
    entry.accepted(8, 10, [TaskCompleted()])
    entry.accepted(9, 10, None)
    assert entry.steps == {0: (5, 5)}
    # A claim may change any step that is not completed.
    entry.accepted(10, 10, [TaskClaimed()])
    entry.changed.clear()
    entry.accepted(11, 10, [StepCompleted(0), StepCompleted(1)])
    assert entry.steps == {0: (5, 11), 1: (10, 11)}
    assert entry.changed == {0: (5, 5), 1: (10, 10)}
    assert entry.first_offset == 5
