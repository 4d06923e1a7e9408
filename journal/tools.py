"""What an agent calls: a function, what its repetition would mean, and how it is run.

Knows functions and their arguments; knows no events, tasks or logs.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any, overload

from msgspec import Struct
from tenacity import RetryCallState, wait_exponential, wait_random

from journal.errors import UsageError

EFFECTS = ("none", "idempotent", "once")
UNCERTAIN_POLICIES = ("ask", "retry", "fail")
KEY_PARAMETER = "idempotency_key"

Errors = type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]
"""Which exceptions: one type, several, or a predicate."""


class Happened(Struct, frozen=True):
    """What a check of an uncertain call found: it did happen, with this result."""

    result: Any = None


class Tool:
    """A callable with a name, an effect and a policy. Made by `tool`."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        effect: str,
        *,
        retries: int = 0,
        timeout_s: float | None = None,
        retry_on: Errors = Exception,
        never_on: Errors = (),
        backoff_s: float = 0.5,
        backoff_max_s: float = 30.0,
        on_uncertain: str | Callable[..., Any] | None = None,
    ) -> None:
        self.function = function
        self.name = name
        self.effect = effect
        self.retries = retries
        self.timeout_s = timeout_s
        self.on_uncertain = on_uncertain
        self._retry_on = retry_on
        self._never_on = never_on
        self._backoff = wait_exponential(backoff_s, backoff_max_s) + wait_random(0, backoff_s / 2)
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
        """Run it once; a synchronous function runs on a thread.

        Raises `TimeoutError` after `timeout_s`. A thread cannot be stopped: what a synchronous
        function still does then, it does unseen.
        """
        if self._keyed:
            kwargs = kwargs | {KEY_PARAMETER: key}
        async with asyncio.timeout(self.timeout_s):
            return await run_function(self.function, args, kwargs)

    def running(self, through: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Tool:
        """The same tool, its functions run the way that `through` makes of them."""
        other = copy.copy(self)
        other.function = through(self.function)
        if callable(self.on_uncertain):
            other.on_uncertain = through(self.on_uncertain)
        return other

    def may_retry(self, error: BaseException, failures: int) -> bool:
        """Whether to run it again after so many failures, the last of them `error`."""
        return (
            failures <= self.retries
            and matches(error, self._retry_on)
            and not matches(error, self._never_on)
        )

    def backoff_s(self, failures: int, error: BaseException | None = None) -> float:
        """Seconds to wait after so many failures, the last of them `error`: exponential, with
        jitter, and no less than its `retry_after_s`."""
        state = RetryCallState(_NOBODY, None, (), {})
        state.attempt_number = failures
        return max(self._backoff(state), getattr(error, "retry_after_s", None) or 0.0)


_NOBODY: Any = None


def matches(error: BaseException, errors: Errors) -> bool:
    """Whether an exception is one of those."""
    if isinstance(errors, type | tuple):
        return isinstance(error, errors)
    return errors(error)


async def run_function(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a synchronous function (on a thread) or an asynchronous one."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        return await function(*args, **kwargs)
    result = await asyncio.to_thread(plain_call, function, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def plain_call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The call, for a future to hold what it raises: a `StopIteration`, which none can hold,
    becomes the `RuntimeError` that a coroutine makes of it."""
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    effect: str = ...,
    name: str | None = ...,
    retries: int = ...,
    timeout: float | None = ...,
    retry_on: Errors | None = ...,
    never_on: Errors = ...,
    backoff: float = ...,
    backoff_max: float = ...,
    on_uncertain: str | Callable[..., Any] | None = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: str = "idempotent",
    name: str | None = None,
    retries: int = 0,
    timeout: float | None = None,
    retry_on: Errors | None = None,
    never_on: Errors = (),
    backoff: float = 0.5,
    backoff_max: float = 30.0,
    on_uncertain: str | Callable[..., Any] | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Declare a function, sync or async, a tool: `@tool`, or `@tool(…)` with a policy.

    effect        `none`: it changes nothing outside, and may run again at will; `idempotent`:
                  running it again under the same idempotency key changes nothing more; `once`: it
                  must not run twice. A function with a parameter `idempotency_key` is given it,
                  but for one that `task.run` was called with
    retries       how often it may run again after a failure; in a step counted across crashes
    timeout       seconds that one run may take. A `once` tool that takes longer is uncertain
    retry_on      the exceptions after which it may: types, or a predicate; by default all, but
                  none of a `once` tool
    never_on      permanent errors, which are never retried, whatever `retry_on` says
    backoff       seconds before the first retry; doubled for each further one, up to
                  `backoff_max`, with jitter. An exception whose attribute `retry_after_s` asks for
                  more gets it
    on_uncertain  what to do with a `once` call that was in flight when its worker was lost: `ask`
                  a person (`task.ask`), `retry`, `fail`, or a function that is called like the tool
                  and finds out: it returns `Happened(result)`, or None where it did not happen. By
                  default `step.call` raises `CallUncertain`

    Raises `UsageError`.
    """
    if effect not in EFFECTS:
        raise UsageError(f"no tool effect {effect!r}; there are {', '.join(EFFECTS)}")
    if isinstance(on_uncertain, str) and on_uncertain not in UNCERTAIN_POLICIES:
        policies = ", ".join(UNCERTAIN_POLICIES)
        raise UsageError(f"on_uncertain is {policies}, or a function; not {on_uncertain!r}")
    if retries < 0:
        raise UsageError(f"retries count from 0; not {retries}")
    if retry_on is None:
        retry_on = () if effect == "once" else Exception
        if effect == "once" and retries:
            raise UsageError(
                "a tool that must not run twice is retried only after errors that say that it has "
                "not run: name them with retry_on"
            )
    policy = functools.partial(
        Tool,
        effect=effect,
        retries=retries,
        timeout_s=timeout,
        retry_on=retry_on,
        never_on=never_on,
        backoff_s=backoff,
        backoff_max_s=backoff_max,
        on_uncertain=on_uncertain,
    )

    def declare(function: Callable[..., Any]) -> Tool:
        if not callable(function):
            raise UsageError(f"@tool takes a function, not {function!r}; options have names")
        called = getattr(function, "__name__", type(function).__name__)
        return policy(function, name or called)

    return declare if function is None else declare(function)


def as_tool(function: Callable[..., Any] | Tool) -> Tool:
    """A plain function is a tool whose effect is idempotent."""
    return function if isinstance(function, Tool) else tool(function)
