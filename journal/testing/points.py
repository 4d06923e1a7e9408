"""Where an agent is to die: before or after an event of its reaches the log.

Knows event types and step indexes; knows no logs and no tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

from journal.errors import UsageError
from journal.events import EVENT_TYPES


class Crash(BaseException):
    """What SIGKILL looks like inside one process: no `except Exception` catches it.

    It is raised where the agent waits for its append. `finally` and `async with` still run, which
    they would not after SIGKILL, but nothing that they append reaches the log and no counted tool
    runs in them.
    """


@dataclass(frozen=True)
class Point:
    """The moment before, or after, the `n`th append that fits (from 1, per life of the agent)."""

    when: str
    event: str | None = None
    step: int | None = None
    n: int = 1

    def __post_init__(self) -> None:
        if self.event is not None and self.event not in EVENT_TYPES:
            raise UsageError(f"no event is called {self.event!r}; docs/events.md lists them")
        if self.n < 1:
            raise UsageError("the first append has n=1")

    def fits(self, event: str, step: int | None) -> bool:
        """Whether an append is one of those that count."""
        return self.event in (None, event) and self.step in (None, step)

    def __str__(self) -> str:
        of = "" if self.step is None else f" of step {self.step}"
        number = "" if self.n == 1 and self.event else f" {self.n}"
        return f"{self.when} {self.event or 'append'}{number}{of}"


def crash_before(event: str | None = None, *, step: int | None = None, n: int = 1) -> Point:
    """Die when the event was about to be written: it never reaches the log.

        crash_before("ToolCallCompleted", step=2)  # the tool has run, its result is lost

    `event` None means any, `n` the how manieth that fits. Raises `UsageError`.
    """
    return Point("before", event, step, n)


def crash_after(event: str | None = None, *, step: int | None = None, n: int = 1) -> Point:
    """Die when the event was written, and before the agent hears of it.

        crash_after("StepStarted", n=2)  # decided, and no tool has run

    `event` None means any, `n` the how manieth that fits. Raises `UsageError`.
    """
    return Point("after", event, step, n)


def crash_at(*, step: int) -> Point:
    """Die in the middle of a step: when its first event, its decision, has been written and no tool
    of it has run."""
    return Point("after", None, step)
