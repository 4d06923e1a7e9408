"""SWE-agent's `.traj` files: one JSON document a run.

`trajectory` lists the steps (thought, action, observation); `history` has the chat, and in it
what was said before the first step and, where the model called functions, names, ids and
arguments of the calls. A file with a history alone is read from that. The action of the older,
textual style is a command line: a call of the command's name with the line as its argument.

An instance is replayed many times under one id, so a digest stands behind it; the id is
`replay_config`'s, or else the file's name, which SWE-agent makes from it. `info.exit_status`
ends the run: `submitted…` completes it with the submission, anything else fails it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from journal import events
from journal.importers.builder import RunBuilder
from journal.importers.model import ImportedRun, Report, digest_ids, label, text_of
from journal.importers.reading import (
    Dict,
    maybe_dict,
    maybe_list,
    maybe_str,
    parsed,
)

FORMAT = "swe-agent"
_NEAR = 3
_COMMAND = re.compile(r"\s*([A-Za-z_][\w.-]*)(?=\s|$)")


def detect(value: Any) -> bool:
    """Whether this document is a run of SWE-agent."""
    if not isinstance(value, dict):
        return False
    steps, history = value.get("trajectory"), value.get("history")
    if isinstance(steps, list) and ("info" in value or isinstance(history, list)):
        return not steps or (isinstance(steps[0], dict) and "action" in steps[0])
    first = history[0] if isinstance(history, list) and history else None
    return isinstance(first, dict) and "role" in first and "agent" in first


def read(document: Dict, file_name: str, report: Report) -> Iterator[ImportedRun]:
    """The run, if there is anything in it."""
    builder = RunBuilder()
    history = _dicts(document.get("history"), "history", report)
    steps = _dicts(document.get("trajectory"), "trajectory", report)
    if steps:
        _from_steps(builder, steps, history, report)
    else:
        _from_history(builder, history, report)
    if not builder.items:
        return
    config = document.get("replay_config")
    config = maybe_dict(parsed(config), "replay_config", report)
    problem = maybe_dict(config.get("problem_statement"), "problem_statement", report)
    agent = maybe_dict(config.get("agent"), "replay_config.agent", report)
    model = maybe_dict(agent.get("model"), "replay_config.agent.model", report)
    instance = maybe_str(problem.get("id"), "problem_statement.id", report)
    if not instance and file_name.endswith(".traj"):
        # A file name need not be UTF-8; an id must.
        stem = PurePath(file_name).name.removesuffix(".traj")
        instance = stem.encode(errors="replace").decode()
    run = builder.run(FORMAT, label(problem.get("text")))
    parts = [instance] if instance else []
    run.task_id, run.earlier_ids = digest_ids(run.items, FORMAT, *parts)
    run.conversation_id = instance or None
    run.agent_name = FORMAT
    run.request_model = maybe_str(model.get("name"), "replay_config.agent.model.name", report)
    _end(run, builder, maybe_dict(document.get("info"), "info", report), report)
    yield run


def _end(run: ImportedRun, builder: RunBuilder, info: Dict, report: Report) -> None:
    status = maybe_str(info.get("exit_status"), "info.exit_status", report)
    submission = info.get("submission")
    if status and status.startswith("submitted"):
        run.status, run.final_answer = "completed", submission
    elif status:
        run.status, run.error_type = "failed", status
        run.error = f"SWE-agent ended with {status}"
        if submission:
            builder.value("submission", submission)
    if info.get("model_stats") is not None:
        builder.value("model_stats", info["model_stats"])


def _from_steps(
    builder: RunBuilder, steps: list[Dict], history: list[Dict], report: Report
) -> None:
    replies = [entry for entry in history if entry.get("role") == "assistant" and _own(entry)]
    for entry in history:
        if entry in replies[:1]:
            break
        _say(builder, entry, report)
    for i, step in enumerate(steps):
        where = f"trajectory[{i}]"
        action = maybe_str(step.get("action"), f"{where}.action", report) or ""
        reply = next((each for each in replies[:_NEAR] if _same(each.get("action"), action)), {})
        if reply:
            del replies[: replies.index(reply) + 1]
        thought = maybe_str(step.get("thought"), f"{where}.thought", report)
        text = thought or maybe_str(step.get("response"), f"{where}.response", report)
        _decide(builder, text, action, reply, where, report)
        observation = step.get("observation")
        calls = builder.last.made.tool_calls if builder.last else []
        if calls or observation not in (None, ""):
            builder.result(observation)


def _from_history(builder: RunBuilder, history: list[Dict], report: Report) -> None:
    for i, entry in enumerate(history):
        if entry.get("role") == "assistant" and _own(entry):
            where = f"history[{i}]"
            action = maybe_str(entry.get("action"), f"{where}.action", report) or ""
            text = entry.get("thought") or text_of(entry.get("content"))
            _decide(
                builder, maybe_str(text, f"{where}.thought", report), action, entry, where, report
            )
        elif entry.get("role") == "tool":
            ids = maybe_list(entry.get("tool_call_ids"), f"history[{i}].tool_call_ids", report)
            id = ids[0] if ids and isinstance(ids[0], str) else None
            builder.result(entry.get("content"), call_id=id)
        elif builder.last is not None and builder.last.made.tool_calls and _own(entry):
            builder.result(entry.get("content"))
        else:
            _say(builder, entry, report)


def _decide(
    builder: RunBuilder, text: str | None, action: str, reply: Dict, path: str, report: Report
) -> None:
    calls = []
    for i, value in enumerate(maybe_list(reply.get("tool_calls"), f"{path}.tool_calls", report)):
        where = f"{path}.tool_calls[{i}]"
        call = maybe_dict(value, where, report)
        made = maybe_dict(call.get("function"), f"{where}.function", report)
        name = maybe_str(made.get("name"), f"{where}.name", report) or ""
        id = maybe_str(call.get("id"), f"{where}.id", report)
        calls.append(events.ToolCall(name, parsed(made.get("arguments")), id))
    if not calls and action.strip():
        command = _COMMAND.match(action)
        name = command[1] if command else "bash"
        calls = [events.ToolCall(name, {"command": action})]
    builder.decide(events.Decision(text=text, tool_calls=calls))


def _say(builder: RunBuilder, entry: Dict, report: Report) -> None:
    """What stands in the history before the first step; a demonstration is the system's."""
    role = entry.get("role")
    if entry.get("content") is None or not isinstance(role, str):
        report("an entry of the history has no role or no content; skipped")
        return
    if role != "user" or not _own(entry):
        role = "system"
    builder.message(role, entry["content"])


def _own(entry: Dict) -> bool:
    return not entry.get("is_demo")


def _same(one: Any, other: str) -> bool:
    return isinstance(one, str) and one.strip() == other.strip()


def _dicts(value: Any, path: str, report: Report) -> list[Dict]:
    found = []
    for i, each in enumerate(maybe_list(value, path, report)):
        if isinstance(each, dict):
            found.append(each)
        else:
            report(f"{path}[{i}] is no object; skipped")
    return found
