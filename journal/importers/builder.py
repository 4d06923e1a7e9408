"""Puts the messages, decisions and results of one run in order, for every granular format.

Three rules make the items of a file a beginning of the items of the same file grown longer:
only calls of the last decision are open; a decision, or a message while nothing is open, ends
the step before it; and a result goes to the first unfinished call of its id (so an id may be
reused for ever), or, where there is none, stands as a message of role `tool`.

Knows no source format and no log.
"""

from __future__ import annotations

from typing import Any

from journal import events
from journal.importers.model import (
    Decision,
    Failure,
    ImportedRun,
    Item,
    Message,
    Result,
    StepDone,
    Value,
    label,
)


class RunBuilder:
    """Collects one run. With `growing`, the last decision of a file counts as unsettled: the
    source writes a decision piece by piece."""

    def __init__(self, *, growing: bool = False) -> None:
        self.items: list[Item] = []
        self.last: Decision | None = None
        """The decision whose step has not ended."""
        self._growing = growing
        self._finished: set[int] = set()
        self._next_step = 0
        self._attempt = 1
        self._first_at: str | None = None
        self._latest_at: str | None = None
        self._last_place = 0

    def message(
        self,
        role: str,
        content: Any,
        at: str | None = None,
        source_id: str | None = None,
        tool_call_id: str | None = None,
        name: str | None = None,
    ) -> None:
        if self.last is not None and not self._open():
            self._end_step()
        self._saw(at)
        self.items.append(Message(role, content, at, source_id, tool_call_id, name))

    def decide(self, made: events.Decision, at: str | None = None) -> None:
        self._end_step()
        self._saw(at)
        self.last = Decision(self._next_step, made, at, self._attempt)
        self._last_place = len(self.items)
        self._finished.clear()
        self._next_step += 1
        self._attempt = 1
        self.items.append(self.last)

    def fail(self, error_type: str, error: str, at: str | None = None) -> None:
        """The model gave an error instead of a decision."""
        self._end_step()
        self._saw(at)
        self.items.append(Failure(self._next_step, self._attempt, error_type, error, at))
        self._attempt += 1

    def result(
        self,
        result: Any = None,
        *,
        error: str | None = None,
        error_type: str | None = None,
        call_id: str | None = None,
        name: str | None = None,
        at: str | None = None,
        source_id: str | None = None,
    ) -> None:
        """A result of the call with this id; without one, of the first open call of this name,
        or of any name where that is not known either."""
        position = self._place(call_id, name)
        if position is None or self.last is None:
            content = result if error is None else error
            self.message("tool", content, at, source_id, call_id, name)
            return
        self._saw(at)
        self._finished.add(position)
        index = self.last.step_index
        self.items.append(Result(index, position, result, error, error_type, at))

    def value(self, name: str, value: Any) -> None:
        self.items.append(Value(name, value))

    def run(self, source_format: str, description: str | None = None) -> ImportedRun:
        """The run so far; its task id is for the format to set. To be called once, after the
        last message and before any `value`."""
        settled = len(self.items)
        if self.last is not None:
            if self._growing:
                settled = self._last_place
            if not self._open():
                self._end_step()
                settled = settled if self._growing else len(self.items)
        said = [item for item in self.items if isinstance(item, Message) and item.role == "user"]
        made = [item.made for item in self.items if isinstance(item, Decision)]
        models = [each.request_model or each.response_model for each in made]
        return ImportedRun(
            task_id="",
            description=description
            or next(filter(None, (label(message.content) for message in said)), "")
            or f"A run imported from {source_format}",
            source_format=source_format,
            items=self.items,
            settled=settled,
            request_model=next(filter(None, models), None),
            started_at=self._first_at,
            ended_at=self._latest_at,
        )

    def _saw(self, at: str | None) -> None:
        # The last time in the file's order, not the greatest: clocks run backwards.
        self._first_at = self._first_at or at
        self._latest_at = at or self._latest_at

    def _open(self) -> bool:
        return self.last is not None and len(self._finished) < len(self.last.made.tool_calls)

    def _end_step(self) -> None:
        if self.last is not None:
            self.items.append(StepDone(self.last.step_index, self._latest_at))
            self.last = None

    def _place(self, call_id: str | None, name: str | None) -> int | None:
        if self.last is None:
            return None
        for position, call in enumerate(self.last.made.tool_calls):
            if position in self._finished:
                continue
            if call_id is not None:
                if call.id == call_id:
                    return position
            elif name is None or call.name == name:
                return position
        return None
