"""What the simulation must notice: faults to put into the code, one at a time.

`old` stands once in `file`. With `new` in its place some seed below `SEEDS` has a violation.
Data only; knows nothing of how they are tried.
"""

from __future__ import annotations

from typing import NamedTuple

SEEDS = 2_000


class Mutation(NamedTuple):
    """One fault: what it turns off, and how."""

    what: str
    file: str
    old: str
    new: str


MUTATIONS = (
    Mutation(
        "the epoch rule",
        "journal/acceptance.py",
        "if event.epoch != head.epoch or event.owner != head.owner:",
        "if False:",
    ),
    Mutation(
        "the duplicate rule of owners",
        "journal/acceptance.py",
        "if event.id == head.last_id:",
        "if False:",
    ),
    Mutation(
        "the duplicate rule of claims",
        "journal/acceptance.py",
        "if event.id == head.claim_id:",
        "if False:",
    ),
    Mutation(
        "the duplicate rule of messages",
        "journal/acceptance.py",
        "return DUPLICATE if event.id in head.messages else ACCEPTED",
        "return ACCEPTED",
    ),
    Mutation(
        "the seq gap rule",
        "journal/acceptance.py",
        "if ahead == 1:",
        "if ahead >= 1:",
    ),
    Mutation(
        "a conflict or a gap closes the epoch",
        "journal/acceptance.py",
        "head.epoch_closed = True",
        "pass",
    ),
    Mutation(
        "a child is claimed by no fenced parent",
        "journal/acceptance.py",
        "and event.parent_epoch >= head.parent_epoch",
        "",
    ),
    Mutation(
        "the read-back",
        "journal/owner.py",
        'self._at_ack = not log.conditional and confirm == "once"',
        "self._at_ack = not log.conditional",
    ),
    Mutation(
        "the read-back of once effects",
        "journal/call.py",
        'read_back=used.effect == "once"',
        "read_back=False",
    ),
    Mutation(
        "an event that the log has shown is written, though nobody acknowledged it",
        "journal/pipeline.py",
        "if self._was_read(pending):",
        "if False:",
    ),
    Mutation(
        "the next call settles an unknown outcome before it looks at the state",
        "journal/owned.py",
        "await self._owner.settled()",
        "pass",
    ),
    Mutation(
        "a decision that was recorded by an unknown outcome is not made again",
        "journal/step.py",
        "await self.task.look()\n        decision = self.decision()",
        "await self.task.look()\n        decision = None",
    ),
    Mutation(
        "a fenced worker stops",
        "journal/owner.py",
        "if self.state.head.claim_id == event.id and not self._is_renewal(event):",
        "if False:",
    ),
    Mutation(
        "the projector replaces a task's row",
        "projector/folding.py",
        "self.gone_tasks.append(entry.state.task_id)",
        "pass",
    ),
    Mutation(
        "the projector keeps that an epoch was closed",
        "projector/entries.py",
        "state.head.epoch_closed = rows.epoch_closed",
        "pass",
    ),
    Mutation(
        "the projector reads on from the file's offset",
        "projector/runner.py",
        "return {p: offset.next_offset for p, offset in known.items()}",
        "return {p: offset.next_offset + 1 for p, offset in known.items()}",
    ),
)
