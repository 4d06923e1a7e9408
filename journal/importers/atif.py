"""ATIF, the Agent Trajectory Interchange Format, versions 1.0 to 1.8: one JSON document a run.

A step of the agent is a decision, and its observation holds the results; steps of the user or
the system are messages. A result without `source_call_id` goes to the first call of its step
that has none; where there is none, it stands as a message of role `tool`. What a result holds
beside its content (references to sub-agents) is kept with it. Embedded sub-agents are runs of
their own.

Sessions share their id with their continuations, and trials of one task may, so a digest
stands behind it. ATIF does not say whether a run is over: it is `running`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from journal import events
from journal.importers.builder import RunBuilder
from journal.importers.model import ImportedRun, Report, digest_ids, text_of
from journal.importers.reading import (
    Dict,
    Malformed,
    count,
    maybe_dict,
    maybe_list,
    maybe_str,
    moment,
    need_dict,
    need_list,
)

FORMAT = "atif"
_VERSION = re.compile(r"ATIF-v(\d+)\.(\d+)")
_NEWEST = (1, 8)


def detect(value: Any) -> bool:
    """Whether this document says that it is ATIF."""
    version = value.get("schema_version") if isinstance(value, dict) else None
    return isinstance(version, str) and version.startswith("ATIF-")


def read(document: Dict, report: Report) -> Iterator[ImportedRun]:
    """The run and its embedded sub-agents. Raises `Malformed`."""
    version = _VERSION.match(document["schema_version"])
    if version is None or int(version[1]) != _NEWEST[0]:
        raise Malformed(f"{document['schema_version']} is not ATIF 1.0 to 1.8")
    if int(version[2]) > _NEWEST[1]:
        report(f"{version[0]} is newer than 1.8; what it adds is left out")
    yield from _read(document, None, report)


def _read(document: Dict, parent: str | None, report: Report) -> Iterator[ImportedRun]:
    agent = maybe_dict(document.get("agent"), "agent", report)
    model = maybe_str(agent.get("model_name"), "agent.model_name", report)
    builder = RunBuilder()
    for i, value in enumerate(need_list(document.get("steps"), "steps")):
        try:
            _step(builder, need_dict(value, f"steps[{i}]"), model, f"steps[{i}]", report)
        except Malformed as error:
            report(f"{error}; skipped")
    session = maybe_str(document.get("session_id"), "session_id", report) or parent
    trajectory = maybe_str(document.get("trajectory_id"), "trajectory_id", report)
    if builder.items:
        run = builder.run(FORMAT)
        parts = [part for part in (session, trajectory) if part]
        run.task_id, run.earlier_ids = digest_ids(run.items, FORMAT, *parts)
        run.conversation_id = session or trajectory
        run.agent_name = maybe_str(agent.get("name"), "agent.name", report)
        run.request_model = model or run.request_model
        if document.get("final_metrics") is not None:
            builder.value("final_metrics", document["final_metrics"])
        yield run
    inside = maybe_list(document.get("subagent_trajectories"), "subagent_trajectories", report)
    for i, value in enumerate(inside):
        where = f"subagent_trajectories[{i}]"

        def tell(reason: str, where: str = where) -> None:
            report(f"{where}.{reason}")

        try:
            inner = maybe_dict(value, where, report)
            if inner:
                yield from _read(inner, session, tell)
        except Malformed as error:
            tell(f"{error}; skipped")


def _step(builder: RunBuilder, step: Dict, model: str | None, path: str, report: Report) -> None:
    source, said = step.get("source"), step.get("message")
    if source not in ("user", "system", "agent"):
        raise Malformed(f"{path}.source is not one of user, system, agent")
    at = moment(step.get("timestamp"), f"{path}.timestamp", report)
    if source == "agent":
        builder.decide(_decision(step, model, path, report), at)
    elif said is None:
        report(f"{path} has no message")
    else:
        builder.message(source, said, at, source_id=str(step.get("step_id", "")) or None)
    observation = maybe_dict(step.get("observation"), f"{path}.observation", report)
    results = maybe_list(observation.get("results"), f"{path}.observation.results", report)
    for i, value in enumerate(results):
        where = f"{path}.observation.results[{i}]"
        result = maybe_dict(value, where, report)
        call_id = maybe_str(result.get("source_call_id"), f"{where}.source_call_id", report)
        more = {k: v for k, v in result.items() if k != "source_call_id" and v is not None}
        content = result.get("content") if set(more) <= {"content"} else more
        builder.result(content, call_id=call_id, at=at)


def _decision(step: Dict, model: str | None, path: str, report: Report) -> events.Decision:
    calls = []
    for i, value in enumerate(maybe_list(step.get("tool_calls"), f"{path}.tool_calls", report)):
        where = f"{path}.tool_calls[{i}]"
        call = maybe_dict(value, where, report)
        name = maybe_str(call.get("function_name"), f"{where}.function_name", report)
        if name is None:
            report(f"{where} has no function_name")
        id = maybe_str(call.get("tool_call_id"), f"{where}.tool_call_id", report)
        calls.append(events.ToolCall(name or "", call.get("arguments"), id))
    said = step.get("message")
    metrics = maybe_dict(step.get("metrics"), f"{path}.metrics", report)
    return events.Decision(
        text=text_of(said) or None,
        tool_calls=calls,
        usage=_usage(metrics, f"{path}.metrics", report) if metrics else None,
        reasoning=maybe_str(step.get("reasoning_content"), f"{path}.reasoning_content", report),
        content=None if said is None or isinstance(said, str) else said,
        request_model=maybe_str(step.get("model_name"), f"{path}.model_name", report) or model,
    )


def _usage(metrics: Dict, path: str, report: Report) -> events.Usage:
    extra = maybe_dict(metrics.get("extra"), f"{path}.extra", report)

    def at(outer: Dict, name: str) -> int:
        return count(outer.get(name), f"{path}.{name}", report)

    inputs, cached = at(metrics, "prompt_tokens"), at(metrics, "cached_tokens")
    created = at(extra, "cache_creation_input_tokens")
    if inputs < cached + created:
        # The format counts every input token as a prompt token, but converters from
        # Anthropic's counts are known to leave out what was written to the cache.
        inputs += created
    return events.Usage(
        input_tokens=inputs,
        output_tokens=at(metrics, "completion_tokens"),
        cache_read_input_tokens=cached,
        cache_creation_input_tokens=created,
        reasoning_output_tokens=at(extra, "reasoning_tokens"),
    )
