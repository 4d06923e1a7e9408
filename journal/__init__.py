"""Step Journal: every step of an agent an immutable event, every crash a resumption."""

from journal import redact
from journal.connect import Journal, connect
from journal.content import Content
from journal.events import Decision, ToolCall, Usage
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
    "new_task_id",
    "redact",
    "tool",
]
