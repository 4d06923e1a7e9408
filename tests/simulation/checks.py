"""The promises, held against one world: at each crash and at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from journal.acceptance import OUT_OF_PLACE
from journal.codec import decode_event
from journal.events import ANYONE, CLAIM, EVENT_TYPES, OWNER, Envelope
from journal.fold import apply, fold
from journal.genesis import GENESIS_KEY, Identity, read_genesis
from journal.state import TaskState
from projector.folding import Folder
from tests.property.model import Model
from tests.simulation import projection

if TYPE_CHECKING:
    from journal.owner import Owner
    from tests.simulation.loop import Mortal
    from tests.simulation.world import World


def at_kill(world: World, process: Mortal) -> None:
    """What the process knew is what the log says."""
    if world.faults.confirm == "once":
        # Its state runs ahead of the log's order, on purpose.
        return
    for whose, journal in world.journals:
        if whose is process:
            for owner in journal._owners:
                _same_view(world, process, owner)


def _same_view(world: World, process: Mortal, owner: Owner) -> None:
    state = owner.state
    records = world.topic.keyed[owner.partition].get(owner.key, ())
    events = [(r.offset, decode_event(r.value)) for r in records if r.offset <= owner._known]
    folded = fold(events, state.task_id, state.partition)
    if folded != state:
        parts = [f for f in folded.__struct_fields__ if getattr(folded, f) != getattr(state, f)]
        world.wrong(
            f"{process.name}: its view of {state.task_id} at {owner._known} is not the fold of "
            f"the log: {parts}"
        )


class Told:
    """What the log says of one task, by the model."""

    def __init__(self) -> None:
        self.model = Model()
        self.state: TaskState
        self.accepted: Counter[str] = Counter()
        self.labels: defaultdict[str, list[str]] = defaultdict(list)
        self.offsets: dict[str, int] = {}
        self.fitted: list[tuple[int, Envelope, Any]] = []


def at_end(world: World) -> None:
    """All that must hold of a log, once nothing more comes."""
    told = _read(world)
    for process in world.processes:
        if process.dead is None:
            at_kill(world, process)
    _acknowledged(world, told)
    _effects(world, told)
    _runs(world, told)
    _ended(world, told)
    _projection(world)


def _read(world: World) -> dict[str, Told]:
    told: dict[str, Told] = {}
    for partition, records in enumerate(world.topic.records):
        for record in records:
            if record.key == GENESIS_KEY:
                continue
            event = decode_event(record.value, record.key)
            id = event.task_id or ""
            task = told.get(id)
            if task is None:
                task = told[id] = Told()
                task.state = TaskState(id, partition=partition)
            verdict = apply(task.state, event, record.offset)
            expected = task.model.judge_and_take(event)
            label = "" if verdict.label == OUT_OF_PLACE else verdict.label
            if (label, verdict.accepted) != (expected, expected == ""):
                world.wrong(
                    f"{partition}:{record.offset}: {event.type} is {verdict.label or 'accepted'}, "
                    f"by the design {expected or 'accepted'}"
                )
            task.labels[event.id].append(label)
            if verdict.accepted:
                task.accepted[event.id] += 1
                task.offsets[event.id] = record.offset
            if verdict == ("", "", True):
                task.fitted.append((record.offset, event, msgspec.json.decode(event.body)))
    for id, task in told.items():
        if task.state.status != task.model.status:
            world.wrong(f"{id} is {task.state.status}, by the design {task.model.status}")
    return told


def _acknowledged(world: World, told: dict[str, Told]) -> None:
    once = world.faults.confirm == "once"
    for event, verdict in world.acked:
        if not verdict.accepted:
            continue
        task = told[event.task_id or ""]
        count, labels = task.accepted[event.id], task.labels[event.id]
        what = f"{event.type} {event.id[:6]} of {event.task_id}"
        kind = EVENT_TYPES[event.type][0]
        if once and kind in (OWNER, ANYONE) and count == 0:
            # It returned at its acknowledgement; a later reader may find it fenced.
            if not set(labels) & {"fenced", "after_end"}:
                world.wrong(f"{what} was acknowledged, and is {labels}")
        elif once and kind == CLAIM and count == 0:
            pass  # Whoever opened the task has read it back; see `claimed`.
        elif count != 1:
            world.wrong(f"{what} was acknowledged, and is accepted {count} times: {labels}")
    for id, claim in world.claimed:
        if told[id].accepted[claim] != 1:
            world.wrong(f"{id} was opened by claim {claim[:6]}, which is {told[id].labels[claim]}")
    for id, task in told.items():
        for event_id, count in task.accepted.items():
            if count > 1:
                world.wrong(f"{id}: {event_id[:6]} is accepted {count} times")


def _effects(world: World, told: dict[str, Told]) -> None:
    starts: Counter[int] = Counter()
    again: Counter[tuple[str, int, int]] = Counter()
    places: dict[int, tuple[str, int, int]] = {}
    finished: dict[tuple[str, int, int], int] = {}
    for id, task in told.items():
        asked: dict[tuple[int, int], int] = {}
        for offset, event, body in task.fitted:
            place = (id, body.get("step_index"), body.get("position"))
            if event.type == "StepStarted":
                for at, call in enumerate((body.get("decision") or {}).get("tool_calls", ())):
                    asked[body["step_index"], at] = call["arguments"]["n"]
            elif event.type == "ToolCallStarted":
                n = asked[place[1], place[2]]
                starts[n] += 1
                places[n] = place
                if place in finished:
                    world.wrong(f"{id}: a call that had finished was started again at {offset}")
            elif event.type == "CallResolved" and body.get("run_again"):
                again[place] += 1
            elif event.type == "ToolCallCompleted":
                finished[place] = offset
    for n, ran in world.effects.items():
        id, name = ran[0]
        if name.startswith("pay") and len(ran) > starts[n]:
            world.wrong(f"{id}: {name} {n} ran {len(ran)} times, with {starts[n]} starts accepted")
        if name.startswith("pay") and n in places and starts[n] > 1 + again[places[n]]:
            world.wrong(f"{id}: {name} {n} was started {starts[n]} times without a decision")
        if world.faults.confirm == "always" and len(ran) > starts[n]:
            world.wrong(f"{id}: {name} {n} ran {len(ran)} times, with {starts[n]} starts accepted")


def _runs(world: World, told: dict[str, Told]) -> None:
    """Nothing runs for a claim that stands behind its record in the log."""
    recorded: dict[tuple[str, str, int], int] = {}
    for id, task in told.items():
        for offset, event, body in task.fitted:
            if event.type == "StepStarted" and "decision" in body:
                recorded.setdefault((id, "model", body["step_index"]), offset)
            elif event.type == "ValueRecorded":
                recorded.setdefault((id, "value", body["value"][1]), offset)
    fired = {
        int(bytes(wait.question).split()[1].strip(b'"'))
        for task in told.values()
        for wait in task.state.waits.values()
        if wait.question is not None and wait.status == "fired"
    }
    for id, kind, n, claim in world.runs:
        # With confirm=once a worker that is fenced by now hears of that later.
        if kind == "timeout" and n not in fired and world.faults.confirm == "always":
            world.wrong(f"{id}: question {n} timed out for its agent, and by the log it did not")
        at = recorded.get((id, kind, n))
        since = told[id].offsets.get(claim)
        if at is not None and since is not None and at < since:
            world.wrong(f"{id}: {kind} {n} is recorded at {at}, and ran again for claim {since}")


def _ended(world: World, told: dict[str, Told]) -> None:
    for id, program in world.roots.items():
        if id not in told:
            world.wrong(f"{id} was never started")
            continue
        state = told[id].state
        if state.status == "cancelled" and world.cancelled:
            continue
        if state.status != "completed":
            world.wrong(f"{id} is {state.status} at the end")
        elif program.steps and len(state.completed_steps) != len(program.ops) + 1:
            world.wrong(f"{id} has {len(state.completed_steps)} steps, not {len(program.ops) + 1}")


def _projection(world: World) -> None:
    """The rows, folded in batches and with crashes, are those of one undisturbed fold."""
    topic = world.topic
    if not topic.records[0]:
        return
    identity = read_genesis("", 0, topic.records[0][0])
    calm = projection.empty()
    folder = Folder(identity, projection.Tables(projection.File(lambda: "")).load)
    calm = projection.changed(
        calm, folder.fold([(p, rs) for p, rs in enumerate(topic.records) if rs])
    )
    kept = world.file.kept
    if not kept["offsets"]:
        kept = _in_batches(world, identity)
    for text in projection.doubled(kept):
        world.wrong(text)
    want, have = projection.ordered(calm), projection.ordered(kept)
    for name in want:
        if want[name] != have[name]:
            world.wrong(f"table {name} is not that of an undisturbed run")


def _in_batches(world: World, identity: Identity) -> projection.Kept:
    """Fold small batches; now and then the memory is lost, before or after a commit."""
    r, topic = world.random, world.topic
    file = projection.File(lambda: "")
    tables = projection.Tables(file)
    folder = Folder(identity, tables.load, memory_bytes=r.choice((0, 20_000, 1 << 30)))
    at = [0] * topic.partitions
    batch = 0
    size = r.choice((1, 5, 40))
    while any(at[p] < len(topic.records[p]) for p in range(topic.partitions)):
        parts = []
        ends = list(at)
        for p in range(topic.partitions):
            ends[p] = min(len(topic.records[p]), at[p] + r.randint(0, size))
            if ends[p] > at[p]:
                parts.append((p, topic.records[p][at[p] : ends[p]]))
        changes = folder.fold(parts)
        batch += 1
        lost = r.random() < 0.1
        if not lost or r.random() < 0.5:
            tables.write(changes)
            at = ends
        if lost:
            folder = Folder(identity, tables.load, memory_bytes=r.choice((0, 20_000, 1 << 30)))
            batch = 0
        folder.written(batch)
    return file.kept
