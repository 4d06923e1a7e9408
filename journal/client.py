"""`connect`: from a URL to a journal whose tasks can be opened, resumed and looked at.

Opens the log, reads its identity, claims tasks. How they are found and looked at is `looking`; what
happens in an open task is `task`; what is written how is `owner`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from journal import events as ev
from journal import outside
from journal.backends import MEMORY, default_blobs, is_kafka, log_url, open_log, redact_hook
from journal.blobs import BlobStore, blob_store
from journal.claims import check_open, claim, claim_child
from journal.errors import TaskMismatch, TaskNotFound, UsageError
from journal.genesis import identify
from journal.ids import birth_ms, now_ms
from journal.log import OnScan, Scanned
from journal.looking import Looking
from journal.owner import Owner
from journal.partition import partition_of
from journal.payloads import Redacting, clean
from journal.readback import Readback
from journal.redact import Redact
from journal.resume import CheckpointStore
from journal.state import Subtask, TaskState
from journal.step import Step
from journal.task import Task
from journal.tracecontext import check_traceparent
from journal.tracing import carry, load_spans, traced

if TYPE_CHECKING:
    from journal.kafka_config import Config as KafkaConfig
    from journal.spans import Spans, TracerProvider

CONFIRM = ("always", "once")
_SWEEP_SECONDS = 1.0


class Journal(Looking):
    """A connected journal. Made by `connect`, used as an async context."""

    def __init__(
        self,
        url: str,
        *,
        create: bool,
        confirm: str,
        checkpoints: CheckpointStore | None,
        blobs: str | os.PathLike[str] | BlobStore | None,
        redact: Redact | None,
        kafka_config: KafkaConfig | None,
        worker: str | None,
        deadline_s: float,
        on_scan: OnScan | None,
        tracer_provider: TracerProvider | None,
    ) -> None:
        super().__init__(url, checkpoints)
        self._create = create
        self.confirm = confirm
        self._kafka_config = kafka_config
        self._worker = worker
        self._deadline_s = deadline_s
        self._on_scan = on_scan
        self._tracer_provider = tracer_provider
        self.blobs = blob_store(default_blobs(url) if blobs is None else blobs)
        if redact is not None:
            self.blobs = Redacting(self.blobs, redact)
        self._readbacks: dict[int, Readback] = {}
        self._owners: set[Owner] = set()
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Journal:
        self.log = await open_log(
            self.url,
            create=self._create,
            config=self._kafka_config,
            append_deadline_s=self._deadline_s,
        )
        if isinstance(self.log, Scanned):
            self.log.on_scan = self._on_scan
        try:
            self.identity = await identify(self.log, create=self._create)
        except BaseException:
            await self.log.close()
            raise
        if not self.log.conditional:
            self._sweeper = asyncio.ensure_future(self._sweep())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self.log.close()

    @functools.cached_property
    def _spans(self) -> Spans | None:
        # Not sooner: who only looks does not wait for OpenTelemetry to be imported.
        return load_spans(self._tracer_provider)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for owner in list(self._owners):
                owner.expire(now_ms())

    # --- opening ----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def task(
        self,
        task_id: str,
        description: str | None = None,
        *,
        takeover: bool = True,
        agent_name: str | None = None,
        traceparent: str | None = None,
    ) -> AsyncIterator[Task]:
        """Start the task, or resume it, taking it over from whoever has it. Once the block has
        ended the task can be read, and takes no more.

        `traceparent` is the W3C trace context that this belongs to; by default OpenTelemetry's
        current span, else that of the last claim (docs/traces.md).

        Raises `TaskNotFound` (no such task, no description), `TaskMismatch` (another
        description), `TaskRunning` (it has an owner, and `takeover` is False), `TaskEnded` (it
        failed), `TaskFenced` (somebody else claimed it at the same moment).
        """
        check_traceparent(traceparent)
        description = None if description is None else clean(description, self.blobs)
        state, known, last = await self.load(task_id)
        if state.exists:
            check_open(state, description, takeover)
            if not state.running:
                yield Task(state, None, self.blobs, None, self)
                return
        elif description is None:
            raise TaskNotFound(f"no task {task_id} in {self.url}; give a description to start it")
        async with self._owned(state, known, last) as owner:
            with traced(self._spans, owner, traceparent, agent_name=agent_name) as inside:
                resumed = await claim(owner, description, agent_name, self._worker)
                task = Task(state, owner, self.blobs, resumed, self, inside)
                try:
                    yield task
                finally:
                    await task.cancellation_ended()

    @contextlib.asynccontextmanager
    async def owned(self, task_id: str) -> AsyncIterator[Owner]:
        """The writing side of a task, there or not, before any claim: for whoever decides by its
        state whether to claim it."""
        state, known, last = await self.load(task_id)
        async with self._owned(state, known, last) as owner:
            yield owner

    @contextlib.asynccontextmanager
    async def _owned(
        self,
        state: TaskState,
        known: int,
        last: int,
        *,
        confirm: str | None = None,
    ) -> AsyncIterator[Owner]:
        confirm = confirm or self.confirm
        readback = self._readbacks.setdefault(state.partition, Readback(self.log, state.partition))
        owner = Owner(
            self.log,
            state,
            known=known,
            last=last,
            confirm=confirm,
            readback=readback,
            deadline_s=self._deadline_s,
        )
        await readback.watch(owner, known)
        self._owners.add(owner)
        held = not self.log.conditional and confirm == "always"
        if held:
            readback.hold()
        try:
            yield owner
            await owner.drain()
        finally:
            self._owners.discard(owner)
            if held:
                readback.release()
            readback.unwatch(owner)
            owner.leave()

    async def before_child(self, child_task_id: str) -> int | None:
        """See `journal.subtasks.Opener`."""
        if self.log.conditional or birth_ms(child_task_id) is None:
            return None
        # The parent's id is random, so that nobody else can have used the child's.
        return (await self.log.ends())[partition_of(child_task_id, self.log.partitions)]

    @contextlib.asynccontextmanager
    async def child(
        self, parent: Task, subtask: Subtask, *, start: int | None = None, create: bool = True
    ) -> AsyncIterator[Task | None]:
        """See `journal.subtasks.Opener`. Raises `TaskFenced`, and `TaskMismatch` where the child's
        id is that of a task which is not this parent's."""
        id = subtask.child_task_id
        state, known, last = await self.load(id, start)
        if state.exists and state.head.parent_ref != subtask.id:
            raise TaskMismatch(f"task {id} is no sub-task of {parent.id}; give another name")
        if not state.exists and not create:
            yield None
            return
        epoch = parent.owner.state.head.epoch
        again = state.status == "failed" and (state.head.parent_epoch or 0) < parent.state.run_epoch
        if state.exists and not state.running and not again:
            yield Task(state, None, self.blobs, None, self)
            return
        async with self._owned(state, known, last) as owner:
            above = parent.spans, parent.owner.traceparent
            with traced(self._spans, owner, parent=above) as inside:
                await claim_child(owner, parent.id, subtask, epoch, self._worker)
                yield Task(state, owner, self.blobs, None, self, inside)

    async def retry(self, task_id: str, reason: str | None = None) -> TaskState:
        """Reopen a failed task. Raises `TaskNotFound`, or `UsageError` where it has not failed."""
        state, known, last = await self.load(task_id)
        if not state.exists:
            raise TaskNotFound(f"no task {task_id} in {self.url}; journal tasks lists them")
        if state.status != "failed":
            raise UsageError(f"task {task_id} has not failed; it is {state.status}")
        async with self._owned(state, known, last) as owner:
            why = None if reason is None else clean(reason, self.blobs)
            body = ev.TaskReopened(self._worker, why)
            head = state.head
            carry(self._spans, owner)
            await owner.claim(
                "TaskReopened",
                body,
                head.epoch + 1,
                ref=head.parent_ref,
                parent_epoch=head.parent_epoch,
            )
        return state

    async def resolve(
        self,
        task_id: str,
        step_index: int,
        position: int,
        *,
        result: Any = None,
        error: str | None = None,
        run_again: bool = False,
        resolved_by: str | None = None,
    ) -> TaskState:
        """Settle an uncertain call of a task, which this takes over and leaves for its agent to
        go on with. Raises what `task` does, and `UsageError` where the call is not uncertain."""
        async with self.task(task_id) as task:
            await Step(task, step_index).settle(
                position, result=result, error=error, run_again=run_again, resolved_by=resolved_by
            )
        return task.state

    # --- from outside -----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def outside(self, task_id: str, traceparent: str | None = None) -> AsyncIterator[Owner]:
        """A way to append what is not its owner's to a task; every append is read back."""
        check_traceparent(traceparent)
        state, known, last = await self.load(task_id)
        async with self._owned(state, known, last, confirm="always") as owner:
            carry(self._spans, owner, traceparent)
            yield owner

    async def send(
        self,
        task_id: str,
        content: Any,
        role: str = "user",
        *,
        id: str | None = None,
        traceparent: str | None = None,
    ) -> str:
        """Give a task a message, whoever owns it; returns the message's id. Its owner sees it
        before its next decision. The same `id` again changes nothing.

        Raises `TaskNotFound`, `TaskEnded`, `ValueRefused`.
        """
        return await outside.send(self, task_id, content, role, id, traceparent)

    async def answer(
        self,
        task_id: str,
        value: Any,
        *,
        key: str | None = None,
        answered_by: str | None = None,
        traceparent: str | None = None,
    ) -> TaskState:
        """Answer what a task asks for; `key` names the request where there are several.

        Raises `TaskNotFound`, `TaskEnded`, and `UsageError` where nothing of that key is asked
        for any more, or the value does not satisfy the schema.
        """
        return await outside.answer(self, task_id, value, key, answered_by, traceparent)

    async def cancel(
        self, task_id: str, reason: str | None = None, *, traceparent: str | None = None
    ) -> TaskState:
        """Want a task's run to end. One that waits ends at once, else its owner ends it, before
        it begins anything new. Raises `TaskNotFound`, `TaskEnded`."""
        return await outside.cancel(self, task_id, reason, traceparent)


def connect(
    url: str | os.PathLike[str] | None = None,
    *,
    create: bool | None = None,
    confirm: str = "always",
    checkpoints: CheckpointStore | None = None,
    blobs: str | os.PathLike[str] | BlobStore | None = None,
    redact: Redact | str | None = None,
    kafka_config: KafkaConfig | None = None,
    worker: str | None = None,
    deadline_s: float = 30.0,
    on_scan: OnScan | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Journal:
    """A journal, to be entered with `async with`.

    url          a path, `kafka://host:port/topic` or, for tests, `memory://NAME`; default
                 `JOURNAL_LOG`, else ./journal.db
    create       make a missing log; by default an embedded one is made, a topic is not
    confirm      `always` or `once`: what an append waits for on Kafka (docs/guarantees.md)
    checkpoints  a projection to resume from, so that only its tail is read
    blobs        where payloads over 256 KiB go: a directory, or any fsspec URL, which needs the
                 extra `blobs`; default `JOURNAL_BLOBS`, else beside the log (those of
                 a log in memory are in memory)
    redact       what takes secrets out of every text before it is written: a function such as
                 `journal.redact.patterns()` (see there what it sees), or its name, `patterns` or
                 `MODULE:FUNCTION`; default `JOURNAL_REDACT`, else nothing does
    kafka_config Kafka's own properties, for TLS and SASL: a mapping, or the file that they stand
                 in; default `JOURNAL_KAFKA_CONFIG`, else none (docs/kafka.md)
    deadline_s   seconds after which an append's outcome is unknown
    on_scan      told (offsets passed, offsets in all) while a log without an index, which is
                 Kafka's, is read through to find one task
    tracer_provider  OpenTelemetry's, for the spans that are made with the extra `otel`; default
                 the global one (docs/traces.md)

    Raises `UsageError`.
    """
    if confirm not in CONFIRM:
        raise UsageError(f"confirm is one of {', '.join(CONFIRM)}, not {confirm!r}")
    target = log_url(url)
    if not target.startswith(MEMORY):
        is_kafka(target)  # refuses what is no log, before anything is made of it
    return Journal(
        target,
        create=not target.startswith("kafka://") if create is None else create,
        confirm=confirm,
        checkpoints=checkpoints,
        blobs=blobs,
        redact=redact_hook(redact),
        kafka_config=kafka_config,
        worker=worker,
        deadline_s=deadline_s,
        on_scan=on_scan,
        tracer_provider=tracer_provider,
    )
