"""Events for the projector's tests and benchmarks: lawful runs, and what disturbs them.

Deterministic for a seed. Builds records as any writer would; knows no log and no table.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from journal.codec import encode_event
from journal.events import EVENT_TYPES, Envelope
from journal.ids import rfc3339
from journal.values import encode

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""

JOURNAL_ID = "0123456789abcdef0123456789abcdef"


class Writer:
    """One task's owner: mints envelopes in order. `owner` is the claim's nonce."""

    def __init__(self, task_id: str, at_ms: int = START_MS) -> None:
        self.task_id = task_id
        self.epoch = 0
        self.seq = 0
        self.count = 0
        self.at_ms = at_ms
        self.run_id = ""
        self.owner = f"{task_id}-owner-0"

    def _envelope(self, type: str, v: int | None, body: dict[str, Any], **members: Any) -> Envelope:
        self.count += 1
        self.at_ms += 250
        return Envelope(
            type,
            EVENT_TYPES[type][1] if v is None else v,
            f"{self.task_id}-{self.count}",
            self.task_id,
            at=rfc3339(self.at_ms),
            body=Raw(encode(body)),
            **members,
        )

    def start(self, description: str = "count the words", **body: Any) -> Envelope:
        """The claim that creates the task."""
        body = {"description": description, "agent_name": "counter", **body}
        event = self._envelope("TaskStarted", None, body, epoch=0, owner=self.owner)
        self.run_id = event.id
        return event

    def claim(self, **body: Any) -> Envelope:
        """The next claim, by a new owner."""
        self.epoch += 1
        self.owner = f"{self.task_id}-owner-{self.epoch}"
        return self._envelope("TaskClaimed", None, body, epoch=self.epoch, owner=self.owner)

    def own(self, type: str, v: int | None = None, **body: Any) -> Envelope:
        """An owner's event with the next seq."""
        self.seq += 1
        return self._envelope(type, v, body, epoch=self.epoch, owner=self.owner, seq=self.seq)

    def anyone(self, type: str, **body: Any) -> Envelope:
        """An event that is not its owner's; its `ref` is the run."""
        return self._envelope(type, None, body, ref=self.run_id)

    def message(self, content: str, role: str = "user") -> Envelope:
        """A message from outside."""
        return self.anyone("MessageReceived", role=role, content=content)

    def step(self, index: int, *, tools: int = 1, text: str = "thinking") -> Iterator[Envelope]:
        """A whole granular step: decision, calls with results, completion."""
        calls = [
            {"tool_name": "count", "tool_call_id": f"c{n}", "arguments": {"path": f"f{n}.txt"}}
            for n in range(tools)
        ]
        decision = {
            "text": text,
            "tool_calls": calls,
            "usage": {"input_tokens": 100 + index, "output_tokens": 20},
            "request_model": "model-a",
        }
        yield self.own("StepStarted", step_index=index, decision=decision)
        for n in range(tools):
            yield self.own(
                "ToolCallStarted",
                step_index=index,
                position=n,
                tool_name="count",
                arguments_digest="0" * 32,
            )
            yield self.own(
                "ToolCallCompleted", step_index=index, position=n, result={"words": index * 7 + n}
            )
        yield self.own("StepCompleted", step_index=index)

    def asked(self, key: str, *, answered: bool) -> Iterator[Envelope]:
        """A request for input, closed by an answer or by its time."""
        request = self.own("InputRequested", key=key, question="may I?")
        yield request
        if answered:
            yield replace(self.anyone("InputReceived", value=True), ref=request.id)
        else:
            yield replace(self.own("TimerFired"), ref=request.id)

    def child(self, name: str, result: Any) -> Iterator[Envelope]:
        """A sub-task as its parent records it."""
        start = self.own(
            "SubtaskStarted",
            name=name,
            child_task_id=f"{self.task_id}:{name}",
            function="work",
            arguments_digest="0" * 32,
        )
        yield start
        end = self.own("SubtaskCompleted", name=name, status="completed", result=result)
        yield replace(end, ref=start.id)

    def recorded(self, index: int, size: int = 200) -> Envelope:
        """A step in one event, as `record_step` writes it; `size` bytes of observation."""
        decision = {
            "text": f"step {index}",
            "tool_calls": [{"tool_name": "read", "arguments": {"path": f"{index}.txt"}}],
            "usage": {"input_tokens": 100, "output_tokens": 10},
        }
        return self.own(
            "StepCompleted",
            step_index=index,
            decision=decision,
            calls=[{"result": "x" * size}],
        )


def run(task_id: str, rng: random.Random, steps: int) -> Iterator[Envelope]:
    """One task's whole life, with claims, failures, messages and old versions in it."""
    w = Writer(task_id, START_MS + rng.randrange(10**9))
    yield w.start()
    index = 0
    for index in range(steps):
        kind = rng.randrange(10)
        if kind == 0:
            yield w.claim(worker="w2")
        elif kind == 1:
            yield w.message(f"and step {index}?")
        elif kind == 2:
            yield w.own("StepFailed", step_index=index, error_type="ValueError", error="no")
        elif kind == 3:
            yield from w.asked(f"may-{index}", answered=rng.randrange(2) == 0)
        elif kind == 4:
            yield from w.child(f"part-{index}", result={"part": index})
        if rng.randrange(4) == 0:
            yield w.own(
                "StepCompleted",
                1,
                step_index=index,
                thought="old",
                tool_name="read",
                tool_args={"a": 1},
                observation="seen",
                tokens_used=7,
                completed_at="2026-01-01T00:00:00Z",
            )
        elif rng.randrange(2):
            yield from w.step(index, tools=rng.randrange(3))
        else:
            yield w.recorded(index)
    ending = rng.randrange(4)
    if ending == 0:
        yield w.own("TaskFailed", error_type="RuntimeError", error="gave up")
    elif ending < 3:
        yield w.own("ResultRecorded", name="total", value=steps)
        yield w.own("TaskCompleted", final_answer=f"{steps} steps")


def disturbed(events: list[Envelope], rng: random.Random) -> list[Envelope]:
    """The same task with late and doubled copies, a fenced writer's events, a conflict, a gap."""
    out: list[Envelope] = []
    for event in events:
        out.append(event)
        kind = rng.randrange(30)
        if kind == 0:
            out.append(event)
        elif kind == 1:
            out.append(rng.choice(out))
        elif kind == 2 and event.seq is not None:
            out.append(_like(event, f"{event.id}-f", owner="nobody", seq=event.seq + 1))
        elif kind == 3 and event.seq is not None:
            # Closes the epoch: what follows of it no longer counts, until a claim.
            wrong = event.seq if rng.randrange(2) else event.seq + 5
            out.append(_like(event, f"{event.id}-c", seq=wrong))
    return out


def _like(event: Envelope, id: str, **members: Any) -> Envelope:
    return replace(event, id=id, **members)


Pair = tuple[bytes, bytes]


def pair(event: Envelope) -> Pair:
    """The record's key and value."""
    assert event.task_id is not None
    return event.task_id.encode(), encode_event(event)


def many(tasks: int, seed: int = 1, *, steps: int = 8) -> list[Pair]:
    """Key and value of the events of many disturbed tasks, interleaved, with a few records
    among them that are no events."""
    rng = random.Random(seed)
    lives = []
    for n in range(tasks):
        life = disturbed(list(run(f"task-{n:05d}", rng, rng.randrange(1, steps))), rng)
        lives.append([pair(event) for event in life][::-1])
    out: list[Pair] = []
    while lives:
        life = rng.choice(lives[:50])
        out.append(life.pop())
        if not life:
            lives.remove(life)
        if rng.randrange(500) == 0:
            out.append((b"task-00000", b"no event"))
    return out
