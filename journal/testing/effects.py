"""What really ran, in which life of the agent, and whether the log already knew its outcome.

Knows tools and lives; knows no logs.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from journal import scope as scopes
from journal.testing.lives import Life, current_life
from journal.tools import KEY_PARAMETER, Tool, as_tool

_STEP = re.compile(r"^step (\d+)/")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(eq=False)
class Run:
    """One run of a counted tool. `step` is the step that it was called in, `life` counts from 1;
    outside of a harness both may be None. `ended_at` is how much that life had appended by then."""

    tool: str
    effect: str
    arguments: dict[str, Any]
    step: int | None
    life: Life | None
    ended_at: int | None = None

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        where = "" if self.step is None else f" of step {self.step}"
        return f"{self.tool}({_ADDRESS.sub('', arguments)}){where}"

    @property
    def may_repeat(self) -> bool:
        """Whether its life ended before anything could be written about it, and its effect allows
        that it runs again."""
        life = self.life
        if life is None or life.dead is None or self.effect == "once":
            return False
        return self.ended_at is None or life.written <= self.ended_at


class Counted(Tool):
    """A tool that counts its runs. Made by `counted`."""

    def __init__(self, used: Tool) -> None:
        # All that the tool is, its policy too.
        self.__dict__.update(vars(used))
        self.history: list[Run] = []
        inner = used.function
        if inspect.iscoroutinefunction(inner):

            async def asynchronous(*args: Any, **kwargs: Any) -> Any:
                run = self._began(args, kwargs)
                try:
                    return await inner(*args, **kwargs)
                finally:
                    _ended(run)

            self.function = functools.wraps(inner)(asynchronous)
        else:

            def synchronous(*args: Any, **kwargs: Any) -> Any:
                run = self._began(args, kwargs)
                try:
                    return inner(*args, **kwargs)
                finally:
                    _ended(run)

            self.function = functools.wraps(inner)(synchronous)

    @property
    def runs(self) -> int:
        """How often it ran, in all lives."""
        return len(self.history)

    def reset(self) -> None:
        """Begin to count anew."""
        self.history.clear()

    def _began(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
        life = current_life()
        if life is not None and life.dead is not None:
            # A dead process runs nothing, not even in its `finally`.
            raise life.dead
        arguments = self.arguments(args, kwargs)
        arguments = {name: arguments[name] for name in arguments if name != KEY_PARAMETER}
        run = Run(self.name, self.effect, arguments, _step(), life)
        self.history.append(run)
        if life is not None:
            life.runs.append(run)
        return run


def counted(tool: Callable[..., Any] | Tool) -> Counted:
    """The same tool, or function, or model, counting its runs.

        charge = testing.counted(charge)
        ...
        assert charge.runs == 1

    `history` has the runs one by one: arguments, step, life.
    """
    return Counted(as_tool(tool))


def _ended(run: Run) -> None:
    if run.life is not None and run.life.dead is None:
        run.ended_at = run.life.appends


def _step() -> int | None:
    """The step that the running code is in, of the task that was entered last."""
    for path in reversed(scopes.paths()):
        found = _STEP.match(path)
        if found:
            return int(found[1])
    return None


def reruns(runs: Iterable[Run], expected: Mapping[str, int]) -> list[str]:
    """What ran more often than it may, a line each. `expected` is how often each runs without a
    crash, where that is known; one that a crash interrupted may run once more for it."""
    by_call: dict[str, list[Run]] = {}
    for run in runs:
        by_call.setdefault(str(run), []).append(run)
    lines = []
    for call, all_runs in by_call.items():
        lives = [run.life.number for run in all_runs if run.life is not None]
        in_one = max(Counter(lives).values(), default=1)
        allowed = max(expected.get(call, 1), in_one) + sum(run.may_repeat for run in all_runs[:-1])
        if len(all_runs) > allowed:
            why = "is declared once" if all_runs[0].effect == "once" else "was not interrupted"
            numbers = ", ".join(str(number) for number in lives)
            lines.append(f"{call} ran {len(all_runs)} times, in lives {numbers}, though it {why}")
    return lines
