"""Acceptance once more, written from the design's table and not from the code.

Deliberately naive: it keeps every event that was accepted and works everything out anew from
that list. Must not import `journal.acceptance`, `journal.fold` or `journal.state`.
"""

from __future__ import annotations

from journal.events import Envelope

CLAIMS = {"TaskStarted", "TaskClaimed", "TaskReopened"}
ENDINGS = {"TaskCompleted", "TaskFailed", "TaskCancelled"}
ANYONES = {"MessageReceived", "InputReceived", "CancelRequested"}


class Model:
    """One task. `judge_and_take` gives the label of an event ("" where it is accepted)."""

    def __init__(self) -> None:
        self.accepted: list[Envelope] = []
        self.closed_claims: set[str] = set()
        """Ids of claims whose epoch a conflict or a gap has closed."""

    # --- the state, from the accepted events --------------------------------------------------

    @property
    def claim(self) -> Envelope:
        return [e for e in self.accepted if e.type in CLAIMS][-1]

    @property
    def run(self) -> Envelope:
        return [e for e in self.accepted if e.type in ("TaskStarted", "TaskReopened")][-1]

    @property
    def since_run(self) -> list[Envelope]:
        return self.accepted[self.accepted.index(self.run) :]

    @property
    def ending(self) -> Envelope | None:
        for n, event in enumerate(self.since_run, 1):
            cancelled = any(e.type == "CancelRequested" for e in self.since_run[:n])
            if event.type in ENDINGS or (cancelled and self.waits_for(n)):
                return event
        return None

    @property
    def status(self) -> str:
        """As the state is to say it."""
        if not self.accepted:
            return ""
        ending = self.ending
        if ending is not None:
            ends = {"TaskCompleted": "completed", "TaskFailed": "failed"}
            return ends.get(ending.type, "cancelled")
        return "waiting" if self.waits_for() else "running"

    def waits_for(self, until: int | None = None) -> list[Envelope]:
        """What this run has asked or set, in its first so many events, and nothing has closed."""
        events = self.since_run[:until]
        closed = {e.ref for e in events if e.type in ("TimerFired", "InputReceived")}
        return [
            e for e in events if e.type in ("InputRequested", "TimerSet") and e.id not in closed
        ]

    @property
    def owned(self) -> list[Envelope]:
        return [e for e in self.accepted if e.type not in CLAIMS | ANYONES]

    @property
    def seq(self) -> int:
        return self.owned[-1].seq or 0 if self.owned else 0

    # --- the rules ------------------------------------------------------------------------------

    def judge_and_take(self, event: Envelope) -> str:
        label = self._label(event)
        if label == "":
            self.accepted.append(event)
        elif label in ("conflict", "gap"):
            self.closed_claims.add(self.claim.id)
        return label

    def _label(self, event: Envelope) -> str:
        if event.type in CLAIMS:
            return self._claim(event)
        if not self.accepted:
            return "headless"
        if event.type in ANYONES:
            return self._anyone(event)
        rules = (
            ("fenced", (event.epoch, event.owner) != (self.claim.epoch, self.claim.owner)),
            ("stale", (event.seq or 0) < self.seq),
            (
                "duplicate",
                bool(self.owned) and event.seq == self.seq and event.id == self.owned[-1].id,
            ),
            ("after_end", self.ending is not None),
            ("closed", self.claim.id in self.closed_claims),
            ("conflict", event.seq == self.seq),
            ("gap", (event.seq or 0) > self.seq + 1),
        )
        return next((label for label, hit in rules if hit), "")

    def _anyone(self, event: Envelope) -> str:
        if self.ending is not None:
            return "after_end"
        if event.type == "InputReceived":
            asked = {e.id for e in self.waits_for() if e.type == "InputRequested"}
            return "" if event.ref in asked else "stale"
        if event.ref != self.run.id:
            return "stale"
        if event.type == "CancelRequested":
            cancelled = any(e.type == "CancelRequested" for e in self.since_run)
            return "duplicate" if cancelled else ""
        known = {e.id for e in self.accepted if e.type == "MessageReceived"}
        return "duplicate" if event.id in known else ""

    def _claim(self, event: Envelope) -> str:
        if not self.accepted:
            return "" if event.type == "TaskStarted" and event.epoch == 0 else "headless"
        if event.id == self.claim.id:
            return "duplicate"
        wins = {
            "TaskStarted": False,
            "TaskClaimed": self.ending is None,
            "TaskReopened": self.ending is not None and self.ending.type == "TaskFailed",
        }[event.type] and event.epoch == (self.claim.epoch or 0) + 1
        if wins and self._for_parent(event):
            return ""
        return "fenced" if self.ending is None else "after_end"

    def _for_parent(self, event: Envelope) -> bool:
        start = self.accepted[0]
        if start.parent_epoch is None:
            return event.parent_epoch is None
        highest = max(e.parent_epoch or 0 for e in self.accepted if e.type in CLAIMS)
        return (
            event.parent_epoch is not None
            and event.parent_epoch >= highest
            and event.ref == start.ref
        )
