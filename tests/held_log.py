"""A log that holds appends back until it is told to go on: what else happens then is the test's."""

from __future__ import annotations

import asyncio

from journal.log import Append, Log
from tests.wrapped_log import WrappedLog


class HeldLog(WrappedLog):
    """It holds what `hold` names. `came` is set while it holds anything."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.came = asyncio.Event()
        self.held: list[tuple[int, Append]] = []
        self._types: set[bytes] = set()
        self._task_id = ""

    def hold(self, *types: str, of: str) -> None:
        """Hold events of these types back, those of the task `of`."""
        self._types, self._task_id = {type.encode() for type in types}, of

    def append(self, partition: int, append: Append) -> None:
        kind = dict(append.headers).get("type")
        if kind in self._types and append.key == self._task_id.encode():
            self.held.append((partition, append))
            self.came.set()
        else:
            super().append(partition, append)

    def go(self) -> None:
        """Append what was held, and hold no more."""
        self._types = set()
        self.came.clear()
        held, self.held = self.held, []
        for partition, append in held:
            super().append(partition, append)
