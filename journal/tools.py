"""What an agent calls: a function, what its repetition would mean, and how it is run.

Knows functions and their arguments; knows no events, tasks or logs.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

from journal.errors import UsageError

EFFECTS = ("none", "idempotent", "once")
KEY_PARAMETER = "idempotency_key"


class Tool:
    """A callable with a name and an effect.

    none         it changes nothing outside: it may run again at will
    idempotent   running it again under the same idempotency key changes nothing more
    once         it must not run twice: found in flight after a crash, it is uncertain

    A function with a parameter `idempotency_key` is given the call's.
    """

    def __init__(self, function: Callable[..., Any], name: str, effect: str) -> None:
        self.function = function
        self.name = name
        self.effect = effect
        self._signature = inspect.signature(function)
        self._keyed = KEY_PARAMETER in self._signature.parameters
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name. Raises `TypeError` where they do not fit the function."""
        if not args:
            return kwargs
        bound = self._signature.bind_partial(*args, **kwargs)
        return dict(bound.arguments)

    async def run(self, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run it once; a synchronous function runs on a thread."""
        if self._keyed:
            kwargs = kwargs | {KEY_PARAMETER: key}
        return await run_function(self.function, args, kwargs)


async def run_function(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a synchronous function (on a thread) or an asynchronous one."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        return await function(*args, **kwargs)
    result = await asyncio.to_thread(function, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def tool(*, effect: str = "idempotent", name: str | None = None) -> Callable[..., Tool]:
    """Declare a function a tool. Raises `UsageError` for an unknown effect."""
    if effect not in EFFECTS:
        raise UsageError(f"no tool effect {effect!r}; there are {', '.join(EFFECTS)}")
    return lambda function: Tool(function, name or function.__name__, effect)


def as_tool(function: Callable[..., Any] | Tool) -> Tool:
    """A plain function is a tool whose effect is idempotent."""
    if isinstance(function, Tool):
        return function
    name = getattr(function, "__name__", type(function).__name__)
    return Tool(function, name, "idempotent")
