"""An agent without `await` as the kit takes one: it runs on a thread, as it would in its process.

Knows `journal.sync` and lives; knows nothing of points and counted tools.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any

from journal import sync
from journal.client import Journal
from journal.sync_loop import LOOP
from journal.testing.lives import Agent, current_life


def synchronous(agent: Callable[[sync.Journal], Any]) -> Agent:
    """The agent, a function of an open `journal.sync.Journal`, for `run_with_crashes` and
    `crash_everywhere`.

        await crash_everywhere(synchronous(agent))

    A thread that the agent starts belongs to it where it runs in a copy of its context, as those of
    `asyncio.to_thread` do: `threading.Thread(target=contextvars.copy_context().run, args=(work,))`.
    """

    async def run(j: Journal) -> Any:
        ended: Future[Any] = Future()
        context = copy_context()
        context.run(LOOP.set, asyncio.get_running_loop())

        def live() -> None:
            try:
                ended.set_result(context.run(agent, sync.Journal(j)))
            except BaseException as error:
                ended.set_exception(error)

        ended.set_running_or_notify_cancel()  # from now on it cannot be cancelled
        threading.Thread(target=live, name="agent-under-test", daemon=True).start()
        waited = asyncio.wrap_future(ended)
        life = current_life()
        if life is not None:
            life.on_thread(waited)
        return await asyncio.shield(waited)

    return run
