"""The durable calls of one task: functions, clock and chance, each run once and replayed after.

Knows the owner's pipeline, scopes and payloads; knows nothing of steps, people or sub-tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import copy_context
from datetime import datetime
from inspect import CORO_CREATED
from typing import TYPE_CHECKING, Any

from journal import events as ev
from journal import ids
from journal import scope as scopes
from journal.declared import declared, fit, refit
from journal.errors import JournalError, ReplayDiverged, UsageError
from journal.payloads import payload
from journal.scope import Scope
from journal.tools import KEY_PARAMETER, Tool, run_function
from journal.values import decode_value, digest_value

if TYPE_CHECKING:
    from journal.task import Task

POLICIES = ("fail_fast", "collect")
_KEYED = "="


class Durable:
    """What a task has recorded of its durable calls, and the scopes of this process."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._root = self._scope("")

    def _scope(self, path: str) -> Scope:
        state = self._task.state
        values = [] if state.steps else [v for v in state.values.values() if _in(v.key, path)]
        return Scope(path, values)

    @property
    def scope(self) -> Scope:
        """The scope that the calling code is in."""
        return scopes.current(self._task) or self._root

    @contextlib.contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Run what is inside in a scope of this name within the present one."""
        with scopes.entered(self._task, self._scope(self.scope.inner(name))):
            yield

    async def run(
        self, key: str | None, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """The function's recorded value, or that of running it now. See `Task.run`."""
        await self._task.ready()
        name = getattr(function, "__qualname__", type(function).__qualname__)
        if isinstance(function, Tool) and function.effect == "once":
            raise UsageError(
                f"{name} must run once, and what runs here runs again after a crash; "
                f"call it in a step: await step.call({name}, …)"
            )
        digest = digest_value([list(args), kwargs])
        here = self.scope
        if key is not None:
            place = f"{_KEYED}{key}"
            return await self._value(place, name, digest, function, args, kwargs)
        what = f"{name}:{digest}"
        place = here.place(what)
        with here.alone(name):
            if place not in self._task.state.values:
                here.check_new(name, digest)
            else:
                # What runs at the same time must be told apart on a replay as well.
                await asyncio.sleep(0)
            value = await self._value(place, name, digest, function, args, kwargs)
            here.replayed(place)
            here.passed(what)
            return value

    async def _value(
        self, key: str, name: str, digest: str, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        task = self._task
        kind = declared(function)
        known = task.state.values.get(key)
        if known is None:
            with self.inside(key.removeprefix(self.scope.path)), self._traced(function, name):
                raw = await payload(await self._ran(key, function, args, kwargs), task.blobs)
            if kind is not Any:
                fit(decode_value(raw, task.blobs.get), kind)
            await task.owner.append("ValueRecorded", ev.ValueRecorded(key, name, raw, digest))
            known = task.state.values[key]
        if (known.function, known.arguments_digest) != (name, digest):
            raise ReplayDiverged(
                f"task {task.id}: {key.lstrip(_KEYED)} is recorded of {known.function} with "
                f"arguments {known.arguments_digest}, now it is {name} with {digest}"
            )
        return refit(decode_value(known.value, task.blobs.get), kind, f"task {task.id}: {name}")

    async def _ran(self, key: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What it gives now. A tool is given its idempotency key, and is tried again by its
        policy; its failures are counted in this process only."""
        if not isinstance(function, Tool):
            return await run_function(function, args, kwargs)
        key = kwargs.get(KEY_PARAMETER) or f"{self._task.state.head.run_id}:{key}"
        failures = 0
        while True:
            try:
                return await function.run(key, args, kwargs)
            except JournalError:
                raise
            except Exception as error:
                failures += 1
                if not function.may_retry(error, failures):
                    raise
                await asyncio.sleep(function.backoff_s(failures, error))
                # Nothing that it appends would tell it meanwhile that the task is another's.
                await self._task.look()

    def _traced(self, function: Callable[..., Any], name: str) -> AbstractContextManager[object]:
        spans = self._task.spans
        if spans is None or function in (now, draw, make_uuid):
            return contextlib.nullcontext()
        return spans.run(name)

    # --- clock and chance -------------------------------------------------------------------------

    async def now(self) -> datetime:
        """The time at which this was first asked for."""
        return datetime.fromisoformat(await self.run(None, now, (), {}))

    async def random(self) -> float:
        """The number that was first drawn."""
        number: float = await self.run(None, draw, (), {})
        return number

    async def uuid(self) -> uuid.UUID:
        """The UUID that was first made."""
        return uuid.UUID(await self.run(None, make_uuid, (), {}))

    # --- at the same time -------------------------------------------------------------------------

    async def gather(
        self, calls: tuple[Awaitable[Any], ...], limit: int | None, policy: str
    ) -> list[Any]:
        """See `Task.gather`."""
        try:
            return await self._gathered(calls, limit, policy)
        finally:
            for call in calls:
                # Python complains of one that nobody has begun to await.
                if inspect.iscoroutine(call) and inspect.getcoroutinestate(call) == CORO_CREATED:
                    call.close()

    async def _gathered(
        self, calls: tuple[Awaitable[Any], ...], limit: int | None, policy: str
    ) -> list[Any]:
        if policy not in POLICIES or (limit is not None and limit < 1):
            raise UsageError(
                f"gather takes a limit of at least 1 and a policy of {', '.join(POLICIES)}; "
                f"not {limit!r} and {policy!r}"
            )
        here = self.scope
        group = here.place("gather").removeprefix(here.path)
        room = asyncio.Semaphore(limit if limit is not None else max(1, len(calls)))

        async def one(call: Awaitable[Any]) -> Any:
            async with room:
                return await call

        with here.alone("gather"):
            running = []
            for n, call in enumerate(calls):
                context = copy_context()
                inner = self._scope(here.inner(f"{group}.{n}"))
                context.run(scopes.enter, self._task, inner)
                running.append(asyncio.create_task(one(call), context=context))
            results = await _together(running, collect=policy == "collect")
            here.passed("gather")
            return results


class TaskOptions:
    """A durable call with its options; see `Task.options`."""

    def __init__(self, durable: Durable, key: str) -> None:
        self._durable = durable
        self._key = key

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Like `Task.run`, known by the key."""
        return await self._durable.run(self._key, function, args, kwargs)


async def _together(running: list[asyncio.Task[Any]], *, collect: bool) -> list[Any]:
    if collect:
        return list(await asyncio.gather(*running, return_exceptions=True))
    try:
        return list(await asyncio.gather(*running))
    except BaseException:
        for task in running:
            task.cancel()
        # What was cancelled still has to record what it has done.
        await asyncio.gather(*running, return_exceptions=True)
        raise


def _in(key: str, path: str) -> bool:
    return not key.startswith(_KEYED) and scopes.path_of(key) == path


def now() -> str:
    """UTC, to the microsecond."""
    return ids.now().isoformat()


def draw() -> float:
    """From 0 to 1, without 1."""
    return random.random()


def make_uuid() -> str:
    """A random UUID."""
    return str(uuid.uuid4())
