"""The fold: events in log order to the state of one task.

`apply` is the one door: judged by acceptance, then opened (upcasters), then put into the state.
Pure and total: no I/O, no clock, no random ids. What the fold cannot know it refuses by name
(`EventTooNew`); everything else has a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from journal.acceptance import ACCEPTED, CONFLICT, GAP, OUT_OF_PLACE, advance, judge
from journal.errors import BadRecord, EventTooNew
from journal.events import EVENT_TYPES, Envelope
from journal.evolve import evolve
from journal.state import TaskState
from journal.upcasters import read_bodies


class Verdict(NamedTuple):
    """What became of an event. `label` is "" where it was accepted and fitted; every other
    label is an anomaly, and `detail` says more. `accepted` is also true of `out_of_place`."""

    label: str
    detail: str
    accepted: bool


FITTED = Verdict(ACCEPTED, "", True)


def apply(
    state: TaskState, event: Envelope, offset: int, bodies: Sequence[Struct] | None = None
) -> Verdict:
    """Move `state` past one event of its task at `offset` of its partition.

    `bodies` spares the decoding where the caller wrote the event itself. Raises `EventTooNew`,
    with nothing changed, for a type, or for the version of an accepted event, that this
    release does not know.
    """
    if event.type not in EVENT_TYPES:
        raise EventTooNew(event.type, event.v, f"{state.partition}:{offset}")
    label = judge(state.head, event)
    if label != ACCEPTED:
        advance(state.head, event, label)
        if label in (CONFLICT, GAP):
            state.offset = offset
        return Verdict(label, "", False)
    detail: str | None = None
    if bodies is None:
        try:
            bodies = read_bodies(event, f"{state.partition}:{offset}")
        except BadRecord as error:
            bodies, detail = (), str(error)
    advance(state.head, event, label)
    state.offset = offset
    for body in bodies:
        try:
            detail = evolve(state, event, body) or detail
        except msgspec.MsgspecError as error:
            detail = f"{event.type}: {error}"
    return FITTED if detail is None else Verdict(OUT_OF_PLACE, detail, True)


def fold(
    events: Iterable[tuple[int, Envelope]],
    task_id: str,
    partition: int = 0,
    state: TaskState | None = None,
) -> TaskState:
    """The state that (offset, event) pairs of one task lead to, from `state` on if given
    (which is changed in place)."""
    if state is None:
        state = TaskState(task_id, partition=partition)
    for offset, event in events:
        apply(state, event, offset)
    return state
