"""OpenAI's chat messages with tool calls, in the containers that people keep them in.

A list of messages is one conversation; so is an object with `messages`, one a file or one a
line; so is a file with one message a line. A list of tau-bench's records (`traj`, `task_id`,
`trial`, `reward`) is one conversation a record, completed, with its reward as a result.

Arguments are parsed where the string that the model wrote is JSON, and else kept as that
string. The older `function_call` and role `function` are read too. A run id is
`conversation_id`, `session_id`, `thread_id`, `id`, or tau-bench's task and trial; since none of
them tells two runs of one benchmark apart, a digest stands behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from journal import events
from journal.importers.builder import RunBuilder
from journal.importers.model import ImportedRun, Report, digest_ids
from journal.importers.reading import (
    Dict,
    Malformed,
    ReportAt,
    at_line,
    count,
    maybe_dict,
    maybe_list,
    maybe_str,
    moment,
    need_dict,
    need_list,
    parsed,
)

FORMAT = "openai"
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_RUN_IDS = ("conversation_id", "session_id", "thread_id", "id")


def detect(value: Any) -> bool:
    """Whether this is a conversation, or a record that holds one."""
    if isinstance(value, dict):
        if "trajectory_format" in value:
            return False
        value = value["traj"] if "traj" in value else value.get("messages")
    return bool(isinstance(value, list) and value and is_message(value[0])) and not _is_mini(value)


def is_message(value: Any) -> bool:
    """Whether this is a single chat message, such as stands on a line of its own."""
    return (
        isinstance(value, dict)
        and value.get("role") in _ROLES
        and "type" not in value
        and ("content" in value or "tool_calls" in value or "function_call" in value)
    )


def _is_mini(messages: list[Any]) -> bool:
    """mini-swe-agent keeps plain chat messages, its observations said by the user: another
    format, although it has the same shape."""
    returned = False
    for message in messages:
        if not isinstance(message, dict):
            continue
        if message.get("role") in ("tool", "function") or message.get("tool_calls"):
            return False
        content = message.get("content")
        returned |= isinstance(content, str) and content.startswith("<returncode>")
    return returned


def read(value: Any, report: Report) -> Iterator[ImportedRun]:
    """The conversation in one list of messages or one record. Raises `Malformed`."""
    record: Dict = value if isinstance(value, dict) else {}
    if "traj" in record:
        run_id = [str(record[key]) for key in ("task_id",) if record.get(key) is not None]
        run_id += [f"trial-{record[key]}" for key in ("trial",) if record.get(key) is not None]
        messages = need_list(record["traj"], "traj")
    else:
        ids = [record[key] for key in _RUN_IDS if isinstance(record.get(key), str | int)]
        run_id = [str(id) for id in ids[:1] if id != ""]
        messages = need_list(record["messages"], "messages") if record else value
    builder = RunBuilder()
    for i, message in enumerate(messages):
        _message(builder, message, f"message {i}", report)
    if not builder.items:
        return
    run = builder.run(FORMAT)
    run.task_id, run.earlier_ids = digest_ids(run.items, FORMAT, *run_id)
    run.conversation_id = ":".join(run_id) or None
    run.request_model = (
        maybe_str(record.get("model"), "model", report) if record else None
    ) or run.request_model
    if "traj" in record:
        run.status = "completed"
        run.final_answer = _last_text(run)
        if record.get("reward") is not None:
            builder.value("reward", record["reward"])
    yield run


def read_lines(lines: Iterator[tuple[int, Any]], report: ReportAt) -> Iterator[ImportedRun]:
    """The one conversation of a file with a message on each line."""
    builder = RunBuilder()
    for number, message in lines:
        _message(builder, message, "message", at_line(report, number))
    if builder.items:
        run = builder.run(FORMAT)
        run.task_id, run.earlier_ids = digest_ids(run.items, FORMAT)
        yield run


def _message(builder: RunBuilder, value: Any, path: str, report: Report) -> None:
    try:
        message = need_dict(value, path)
        role = message.get("role")
        if role not in _ROLES:
            raise Malformed(f"{path}.role is not one of {', '.join(_ROLES)}")
    except Malformed as error:
        report(f"{error}; skipped")
        return
    at = moment(message.get("timestamp", message.get("created_at")), f"{path}.timestamp", report)
    source_id = maybe_str(message.get("id"), f"{path}.id", report)
    if role == "assistant":
        builder.decide(_decision(message, source_id, path, report), at)
    elif role in ("tool", "function"):
        builder.result(
            message.get("content"),
            call_id=maybe_str(message.get("tool_call_id"), f"{path}.tool_call_id", report),
            name=maybe_str(message.get("name"), f"{path}.name", report),
            at=at,
            source_id=source_id,
        )
    elif message.get("content") is None:
        report(f"{path} has no content; skipped")
    else:
        role = "system" if role == "developer" else role
        name = maybe_str(message.get("name"), f"{path}.name", report)
        builder.message(role, message["content"], at, source_id, name=name)


def _decision(message: Dict, id: str | None, path: str, report: Report) -> events.Decision:
    calls = []
    for i, value in enumerate(maybe_list(message.get("tool_calls"), f"{path}.tool_calls", report)):
        where = f"{path}.tool_calls[{i}]"
        call = maybe_dict(value, where, report)
        made = maybe_dict(call.get("function", call.get("custom")), f"{where}.function", report)
        calls.append(_call(made, maybe_str(call.get("id"), f"{where}.id", report), where, report))
    older = maybe_dict(message.get("function_call"), f"{path}.function_call", report)
    if older:
        calls.append(_call(older, None, f"{path}.function_call", report))
    content, refusal = message.get("content"), message.get("refusal")
    text = content if isinstance(content, str) else _text(content)
    if text is None and isinstance(refusal, str):
        text = refusal
    finish = maybe_str(message.get("finish_reason"), f"{path}.finish_reason", report)
    usage = maybe_dict(message.get("usage"), f"{path}.usage", report)
    reasoning = message.get("reasoning_content", message.get("reasoning"))
    return events.Decision(
        text=text,
        tool_calls=calls,
        usage=usage_of(usage, f"{path}.usage", report) if usage else None,
        reasoning=reasoning if isinstance(reasoning, str) else None,
        content=None if content is None or isinstance(content, str) else content,
        response_model=maybe_str(message.get("model"), f"{path}.model", report),
        finish_reasons=[finish] if finish else None,
        response_id=id,
    )


def _call(made: Dict, id: str | None, path: str, report: Report) -> events.ToolCall:
    name = maybe_str(made.get("name"), f"{path}.name", report)
    if name is None:
        report(f"{path} has no name")
    return events.ToolCall(name or "", parsed(made.get("arguments", made.get("input"))), id)


def usage_of(usage: Dict, path: str, report: Report) -> events.Usage:
    """OpenAI's counts; its input includes what was cached, as ours does."""

    def at(outer: Dict, *names: str) -> int:
        found = next((name for name in names if outer.get(name) is not None), names[0])
        return count(outer.get(found), f"{path}.{found}", report)

    inputs = maybe_dict(usage.get("prompt_tokens_details"), path, report)
    outputs = maybe_dict(usage.get("completion_tokens_details"), path, report)
    return events.Usage(
        input_tokens=at(usage, "prompt_tokens", "input_tokens"),
        output_tokens=at(usage, "completion_tokens", "output_tokens"),
        cache_read_input_tokens=at(inputs, "cached_tokens"),
        reasoning_output_tokens=at(outputs, "reasoning_tokens"),
    )


def _text(content: Any) -> str | None:
    parts = content if isinstance(content, list) else []
    texts = [p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str)]
    return "\n".join(texts) or None


def _last_text(run: ImportedRun) -> str | None:
    made = [item.made for item in run.items if hasattr(item, "made")]
    return made[-1].text if made else None
