"""A run's message history, rebuilt from its state in the shape that a model's API takes.

Styles: `openai` (chat completions), `anthropic` (messages), `plain` (Thought, Action,
Observation). Pure; payloads kept elsewhere come through `load`.

Order: a step's decision stands after the last message that it saw, its results follow, and
messages that came later stand after them (DESIGN.md part 3). The description opens the history
unless a message precedes step 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from journal import parts
from journal.errors import UsageError
from journal.events import Decision
from journal.parts import text
from journal.state import COMPLETED, Call, Message, Step, TaskState
from journal.values import Load, decode_value

Dict = dict[str, Any]


def messages(state: TaskState, style: str = "openai", load: Load | None = None) -> list[Dict]:
    """The history as a list of messages. Raises `UsageError` for an unknown style."""
    if style not in _STYLES:
        raise UsageError(f"no message style {style!r}; there are {', '.join(sorted(_STYLES))}")
    render_message, render_step = _STYLES[style]
    out: list[Dict] = []
    for item in _in_order(state):
        if isinstance(item, str):
            out.append({"role": "user", "content": item})
        elif isinstance(item, Message):
            out.append(render_message(item, load))
        else:
            out.extend(render_step(item, load))
    return out


def _in_order(state: TaskState) -> Iterator[str | Message | Step]:
    waiting = list(state.messages_received.values())
    places = {message.id: place for place, message in enumerate(waiting)}
    # A step whose model failed has nothing to show, and cannot say what it had seen.
    steps = [step for _, step in sorted(state.steps.items()) if step.raw_decision is not None]
    shown = 0
    if not (waiting and (not steps or steps[0].last_message in places)):
        yield state.description
    for step in steps:
        seen = places.get(step.last_message or "", -1) + 1
        yield from waiting[shown:seen]
        shown = max(shown, seen)
        yield step
    yield from waiting[shown:]


NO_RESULT = "No result was recorded."


def _observation(step: Step, call: Call, load: Load | None) -> Any:
    """What the model reads of a call; None while it may still finish. In a completed step each
    call has something: an API refuses a history with a call that nothing answers."""
    if not call.finished:
        return NO_RESULT if step.status == COMPLETED else None
    if call.error is not None:
        return call.error
    value = decode_value(call.result, load)
    return value if parts.has_contents(value) else text(value)


def _pairs(step: Step, decision: Decision, load: Load | None) -> Iterator[tuple[str, Any, Call]]:
    """(id, arguments, call); an id that is missing, or repeats within the step, is replaced by
    one made from step and position, since an API pairs calls and results by it."""
    used: set[str] = set()
    for call in step.all_calls():
        id = call.tool_call_id or ""
        if not id or id in used:
            id = f"call_{step.index}_{call.position}"
        used.add(id)
        arguments = decode_value(call.arguments, load)
        yield id, {} if arguments is None else arguments, call


def _openai_message(message: Message, load: Load | None) -> Dict:
    content = parts.parts(decode_value(message.content, load), parts.openai)
    out: Dict = {"role": message.role, "content": content}
    if message.role == "tool":
        out["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        out["name"] = message.name
    return out


def _openai_step(step: Step, load: Load | None) -> Iterator[Dict]:
    decision = step.decision(load)
    if decision is None:
        return
    pairs = list(_pairs(step, decision, load))
    said: Dict = {"role": "assistant", "content": decision.text}
    if pairs:
        said["tool_calls"] = [
            {
                "id": id,
                "type": "function",
                "function": {
                    "name": call.tool_name,
                    "arguments": text(arguments),
                },
            }
            for id, arguments, call in pairs
        ]
    yield said
    shown: list[Dict] = []
    for id, _, call in pairs:
        observed = _observation(step, call, load)
        if observed is not None:
            yield {"role": "tool", "tool_call_id": id, "content": text(observed)}
        if parts.has_contents(observed):
            shown += parts.parts(observed, parts.openai)
    if shown:
        # A tool's message takes only text there, and nothing may stand between them.
        yield {"role": "user", "content": shown}


def _anthropic_message(message: Message, load: Load | None) -> Dict:
    content = parts.parts(decode_value(message.content, load), parts.anthropic)
    if message.role == "tool":
        block = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}
        return {"role": "user", "content": [block]}
    return {"role": message.role, "content": content}


def _anthropic_step(step: Step, load: Load | None) -> Iterator[Dict]:
    decision = step.decision(load)
    if decision is None:
        return
    pairs = list(_pairs(step, decision, load))
    blocks: list[Dict] = [{"type": "text", "text": decision.text}] if decision.text else []
    blocks += [
        {
            "type": "tool_use",
            "id": id,
            "name": call.tool_name,
            "input": arguments if isinstance(arguments, dict) else {"arguments": arguments},
        }
        for id, arguments, call in pairs
    ]
    yield {"role": "assistant", "content": blocks}
    results: list[Dict] = []
    for id, _, call in pairs:
        observed = _observation(step, call, load)
        if observed is not None:
            content = parts.parts(observed, parts.anthropic)
            result: Dict = {"type": "tool_result", "tool_use_id": id, "content": content}
            if call.error is not None:
                result["is_error"] = True
            results.append(result)
    if results:
        yield {"role": "user", "content": results}


def _plain_message(message: Message, load: Load | None) -> Dict:
    return {"role": message.role, "content": text(decode_value(message.content, load))}


def _plain_step(step: Step, load: Load | None) -> Iterator[Dict]:
    decision = step.decision(load)
    if decision is None:
        return
    lines = [f"Thought: {decision.text}"] if decision.text else []
    observations: list[str] = []
    for _, arguments, call in _pairs(step, decision, load):
        lines.append(f"Action: {call.tool_name}({text(arguments)})")
        observed = _observation(step, call, load)
        if observed is not None:
            observations.append(f"Observation: {observed}")
    yield {"role": "assistant", "content": "\n".join(lines)}
    if observations:
        yield {"role": "user", "content": "\n".join(observations)}


_STYLES = {
    "openai": (_openai_message, _openai_step),
    "anthropic": (_anthropic_message, _anthropic_step),
    "plain": (_plain_message, _plain_step),
}
