"""Where in a task a durable call stands: what names it, whatever order things complete in.

A call is known by scope, function, digest of the arguments and occurrence (DESIGN.md part 5).
Within one scope calls follow each other, so that occurrences are counted in the same order on
every replay; what runs at the same time does so in scopes of its own. Pure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar, Token

from journal.errors import ReplayDiverged, UsageError
from journal.events import ValueRecorded


class Scope:
    """One place in which calls follow each other. `recorded` are the values that were recorded
    in it, oldest first; the root's `path` is empty."""

    def __init__(self, path: str = "", recorded: Iterable[ValueRecorded] = ()) -> None:
        self.path = path
        self._left = {value.key: value for value in recorded}
        self._occurrences: dict[str, int] = {}
        self._running: str | None = None

    def inner(self, name: str) -> str:
        """The path of a scope inside this one."""
        return f"{self.path}{name}/"

    def place(self, name: str) -> str:
        """`name` with the number of its next occurrence here, from 1."""
        return f"{self.path}{name}:{self._occurrences.get(name, 0) + 1}"

    def passed(self, name: str) -> None:
        """That occurrence is over. One that failed is not: it has recorded nothing, and when it
        is tried again it is the same one, in this process as after a crash."""
        self._occurrences[name] = self._occurrences.get(name, 0) + 1

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """A call while it runs. Raises `UsageError` where another runs in this scope."""
        if self._running is not None:
            raise UsageError(
                f"{name} began while {self._running} ran: what runs at the same time needs "
                f"task.gather(…), a task.scope(name), or task.options(key=…)"
            )
        self._running = name
        try:
            yield
        finally:
            self._running = None

    def replayed(self, key: str) -> None:
        """A recorded value has been asked for."""
        self._left.pop(key, None)

    def check_new(self, name: str, digest: str) -> None:
        """Whether something new may be asked for here: not while recorded values are left, for
        then the code has changed. Raises `ReplayDiverged`."""
        for left in self._left.values():
            raise ReplayDiverged(
                f"recorded next in scope {self.path or 'of the task'}: {left.function} with "
                f"arguments {left.arguments_digest}; now asked for: {name} with {digest}; has "
                f"the code changed since?"
            )


def path_of(key: str) -> str:
    """The path of the scope that a value's key was made in."""
    return key[: key.rfind("/") + 1]


_current: ContextVar[dict[int, Scope]] = ContextVar("journal-scopes", default={})  # noqa: B039
"""Task object (by `id`) to the scope that the running code is in. Never changed in place."""


def current(task: object) -> Scope | None:
    """The scope of `task` that this code runs in; None outside of all but the root."""
    return _current.get().get(id(task))


def paths() -> list[str]:
    """The paths of the scopes that this code runs in, one a task, outermost first."""
    return [scope.path for scope in _current.get().values()]


def enter(task: object, scope: Scope) -> Token[dict[int, Scope]]:
    """From here on this context runs in `scope`."""
    return _current.set({**_current.get(), id(task): scope})


@contextlib.contextmanager
def entered(task: object, scope: Scope) -> Iterator[None]:
    """Run what is inside in `scope`."""
    token = enter(task, scope)
    try:
        yield
    finally:
        _current.reset(token)
