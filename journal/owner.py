"""One task's appends, in order, by the worker that has claimed it.

Between the agent's side and a log: it numbers events, learns what became of each, and keeps the
folded state; what is on its way stands in `pipeline`. What makes an append accepted differs: a
conditional log decides inside the write; elsewhere the event is read back in log order
(`readback`), and with `confirm="once"` an acknowledgement is enough for all but claims and `once`
effects.

Knows logs, envelopes and the fold; knows nothing of steps, tools or models.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from journal.acceptance import ACCEPTED, AFTER_END, DUPLICATE, FENCED, OUT_OF_PLACE
from journal.codec import decode_event
from journal.errors import (
    BadRecord,
    JournalError,
    OutcomeUnknown,
    TaskEnded,
)
from journal.events import ANYONE, CLAIM, EVENT_TYPES, OWNER, Envelope, TaskClaimed
from journal.fold import Verdict, apply
from journal.ids import new_id, now_ms, rfc3339
from journal.log import Cursor, Log, Record
from journal.pending import Pending
from journal.pipeline import Pipeline
from journal.readback import Readback
from journal.state import TaskState
from journal.upcasters import written
from journal.verify import Verifier

_SETTLED = frozenset((ACCEPTED, DUPLICATE, OUT_OF_PLACE))
"""Verdicts of which an owner learns that its event stands in the log and in the state."""

_CHECKED = frozenset(("StepStarted", "StepCompleted", "ToolCallStarted", "ToolCallCompleted"))
"""Events of every step. What users give for these is checked where it is given."""


class Owner(Pipeline):
    """The writing side of one open task. `state` is what the log has accepted so far."""

    def __init__(
        self,
        log: Log,
        state: TaskState,
        *,
        known: int,
        last: int,
        confirm: str = "always",
        readback: Readback,
        deadline_s: float,
    ) -> None:
        """`known` is the offset up to which the key's records are folded into `state`; `last`
        the offset of the key's last record."""
        super().__init__(log, state, last, deadline_s)
        self._known = known
        self._read_to = known + 1
        self._seq = state.head.seq
        self._settling: asyncio.Lock = asyncio.Lock()
        self._renewal: tuple[Envelope, Struct] | None = None
        self._parent: tuple[str | None, int | None] = None, None
        self._at_ack = not log.conditional and confirm == "once"
        self._verifier = Verifier(state.head)
        self._readback = readback
        self.live_calls: set[tuple[int, int]] = set()
        self.traceparent: str | None = None
        """That of claims, and of all events where nothing tells the current one (`tracing`)."""
        self.tracing: Callable[[], str | None] | None = None

    # --- appending ----------------------------------------------------------------------------

    async def append(
        self,
        type: str,
        body: Struct,
        *,
        v: int | None = None,
        ref: str | None = None,
        read_back: bool = False,
    ) -> Verdict:
        """Append an owner's event; returns when it is accepted. `v` is the version that `body`
        has the shape of, where that is not the current one; `ref` the event that it is about.

        Raises `TaskFenced` or `TaskEnded`, after which this owner can write no more;
        `OutcomeUnknown` or `LogUnavailable`, after which the next call settles what happened;
        `EventTooLarge`, which it will be again.
        """
        if self._unsettled:
            await self.settle()
        head = self.state.head
        event = self._event(type, body, v, head.epoch, head.owner, self._seq + 1, ref)
        self._seq += 1
        # A body of an old version is folded as any reader will fold it: upcast.
        pending = self._submit(event, None if v else body)
        if self._at_ack and read_back:
            return await self._read_back(pending)
        return await pending.future

    async def claim(
        self,
        type: str,
        body: Struct,
        epoch: int,
        *,
        ref: str | None = None,
        parent_epoch: int | None = None,
    ) -> None:
        """Win the task at `epoch`, or raise `TaskFenced` (somebody else did) or `TaskEnded`. A
        sub-task is claimed for its parent: by the parent's start of it, and its epoch."""
        self._parent = ref, parent_epoch
        await self._claim(self._claiming(type, body, epoch), body)

    async def _claim(self, event: Envelope, body: Struct) -> None:
        pending = self._submit(event, body)
        await (self._read_back(pending) if self._at_ack else pending.future)
        if self.state.head.claim_id != event.id:
            raise self._die(self._fenced())
        self._seq = self.state.head.seq

    async def put(
        self, type: str, body: Struct, *, ref: str | None = None, id: str | None = None
    ) -> Verdict:
        """Append an event that is not an owner's, claimed or not; `ref` is the run unless given.

        Raises `TaskEnded`; what else speaks against it is the verdict's label.
        """
        await self.settled()
        event = self._event(type, body, ref=ref or self.state.head.run_id)
        event.id = id or event.id
        verdict = await self._submit(event, body).future
        if verdict.label == AFTER_END:
            raise self._ended()
        return verdict

    async def catch_up(self) -> None:
        """See what others have appended up to now, before acting on the state.

        Raises what `change` raises, and what reading the log can.
        """
        end = (await self.log.ends())[self.partition]
        start = max(self._known + 1, self._read_to, self._readback.position)
        if start < end:
            for record in await self.log.read_key(self.partition, self.key, start):
                self.seen(record)
            self._read_to = end
        if not self._pending and self._recovering is None:
            self.cursor = Cursor(self._last)
        self.check()

    def _event(
        self,
        type: str,
        body: Struct,
        v: int | None = None,
        epoch: int | None = None,
        owner: str | None = None,
        seq: int | None = None,
        ref: str | None = None,
        parent_epoch: int | None = None,
    ) -> Envelope:
        """An event as it is written now."""
        v = v or EVENT_TYPES[type][1]
        return Envelope(
            type,
            v,
            new_id(),
            self.state.task_id,
            epoch,
            owner,
            seq,
            ref,
            parent_epoch,
            rfc3339(now_ms()),
            self.traceparent if self.tracing is None else self.tracing(),
            written(type, v, body, type not in _CHECKED),
        )

    def _claiming(self, type: str, body: Struct, epoch: int) -> Envelope:
        ref, parent_epoch = self._parent
        event = self._event(
            type, body, epoch=epoch, owner=new_id(), ref=ref, parent_epoch=parent_epoch
        )
        event.traceparent = self.traceparent
        return event

    async def _read_back(self, pending: Pending) -> Verdict:
        """With `confirm="once"`: wait until the log shows that it was accepted."""
        loop = asyncio.get_running_loop()
        with self._readback.held():
            verdict = await pending.future
            until = loop.time() + self.deadline_ms / 1000
            # Of what is acknowledged from here on there may always be more.
            mark = self._verifier.mark
            while not self._verifier.reached(mark) and self.dead is None:
                if loop.time() >= until:
                    self._unsettled = True
                    raise self._too_late()
                await self.change(until - loop.time())
        self.check()
        return verdict

    # --- outcomes -----------------------------------------------------------------------------

    def written(self, pending: Pending, offset: int) -> None:
        """The log says that the record is durable."""
        if self._conditional:
            pendings = self._pending
            if pendings and pendings[0] is pending:
                pendings.popleft()
                if offset > self._known:
                    self._known = self._last = offset
                self._resolve(pending, offset)
        elif self._at_ack:
            if EVENT_TYPES[pending.event.type][0] == CLAIM:
                # It counts when the log shows it, behind what others have written before it.
                return
            if pending in self._pending:
                self._pending.remove(pending)
            elif pending.future.done():
                return
            self._verifier.acknowledged(pending)
            self._resolve(pending, offset)

    def _resolve(self, pending: Pending, offset: int) -> None:
        try:
            bodies = None if pending.body is None else (pending.body,)
            verdict = apply(self.state, pending.event, offset, bodies)
        except Exception as error:
            # Also what should not happen: whoever waits must hear of it, or would wait for ever.
            self._unsettled = True
            self._fail(pending, error)
            return
        label = verdict.label
        if label in _SETTLED or EVENT_TYPES[pending.event.type][0] == ANYONE:
            future = pending.future
            if not future.done():
                future.set_result(verdict)
            if self._changed:
                self._wake()
        elif EVENT_TYPES[pending.event.type][0] == CLAIM or label in (FENCED, AFTER_END):
            self._fail(pending, self._die(self._fenced() if label == FENCED else self._ended()))
        else:
            self._unsettled = True
            self._fail(pending, OutcomeUnknown(f"{self._name()}: an event was refused as {label}"))

    def _was_read(self, pending: Pending) -> bool:
        """Whether the log has shown an event whose acknowledgement is lost: then it is written."""
        offset = self._verifier.accepted_at(pending.event.id)
        if offset is not None:
            self.written(pending, offset)
        return offset is not None

    # --- what the log shows -------------------------------------------------------------------

    def seen(self, record: Record) -> None:
        """One record of this task, in log order. Called by readback, and when recovering."""
        # Also of what a projection has read, and not counted: the next append stands behind it.
        self._last = max(self._last, record.offset)
        if record.offset <= self._known:
            return
        self._known = record.offset
        if self._at_ack:
            self._verify(record)
            return
        if self._pending and self._pending[0].value == record.value:
            self._resolve(self._pending.popleft(), record.offset)
            return
        self._foreign(record)

    def _foreign(self, record: Record) -> None:
        try:
            event = decode_event(record.value, record.key)
        except BadRecord:
            self._wake()
            return
        mine = next((p for p in self._pending if p.event.id == event.id), None)
        if mine is not None:
            self._pending.remove(mine)
            # Another may have sent a message under the same id: the first in the log counts.
            mine.event, mine.body = event, None
            self._resolve(mine, record.offset)
            return
        try:
            verdict = apply(self.state, event, record.offset)
        except JournalError as error:
            self._die(error)
            return
        if verdict.accepted and EVENT_TYPES[event.type][0] == CLAIM:
            if self.state.head.claim_id == event.id and not self._is_renewal(event):
                self._die(self._fenced())
        elif self.state.head.epoch_closed and self.dead is None:
            self._unsettled = True
        self._wake()

    def _is_renewal(self, event: Envelope) -> bool:
        return self._renewal is not None and self._renewal[0].id == event.id

    def _verify(self, record: Record) -> None:
        try:
            event, own, verdict = self._verifier.seen(record, self._pending)
        except BadRecord:
            return
        except JournalError as error:
            self._die(error)
            return
        kind = EVENT_TYPES[event.type][0]
        mine = next((p for p in self._pending if own and p.event.id == event.id), None)
        if mine is not None and kind == CLAIM:
            self._pending.remove(mine)
            self._verifier.acknowledged(mine)
            self._resolve(mine, record.offset)
        elif mine is not None and kind == ANYONE and verdict == ACCEPTED:
            # Another may have sent a message under the same id: the first in the log counts.
            mine.event, mine.body = event, None
        elif not own and verdict == ACCEPTED:
            if kind == CLAIM and not self._is_renewal(event):
                self._die(self._fenced())
            elif not apply(self.state, event, record.offset).accepted and self.state.running:
                # It stands before an own event that has counted already, and speaks against it.
                self._die(OutcomeUnknown(f"{self._name()}: the log has another order; reopen it"))
        elif own and verdict == FENCED:
            self._die(self._fenced())
        elif own and verdict == AFTER_END:
            self._die(
                TaskEnded(f"{self._name()} had ended when this worker wrote to it; stop this one")
            )
        elif own and verdict not in _SETTLED and kind == OWNER:
            self._die(
                OutcomeUnknown(f"{self._name()}: an event was refused as {verdict}; reopen it")
            )
        self._wake()

    # --- after an unknown outcome ---------------------------------------------------------------

    async def settled(self) -> None:
        """Return when nothing is unknown any more. Raises what `settle` raises."""
        if self._unsettled:
            await self.settle()

    async def settle(self) -> None:
        """Renew: claim the own epoch + 1. The claim is a barrier: whatever of the old epoch has
        not been accepted before it never will be. Raises `TaskFenced` where somebody else has
        claimed."""
        async with self._settling:
            if not self._unsettled:
                return
            while self._pending:
                await self.change()
            for record in await self.log.read_key(self.partition, self.key, self._last + 1):
                self.seen(record)
            self.check()
            if self._renewal is None or self._renewal[0].epoch != self.state.head.epoch + 1:
                body = self._renewal_body()
                event = self._claiming("TaskClaimed", body, self.state.head.epoch + 1)
                self._renewal = (event, body)
            self.cursor = Cursor(self._last)
            await self._claim(*self._renewal)
            # Not sooner: what is asked for while the claim is on its way must wait for it.
            self._unsettled = False
            self._renewal = None

    def _renewal_body(self) -> TaskClaimed:
        state = self.state
        running = [call for call in state.started_calls if call in self.live_calls]
        return TaskClaimed(state.worker, state.agent_name, state.imported_from, running)

    def lost(self, error: JournalError) -> None:
        """The log cannot be followed any more (`LogReplaced`, `HistoryTruncated`)."""
        self._die(error)

    def watching(self) -> Any:
        """A context in which what others append is seen as it comes."""
        return self._readback.held()
