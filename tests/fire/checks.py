"""What must hold once the fire is out: what agents were told, the log, and the projector's tables.

Reads the whole log through a connection of its own, and folds it by itself.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import journal
from journal.codec import decode_event
from journal.events import CLAIM, EVENT_TYPES, Envelope
from journal.fold import apply
from journal.genesis import GENESIS_KEY
from journal.kafka_log import KafkaLog
from journal.log import Record
from journal.state import TaskState
from journal.values import loads
from tests.fire.load import ANSWER, Fact, Load
from tests.fire.witness import lies
from tests.projecting import rows
from tests.topics import everything

LATE = {"duplicate", "fenced", "after_end"}
"""What becomes of events whose worker did not know whether they were written, and came back."""


@dataclass
class Told:
    """What the log says of one task."""

    state: TaskState
    accepted: list[Envelope] = field(default_factory=list)


async def whole_log(url: str) -> dict[int, list[Record]]:
    """Every record of every partition."""
    log = await KafkaLog.open(url)
    try:
        return {p: await everything(log, p) for p in range(log.partitions)}
    finally:
        await log.close()


async def hold(
    load: Load,
    folder: Path,
    *,
    records: dict[int, list[Record]] | None = None,
    db: Path | None = None,
    cancelled: bool = False,
) -> None:
    """All that must hold of agents that have ended. Where the log has lost its beginning,
    `records` are those of all times, and `db` is a projection that has read what is gone.
    Where agents were `cancelled` the client may complain, see below."""
    whole = records is None
    records = await whole_log(load.url) if records is None else records
    # Cancelled in the moment in which it asks a broker for the cluster, aiokafka loses that
    # connection, complains, and closes it when it is collected.
    known = "AIOKafkaConnection" if cancelled else "\0"
    wrong = [text for text in load.complaints if known not in text]
    wrong += lies(load.sent, records)
    told, placed, refused = _folded(records, wrong)
    async with journal.connect(load.url) as j:
        for agent in load.agents:
            task = told[agent.task_id]
            if whole and await j.state(agent.task_id) != task.state:
                wrong.append(f"{agent.task_id}: its state is not the fold of the log")
            heard = list(agent.heard)
            agent.recall(task.state)
            wrong += agent.wrong
            if list(agent.heard) != heard:
                wrong.append(f"{agent.task_id} ended without {list(agent.heard)[len(heard) :]}")
            wrong += _in_order(task, list(agent.heard))
    assert not wrong, "\n".join(wrong[:20])
    await asyncio.to_thread(projected, load.url, db or folder / "once.duckdb", placed, refused)


def _folded(
    records: dict[int, list[Record]], wrong: list[str]
) -> tuple[dict[str, Told], set[tuple[int, int, str]], set[tuple[int, int, str]]]:
    """Tasks by their ids, and where which events are accepted, and where they are not."""
    told: dict[str, Told] = {}
    placed: set[tuple[int, int, str]] = set()
    refused: set[tuple[int, int, str]] = set()
    for partition, there in records.items():
        for record in there:
            if record.key == GENESIS_KEY:
                continue
            event = decode_event(record.value, record.key)
            assert event.task_id is not None
            task = told.setdefault(
                event.task_id, Told(TaskState(event.task_id, partition=partition))
            )
            verdict = apply(task.state, event, record.offset)
            if verdict.accepted:
                task.accepted.append(event)
                placed.add((partition, record.offset, event.id))
            else:
                refused.add((partition, record.offset, event.id))
            if verdict.label and (verdict.accepted or verdict.label not in LATE):
                wrong.append(f"{partition}:{record.offset}: {event.type} is {verdict.label}")
    return told, placed, refused


def _in_order(task: Told, heard: list[Fact]) -> list[str]:
    """The accepted events, claims aside, are the agent's facts, once each and in their order."""
    kinds = {"StepStarted": "asked", "ToolCallCompleted": "noted", "StepCompleted": "done"}
    wrong: list[str] = []
    facts: list[Fact] = []
    ids = [event.id for event in task.accepted]
    if len(ids) != len(set(ids)):
        wrong.append(f"{task.state.task_id}: an event is accepted twice")
    for event in task.accepted:
        if EVENT_TYPES[event.type][0] == CLAIM:
            continue
        step = (loads(bytes(event.body)) or {}).get("step_index")
        if event.type == "TaskCompleted":
            facts.append(ANSWER)
        elif event.type != "ToolCallStarted":
            facts.append((step, kinds[event.type]))
        elif facts[-1] != (step, "asked"):
            # A call that was on its way when its worker came back may have begun again.
            wrong.append(f"{task.state.task_id}: a call began after {facts[-1]}")
    if facts != heard:
        wrong.append(f"{task.state.task_id}: the log has {facts}, it was told {heard}")
    return wrong


def project_once(url: str, db: Path) -> subprocess.CompletedProcess[str]:
    """`projector run --once`."""
    command = [sys.executable, "-m", "projector.cli", "run", "--once", "--log", url]
    return subprocess.run([*command, "--db", str(db)], capture_output=True, text=True, check=False)


def projected(
    url: str, db: Path, placed: set[tuple[int, int, str]], refused: set[tuple[int, int, str]]
) -> None:
    """The tables of `projector run --once` hold what the log's fold does."""
    run = project_once(url, db)
    assert run.returncode == 0, run.stderr
    assert set(rows(db, 'SELECT "partition", "offset", id FROM events')) == placed
    assert set(rows(db, 'SELECT "partition", "offset", id FROM anomalies')) == refused
    doubled = "SELECT task_id FROM tasks GROUP BY ALL HAVING count(*) > 1"
    assert rows(db, doubled) == []
    assert rows(db, "SELECT count(*) FROM tasks WHERE status <> 'completed'") == [(0,)]
    assert rows(db, "SELECT count(*) FROM steps WHERE status <> 'completed'") == [(0,)]
    in_steps = "SELECT count(*) FROM events WHERE type = 'StepStarted'"
    assert rows(db, "SELECT count(*) FROM steps") == rows(db, in_steps)
