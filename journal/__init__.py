"""Step Journal: every step of an agent an immutable event, every crash a resumption.

What stands here is imported when it is first asked for, so that the commands' `--help` need not
wait for all of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from journal import errors, redact
    from journal.client import Journal, connect
    from journal.content import Content
    from journal.decision import Decision, ToolCall, Usage
    from journal.ids import new_task_id
    from journal.task import Task
    from journal.tools import Happened, tool

__all__ = [
    "Content",
    "Decision",
    "Happened",
    "Journal",
    "Task",
    "ToolCall",
    "Usage",
    "connect",
    "errors",
    "new_task_id",
    "redact",
    "tool",
]

_MODULES = ("errors", "redact")
_HOMES = {
    "client": ("Journal", "connect"),
    "content": ("Content",),
    "decision": ("Decision", "ToolCall", "Usage"),
    "ids": ("new_task_id",),
    "task": ("Task",),
    "tools": ("Happened", "tool"),
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"journal.{name}")
    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"journal.{home}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
