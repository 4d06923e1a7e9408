"""`connect`: from a URL to a journal whose tasks can be opened, resumed and looked at.

Opens the log, reads its identity, finds tasks, claims them. What happens in an open task is
`task`; what is written how is `owner`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping
from types import TracebackType

from journal import events as ev
from journal.backends import log_url, open_log
from journal.blobs import BlobStore, DirectoryBlobs
from journal.codec import check_task_id, decode_event
from journal.errors import (
    BadRecord,
    TaskEnded,
    TaskMismatch,
    TaskNotFound,
    TaskRunning,
    UsageError,
)
from journal.events import Envelope
from journal.fold import apply
from journal.genesis import GENESIS_KEY, Identity, identify
from journal.ids import birth_ms, now_ms
from journal.log import NONE, Log, OnScan, Record, Scanned
from journal.owner import Owner
from journal.partition import partition_of
from journal.readback import Readback
from journal.resume import CheckpointStore, check
from journal.state import TaskState
from journal.task import Resumed, Task

logger = logging.getLogger("journal")
CONFIRM = ("always", "once")
_SWEEP_SECONDS = 1.0


class Journal:
    """A connected journal. Made by `connect`, used as an async context."""

    def __init__(
        self,
        url: str,
        *,
        create: bool,
        confirm: str,
        checkpoints: CheckpointStore | None,
        blobs: BlobStore | None,
        kafka_config: Mapping[str, str] | None,
        worker: str | None,
        deadline_s: float,
        on_scan: OnScan | None,
    ) -> None:
        self.url = url
        self._create = create
        self.confirm = confirm
        self._checkpoints = checkpoints
        self._kafka_config = kafka_config
        self._worker = worker
        self._deadline_s = deadline_s
        self._on_scan = on_scan
        folder = os.environ.get("JOURNAL_BLOBS") or (
            "./journal.blobs" if url.startswith("kafka://") else f"{url}.blobs"
        )
        self.blobs = blobs or DirectoryBlobs(folder)
        self._readbacks: dict[int, Readback] = {}
        self._owners: set[Owner] = set()
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Journal:
        self.log: Log = await open_log(
            self.url,
            create=self._create,
            config=self._kafka_config,
            append_deadline_s=self._deadline_s,
        )
        if isinstance(self.log, Scanned):
            self.log.on_scan = self._on_scan
        try:
            self.identity: Identity = await identify(self.log, create=self._create)
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

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for owner in list(self._owners):
                owner.expire(now_ms())

    # --- looking ----------------------------------------------------------------------------------

    async def state(self, task_id: str) -> TaskState:
        """The task's state now, without claiming it. Raises `TaskNotFound`."""
        state, _, _ = await self._load(check_task_id(task_id))
        if not state.exists:
            raise TaskNotFound(f"no task {task_id} in {self.url}; journal tasks lists them")
        return state

    async def events(self, task_id: str, start: int = 0) -> AsyncIterator[tuple[int, Envelope]]:
        """The task's events from offset `start` of its partition on: (offset, event), as they
        were written, rejected ones too."""
        for record in await self.records(task_id, start):
            with contextlib.suppress(BadRecord):
                yield record.offset, decode_event(record.value, record.key)

    async def records(self, task_id: str, start: int = 0) -> list[Record]:
        """The same as the log holds them, undecodable ones too."""
        partition = partition_of(check_task_id(task_id), self.log.partitions)
        start = start or await self._birth(task_id, partition)
        return await self.log.read_key(partition, task_id.encode(), start)

    async def _birth(self, task_id: str, partition: int) -> int:
        """An offset below which the task has nothing; 0 where its id does not tell its birth."""
        born = birth_ms(task_id)
        return 0 if born is None else await self.log.offset_at(partition, born)

    async def tasks(self, *, status: str | None = None) -> list[TaskState]:
        """Every task's state, from the log alone, in order of appearance."""
        states: dict[str, TaskState] = {}
        for partition, start in (await self.log.starts()).items():
            async for batch in self.log.read(partition, start):
                for record in batch:
                    if record.key == GENESIS_KEY:
                        continue
                    try:
                        event = decode_event(record.value, record.key)
                    except BadRecord:
                        continue
                    if event.task_id is None:
                        continue
                    state = states.get(event.task_id)
                    if state is None:
                        state = TaskState(event.task_id, partition=partition)
                        states[event.task_id] = state
                    apply(state, event, record.offset)
        return [s for s in states.values() if s.exists and status in (None, s.status)]

    async def _load(self, task_id: str) -> tuple[TaskState, int, int]:
        """(state, offset up to which it is known, offset of the task's last record)."""
        partition = partition_of(task_id, self.log.partitions)
        state, start = TaskState(task_id, partition=partition), 0
        if self._checkpoints is not None:
            found = await self._checkpoints.checkpoint(task_id, self.identity.journal_id)
            if found is not None:
                await check(self.log, partition, found)
                state, start = found.state, found.next_offset
        start = start or await self._birth(task_id, partition)
        known = (await self.log.ends())[partition] - 1
        last = state.offset if state.exists else NONE
        for record in await self.log.read_key(partition, task_id.encode(), start):
            last = record.offset
            known = max(known, last)
            with contextlib.suppress(BadRecord):
                apply(state, decode_event(record.value, record.key), record.offset)
        return state, known, last

    # --- opening ----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def task(
        self,
        task_id: str,
        description: str | None = None,
        *,
        takeover: bool = True,
        agent_name: str | None = None,
    ) -> AsyncIterator[Task]:
        """Start the task, or resume it, taking it over from whoever has it.

        Raises `TaskNotFound` (no such task, no description), `TaskMismatch` (another
        description), `TaskRunning` (it has an owner, and `takeover` is False), `TaskEnded` (it
        failed), `TaskFenced` (somebody else claimed it at the same moment).
        """
        state, known, last = await self._load(check_task_id(task_id))
        if state.exists:
            _check(state, description, takeover)
            if not state.running:
                yield Task(state, None, self.blobs, None)
                return
        elif description is None:
            raise TaskNotFound(f"no task {task_id} in {self.url}; give a description to start it")
        async with self._owned(state, known, last) as owner:
            resumed = await self._claim(owner, description, agent_name)
            yield Task(state, owner, self.blobs, resumed)

    @contextlib.asynccontextmanager
    async def owned(self, task_id: str) -> AsyncIterator[Owner]:
        """The writing side of a task, there or not, before any claim: for whoever decides by its
        state whether to claim it."""
        state, known, last = await self._load(check_task_id(task_id))
        async with self._owned(state, known, last) as owner:
            yield owner

    @contextlib.asynccontextmanager
    async def _owned(self, state: TaskState, known: int, last: int) -> AsyncIterator[Owner]:
        readback = self._readbacks.setdefault(state.partition, Readback(self.log, state.partition))
        owner = Owner(
            self.log,
            state,
            known=known,
            last=last,
            confirm=self.confirm,
            readback=readback,
            deadline_s=self._deadline_s,
        )
        self._owners.add(owner)
        await readback.watch(owner, known)
        held = not self.log.conditional and self.confirm == "always"
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

    async def _claim(
        self, owner: Owner, description: str | None, agent_name: str | None
    ) -> Resumed | None:
        state = owner.state
        if not state.exists:
            assert description is not None
            start = ev.TaskStarted(description, agent_name, self._worker)
            await owner.claim("TaskStarted", start, 0)
            return None
        body = ev.TaskClaimed(self._worker, agent_name)
        await owner.claim("TaskClaimed", body, state.head.epoch + 1)
        resumed = Resumed(
            state.task_id, state.current_step, len(state.completed_steps), state.total_tokens
        )
        logger.info("%s", resumed)
        return resumed

    async def retry(self, task_id: str, reason: str | None = None) -> TaskState:
        """Reopen a failed task. Raises `TaskNotFound`, or `UsageError` where it has not failed."""
        state, known, last = await self._load(check_task_id(task_id))
        if not state.exists:
            raise TaskNotFound(f"no task {task_id} in {self.url}; journal tasks lists them")
        if state.status != "failed":
            raise UsageError(f"task {task_id} has not failed; it is {state.status}")
        async with self._owned(state, known, last) as owner:
            body = ev.TaskReopened(self._worker, reason)
            await owner.claim("TaskReopened", body, state.head.epoch + 1)
        return state


def _check(state: TaskState, description: str | None, takeover: bool) -> None:
    if description is not None and description != state.description:
        raise TaskMismatch(
            f"task {state.task_id} is {state.description!r}, not {description!r}; "
            f"use its own description, none, or another id"
        )
    if state.status == "failed":
        raise TaskEnded(
            f"task {state.task_id} failed ({state.error_type}: {state.error}); "
            f"reopen it with: journal retry {state.task_id}"
        )
    if state.running and not takeover:
        raise TaskRunning(f"task {state.task_id} has an owner; open it with takeover=True")


def connect(
    url: str | os.PathLike[str] | None = None,
    *,
    create: bool | None = None,
    confirm: str = "always",
    checkpoints: CheckpointStore | None = None,
    blobs: BlobStore | None = None,
    kafka_config: Mapping[str, str] | None = None,
    worker: str | None = None,
    deadline_s: float = 30.0,
    on_scan: OnScan | None = None,
) -> Journal:
    """A journal, to be entered with `async with`.

    url          a path, or `kafka://host:port/topic`; default `JOURNAL_LOG`, else ./journal.db
    create       make a missing log; by default an embedded one is made, a topic is not
    confirm      `always` or `once`: what an append waits for on Kafka (docs/guarantees.md)
    checkpoints  a projection to resume from, so that only its tail is read
    blobs        where payloads over 256 KiB go; default `JOURNAL_BLOBS`, else beside the log
    deadline_s   seconds after which an append's outcome is unknown
    on_scan      told (offsets passed, offsets in all) while a log without an index, which is
                 Kafka's, is read through to find one task

    Raises `UsageError`.
    """
    if confirm not in CONFIRM:
        raise UsageError(f"confirm is one of {', '.join(CONFIRM)}, not {confirm!r}")
    target = log_url(url)
    return Journal(
        target,
        create=not target.startswith("kafka://") if create is None else create,
        confirm=confirm,
        checkpoints=checkpoints,
        blobs=blobs,
        kafka_config=kafka_config,
        worker=worker,
        deadline_s=deadline_s,
        on_scan=on_scan,
    )
