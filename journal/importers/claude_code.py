"""Claude Code's session files: JSON Lines, one entry a line, appended while the session runs.

What it makes of them:

- A model's message is written one content block a line, and the results of its first tool
  calls may stand between those lines. Lines of one `message.id` are one decision; the usage
  that each of them repeats counts once, as the last line has it.
- A resumed session may write a line again (same `uuid`); only the first counts.
- Lines of a side chain are a sub-agent's: a run of its own, whether they fill a file of their
  own or stand among the session's. File order is the order: clocks run backwards in these files.
- Lines that are `isMeta` or a compaction's summary were put in by the program, not said by the
  user: role `system`. Snapshots, progress, queue operations, titles and summaries are about the
  session, not part of it, and are left out, and so are `toolUseResult` (the same result as
  `tool_result`, for the terminal) and the signatures of thinking blocks.
- An API error that the program shows as an assistant's message is a failure of the model.

A session never says that it is over: the run is `running`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from journal import events
from journal.importers.builder import RunBuilder
from journal.importers.model import (
    ImportedRun,
    Message,
    Report,
    digest_ids,
    label,
    plain_id,
    text_of,
)
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
)

FORMAT = "claude-code"
_SAID = ("user", "assistant")
_BY_PROGRAM = "[Request interrupted by user"
_ABOUT_THE_SESSION = ("summary", "file-history-snapshot")


def detect(value: Any) -> bool:
    """Whether this value is a line of a session file."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if value["type"] in _SAID:
        return "message" in value and ("sessionId" in value or "parentUuid" in value)
    if value["type"] in _ABOUT_THE_SESSION:
        return "leafUuid" in value or "snapshot" in value
    return "sessionId" in value and "timestamp" in value


def read(lines: Iterator[tuple[int, Any]], report: ReportAt) -> Iterator[ImportedRun]:
    """The runs of one file: the session's, and one for each side chain in it."""
    session: str | None = None
    chains: dict[str | None, _Chain] = {}
    seen: dict[str, Any] = {}
    roots: dict[str, str] = {}
    for number, entry in lines:
        tell = at_line(report, number)
        if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
            tell("no entry of a session: no object with a `type`; line skipped")
            continue
        uuid = maybe_str(entry.get("uuid"), "uuid", tell)
        agent = _agent(entry, uuid, roots)
        if entry["type"] not in _SAID:
            continue
        try:
            message = need_dict(entry.get("message"), "message")
            if message.get("content") is None:
                raise Malformed("message has no content")
            if uuid is not None:
                if uuid in seen:
                    if seen[uuid] != message.get("content"):
                        tell(f"uuid {uuid} again, with another content; line skipped")
                    continue
                seen[uuid] = message["content"]
            if session is None:
                session = maybe_str(entry.get("sessionId"), "sessionId", tell) or None
            chain = chains.setdefault(agent, _Chain())
            if entry["type"] == "assistant":
                chain.assistant(entry, message, tell)
            else:
                chain.user(entry, message, uuid, tell)
        except Malformed as error:
            tell(f"{error}; line skipped")
    for agent, chain in chains.items():
        if chain.builder.items:
            yield chain.run(session, agent)


def _agent(entry: Dict, uuid: str | None, roots: dict[str, str]) -> str | None:
    """Whose line it is: None for the session's own, else the sub-agent's id; where an older
    program wrote none, the `uuid` of the side chain's first line."""
    if entry.get("isSidechain") is not True:
        return None
    agent = entry.get("agentId")
    if isinstance(agent, str) and agent:
        return agent
    parent = entry.get("parentUuid")
    root = roots.get(parent, uuid) if isinstance(parent, str) else uuid
    if uuid is not None and root is not None:
        roots[uuid] = root
    return root or "unnamed"


class _Chain:
    """The session's own conversation, or one sub-agent's."""

    def __init__(self) -> None:
        self.builder = RunBuilder(growing=True)
        self._blocks: list[Any] = []

    def user(self, entry: Dict, message: Dict, uuid: str | None, report: Report) -> None:
        at = moment(entry.get("timestamp"), "timestamp", report)
        by_program = entry.get("isMeta") is True or entry.get("isCompactSummary") is True
        role = "system" if by_program else "user"
        content = message["content"]
        if not isinstance(content, list):
            self.builder.message(role, content, at, uuid)
            return
        parts: list[Any] = []
        for block in content:
            if isinstance(block, dict) and block.get("type") == "tool_result":
                self._result(block, at, report)
            else:
                parts.append(block)
        if parts:
            self.builder.message(role, parts, at, uuid)

    def _result(self, block: Dict, at: str | None, report: Report) -> None:
        call_id = maybe_str(block.get("tool_use_id"), "tool_use_id", report)
        content = block.get("content")
        if block.get("is_error") is True:
            error = content if isinstance(content, str) else text_of(content)
            self.builder.result(error=error, error_type="tool_error", call_id=call_id, at=at)
        else:
            self.builder.result(content, call_id=call_id, at=at)

    def assistant(self, entry: Dict, message: Dict, report: Report) -> None:
        at = moment(entry.get("timestamp"), "timestamp", report)
        if entry.get("isApiErrorMessage") is True:
            kind = entry.get("error")
            error_type = kind if isinstance(kind, str) and kind else "api_error"
            self.builder.fail(error_type, text_of(message["content"]), at)
            return
        id = maybe_str(message.get("id"), "message.id", report)
        last = self.builder.last
        if last is None or id is None or last.made.response_id != id:
            made = events.Decision(tool_calls=[], response_id=id, provider_name="anthropic")
            self._blocks = []
            self.builder.decide(made, at)
        else:
            made = last.made
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in maybe_list(blocks, "message.content", report):
            self._block(made, block, report)
        usage = maybe_dict(message.get("usage"), "message.usage", report)
        if usage:
            made.usage = _usage(usage, report)
        made.response_model = (
            maybe_str(message.get("model"), "message.model", report) or made.response_model
        )
        reason = maybe_str(message.get("stop_reason"), "message.stop_reason", report)
        made.finish_reasons = [reason] if reason else made.finish_reasons

    def _block(self, made: events.Decision, block: Any, report: Report) -> None:
        kind = block.get("type") if isinstance(block, dict) else None
        self._blocks.append(block)
        if kind == "text" and isinstance(block.get("text"), str):
            made.text = _joined(made.text, block["text"])
        elif kind == "thinking" and isinstance(block.get("thinking"), str):
            made.reasoning = _joined(made.reasoning, block["thinking"])
        elif kind == "tool_use" and isinstance(block.get("name"), str):
            id = maybe_str(block.get("id"), "tool_use.id", report)
            made.tool_calls.append(events.ToolCall(block["name"], block.get("input"), id))
        else:
            # A block that text, reasoning and calls cannot tell: all of them are kept as well.
            made.content = self._blocks

    def run(self, session: str | None, agent: str | None) -> ImportedRun:
        run = self.builder.run(FORMAT, self._description())
        run.agent_name = FORMAT
        run.conversation_id = session
        behind = [] if agent is None else [f"agent-{agent}"]
        if session is None:
            run.task_id, run.earlier_ids = digest_ids(run.items, FORMAT, *behind)
        else:
            run.task_id = plain_id(FORMAT, session, *behind)
        return run

    def _description(self) -> str | None:
        """The first thing that the user said, not what the program said for them."""
        for item in self.builder.items:
            if isinstance(item, Message) and item.role == "user":
                found = label(item.content)
                if found and not found.startswith(_BY_PROGRAM):
                    return found
        return None


def _joined(before: str | None, more: str) -> str:
    return more if before is None else f"{before}\n{more}"


def _usage(usage: Dict, report: Report) -> events.Usage:
    """Anthropic's input tokens leave out what was read from or written to the cache."""
    read = count(usage.get("cache_read_input_tokens"), "usage.cache_read_input_tokens", report)
    created = count(
        usage.get("cache_creation_input_tokens"), "usage.cache_creation_input_tokens", report
    )
    fresh = count(usage.get("input_tokens"), "usage.input_tokens", report)
    return events.Usage(
        input_tokens=fresh + read + created,
        output_tokens=count(usage.get("output_tokens"), "usage.output_tokens", report),
        cache_read_input_tokens=read,
        cache_creation_input_tokens=created,
    )
