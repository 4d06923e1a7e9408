"""Random logs of one task: lawful writers, owners with wrong seqs, zombies, late copies.

A log is drawn as a list of small moves, which shrinks well, and played by writers who know the
task only as far as `Model` tells them. Knows no fold.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from journal.events import ENDING, EVENT_TYPES, OWNER, Envelope
from journal.values import encode, encode_value
from tests.attacks import FULL
from tests.property.model import Model

ROUNDS = 2_000 if FULL else 200


def law(share: float = 1.0) -> settings:
    """Deterministic, so that a red build is red again; more examples where asked for."""
    return settings(
        max_examples=max(20, int(ROUNDS * share)),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


OWNERS = [t for t, (kind, _, _) in EVENT_TYPES.items() if kind == OWNER and t not in ENDING]
ABOUT = {"SubtaskCompleted": ("SubtaskStarted",), "TimerFired": ("TimerSet", "InputRequested")}
"""The owner's events that name one of these types by its id."""

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
keys = st.sampled_from(["", "a", "$", "$$", "$blob", "$$blob", "$enc", "$sha256", "null", '"$'])
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
payloads = json_values.map(encode_value)

indexes = st.integers(0, 3)
positions = st.integers(0, 2)
word = st.sampled_from(["read", "write", "é", ""])
usages = st.none() | st.fixed_dictionaries(
    {}, optional={k: st.integers(0, 99) for k in ("input_tokens", "output_tokens", "total_tokens")}
)
decisions = st.fixed_dictionaries(
    {},
    optional={
        "text": st.none() | word,
        "usage": usages,
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {"tool_name": word},
                optional={"tool_call_id": st.sampled_from(["c", "d"]), "arguments": payloads},
            ),
            max_size=3,
        ),
    },
).map(lambda d: Raw(encode(d)))
outcomes = st.lists(
    st.fixed_dictionaries({"result": payloads})
    | st.fixed_dictionaries({"error": word, "error_type": word}),
    max_size=3,
)


def _body(required: dict[str, Any], **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


_step = {"step_index": indexes}
_call = {"step_index": indexes, "position": positions}
_error = {"error_type": word, "error": word}
BODIES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "TaskStarted": _body({"description": word}, agent_name=word, started_at=word),
    "TaskClaimed": _body({}, worker=word, running=st.lists(st.tuples(indexes, positions))),
    "TaskReopened": _body({}, worker=word),
    "StepStarted": _body(_step, decision=decisions, last_message=st.integers(0, 30).map(str)),
    "ToolCallStarted": _body(
        _call | {"tool_name": word, "arguments_digest": word},
        effect=st.sampled_from(["once", "none"]),
        arguments=payloads,
    ),
    "ToolCallCompleted": _body(_call | {"result": payloads}),
    "ToolCallFailed": _body(_call | _error, final=st.booleans()),
    "CallResolved": _body(_call, result=payloads, error=word, run_again=st.booleans()),
    "StepCompleted": _body(
        _step, decision=decisions, calls=outcomes, last_message=st.integers(0, 30).map(str)
    ),
    "StepFailed": _body(_step | _error),
    "ValueRecorded": _body({"key": word, "function": word}, value=payloads),
    "ResultRecorded": _body({"name": word, "value": payloads}),
    "TaskCompleted": _body({}, final_answer=payloads, step_index=indexes),
    "TaskFailed": _body(_error),
    "TaskCancelled": _body({}, reason=word),
    "SubtaskStarted": _body(
        {"name": word, "child_task_id": word, "function": word, "arguments_digest": word}
    ),
    "SubtaskCompleted": _body(
        {"name": word, "status": st.sampled_from(["completed", "failed", "cancelled", "odd"])},
        result=payloads,
        error=word,
    ),
    "InputRequested": _body({"key": word, "question": payloads}, schema=payloads),
    "TimerSet": _body({"key": word, "fires_at": word}),
    "TimerFired": _body({}),
    "InputReceived": _body({"value": payloads}, answered_by=word),
    "CancelRequested": _body({}, reason=word),
    "MessageReceived": _body(
        {"role": st.sampled_from(["user", "tool", "system"]), "content": payloads}
    ),
}
v1_bodies = _body(
    _step,
    thought=st.none() | word,
    tool_name=st.none() | word,
    tool_args=payloads,
    observation=payloads,
    tokens_used=st.none() | st.integers(0, 99),
    completed_at=st.none() | word,
)

_OFTEN = [*OWNERS, *["StepStarted", "StepCompleted"] * 3]
_LAWFUL = (
    ["own"] * 10
    + ["claim"] * 3
    + ["message"] * 3
    + ["wait"] * 3
    + ["answer"] * 3
    + ["end", "reopen", "cancel", "copy", "slice"]
)
_WRONG = ["wrong_seq", "zombie", "zombie", "old_claim", "old_run", "late_answer", "stranger"]
_RUDE = ["ahead", "parent", "early", "no_such_run", "restart", "other_epoch"]


@st.composite
def logs(
    draw: st.DrawFn, *, rude: bool = False, versions: bool = False, wrong: bool = True
) -> list[Envelope]:
    """A task's log. `rude` adds writers that no program of ours would be: claims of epochs to
    come, events before the start, sub-task claims for other parents. `versions` adds events of
    old versions; without `wrong` there are only lawful writers and their copies."""
    play = _Play(draw, sub=draw(st.booleans()), versions=versions)
    if not rude or draw(st.integers(0, 4)):
        play.restart()
    kinds = _LAWFUL + (_WRONG if wrong else []) + (_RUDE if rude else [])
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=30)):
        getattr(play, kind)()
    return play.log


class _Play:
    def __init__(self, draw: st.DrawFn, *, sub: bool, versions: bool) -> None:
        self.draw, self.sub, self.versions = draw, sub, versions
        self.log: list[Envelope] = []
        self.model = Model()
        self.claims: list[Envelope] = []
        self.next_seq: dict[str, int] = {}
        self.minted = 0

    def _put(self, type: str, **members: Any) -> Envelope:
        self.minted += 1
        v, body = EVENT_TYPES[type][1], BODIES[type]
        if type == "StepCompleted" and self.versions and self.draw(st.booleans()):
            v, body = 1, v1_bodies
        event = Envelope(
            type,
            v,
            str(self.minted),
            "t",
            at=f"2026-01-01T00:00:{self.minted % 60:02d}Z",
            body=Raw(encode(self.draw(body))),
            **members,
        )
        self._append(event)
        return event

    def _append(self, event: Envelope) -> None:
        self.log.append(event)
        self.model.judge_and_take(event)

    def _claim(self, type: str, epoch: int, **parent: Any) -> None:
        if self.sub and not parent:
            parent = {"parent_epoch": self._parent_epoch(), "ref": "parents-start"}
        owner = f"owner-{len(self.claims)}"
        self.claims.append(self._put(type, epoch=epoch, owner=owner, **parent))
        self.next_seq[owner] = self.model.seq + 1

    def _parent_epoch(self) -> int:
        if not self.model.accepted:
            return 1
        return (self.model.claim.parent_epoch or 0) + self.draw(st.integers(0, 1))

    @property
    def _epoch(self) -> int:
        return self.model.claim.epoch or 0 if self.model.accepted else 0

    # --- lawful -------------------------------------------------------------------------------

    def restart(self) -> None:
        self._claim("TaskStarted", 0)

    def own(self, type: str | None = None) -> None:
        if self.model.accepted:
            claim = self.model.claim
            type = type or self.draw(st.sampled_from(_OFTEN))
            about = [e.id for e in self.log if e.type in ABOUT.get(type, ())]
            ref = self.draw(st.sampled_from(about)) if about else None
            event = self._put(
                type, epoch=claim.epoch, owner=claim.owner, seq=self.model.seq + 1, ref=ref
            )
            self.next_seq[claim.owner or ""] = (event.seq or 0) + 1

    def end(self) -> None:
        self.own(self.draw(st.sampled_from(["TaskFailed", "TaskFailed", *ENDING])))

    def claim(self) -> None:
        if self.model.accepted and self.model.ending is None:
            self._claim("TaskClaimed", self._epoch + 1)

    def reopen(self) -> None:
        ending = self.model.ending if self.model.accepted else None
        if ending is not None and ending.type == "TaskFailed":
            self._claim("TaskReopened", self._epoch + 1)

    def message(self) -> None:
        if self.model.accepted:
            self._put("MessageReceived", ref=self.model.run.id)

    def wait(self) -> None:
        self.own(self.draw(st.sampled_from(["InputRequested", "TimerSet", "TimerFired"])))

    def answer(self) -> None:
        asked = [e.id for e in self.model.waits_for()] if self.model.accepted else []
        if asked:
            self._put("InputReceived", ref=self.draw(st.sampled_from(asked)))

    def cancel(self) -> None:
        if self.model.accepted:
            self._put("CancelRequested", ref=self.model.run.id)

    def copy(self) -> None:
        if self.log:
            self._append(self.draw(st.sampled_from(self.log)))

    def slice(self) -> None:
        start = self.draw(st.integers(0, len(self.log)))
        for event in self.log[start : start + self.draw(st.integers(0, 6))]:
            self._append(event)

    # --- wrong, as a lost race or a fault makes it ----------------------------------------------

    def wrong_seq(self) -> None:
        if self.model.accepted:
            claim = self.model.claim
            seq = self.model.seq + self.draw(st.sampled_from([-2, -1, 0, 2, 3, 99]))
            type = self.draw(st.sampled_from([*OWNERS, "TaskFailed"]))
            self._put(type, epoch=claim.epoch, owner=claim.owner, seq=seq)

    def zombie(self) -> None:
        if self.claims:
            claim = self.draw(st.sampled_from(self.claims))
            seq = self.next_seq[claim.owner or ""]
            self.next_seq[claim.owner or ""] += 1
            type = self.draw(st.sampled_from([*OWNERS, "TaskCompleted"]))
            self._put(type, epoch=claim.epoch, owner=claim.owner, seq=seq)

    def old_claim(self) -> None:
        if self.model.accepted:
            back = self.draw(st.integers(0, 2))
            type = self.draw(st.sampled_from(["TaskClaimed", "TaskReopened"]))
            self._claim(type, max(0, self._epoch - back))

    def old_run(self) -> None:
        if self.claims:
            self._put("MessageReceived", ref=self.draw(st.sampled_from(self.claims)).id)

    def late_answer(self) -> None:
        if self.log:
            self._put("InputReceived", ref=self.draw(st.sampled_from(self.log)).id)

    def stranger(self) -> None:
        self._put(self.draw(st.sampled_from(OWNERS)), epoch=self._epoch, owner="nobody", seq=1)

    # --- rude -----------------------------------------------------------------------------------

    def ahead(self) -> None:
        type = self.draw(st.sampled_from(["TaskStarted", "TaskClaimed", "TaskReopened"]))
        self._claim(type, self._epoch + self.draw(st.integers(0, 3)))

    def parent(self) -> None:
        epoch = self.draw(st.none() | st.integers(0, 4))
        ref = None
        if epoch is not None:
            ref = self.draw(st.sampled_from(["parents-start", "another"]))
        if not self.model.accepted:
            return
        self._claim("TaskClaimed", self._epoch + 1, parent_epoch=epoch, ref=ref)

    def early(self) -> None:
        self._put(self.draw(st.sampled_from(OWNERS)), epoch=0, owner="owner-0", seq=1)

    def no_such_run(self) -> None:
        self._put("MessageReceived", ref="no such run")

    def other_epoch(self) -> None:
        if self.model.accepted:
            claim = self.model.claim
            epoch = self._epoch + self.draw(st.sampled_from([-1, 1]))
            self._put("StepStarted", epoch=epoch, owner=claim.owner, seq=self.model.seq + 1)


def renamed(event: Envelope, id: str, **members: Any) -> Envelope:
    """The same event under another id."""
    return replace(event, id=id, **members)
