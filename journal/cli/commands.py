"""What the commands do, one coroutine each, and how it looks.

Reads the log through the public API; knows no argument parsing and no DuckDB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from journal.acceptance import ACCEPTED, Head, advance, judge
from journal.backends import log_url, open_log
from journal.cli.lines import json_lines
from journal.cli.progress import scan_bar
from journal.client import Journal, connect
from journal.codec import decode_event
from journal.errors import (
    BadRecord,
    BlobAltered,
    BlobMissing,
    JournalError,
    TaskNotFound,
    UsageError,
)
from journal.events import EVENT_TYPES, Envelope
from journal.fold import apply
from journal.genesis import identify
from journal.log import Record
from journal.partition import partition_of
from journal.state import TaskState
from journal.values import BlobRef, encode

Config = Mapping[str, Any] | None


@contextlib.asynccontextmanager
async def _journal(arguments: argparse.Namespace, config: Config) -> AsyncIterator[Journal]:
    with scan_bar() as on_scan:
        async with connect(arguments.log, create=False, kafka_config=config, on_scan=on_scan) as j:
            yield j


async def init(arguments: argparse.Namespace, config: Config) -> int:
    """Make the log and its genesis records; on one that exists, only look."""
    url = log_url(arguments.log)
    log = await open_log(
        url,
        create=True,
        partitions=arguments.partitions,
        replication_factor=arguments.replication_factor,
        config=config,
    )
    try:
        identity = await identify(log, create=True)
    finally:
        await log.close()
    print(f"{url}: journal {identity.journal_id}, {identity.partitions} partition(s)")
    return 0


def _row(state: TaskState) -> dict[str, Any]:
    return {
        "task_id": state.task_id,
        "status": state.status,
        "current_step": state.current_step,
        "total_tokens": state.total_tokens,
        "updated_at": state.updated_at,
        "description": state.description,
    }


async def tasks(arguments: argparse.Namespace, config: Config) -> int:
    """A line a task."""
    async with _journal(arguments, config) as j:
        rows = [_row(state) for state in await j.tasks(status=arguments.status)]
    if arguments.format == "json":
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None)
    for name in ("task_id", "status", "current_step", "total_tokens", "updated_at", "description"):
        table.add_column(name)
    for row in rows:
        table.add_row(*(Text(str(value)[:80]) for value in row.values()))
    Console().print(table)
    return 0


async def show(arguments: argparse.Namespace, config: Config) -> int:
    """The run as its messages. A payload that is lost costs only itself, and exit status 1."""
    lost: list[JournalError] = []
    async with _journal(arguments, config) as j:
        state = await j.state(arguments.task)
        from journal.messages import messages

        def load(ref: BlobRef) -> bytes:
            try:
                return j.blobs.get(ref)
            except (BlobAltered, BlobMissing) as error:
                lost.append(error)
                return encode(f"(lost: {ref.size:,} bytes, {ref.sha256})")

        print(f"{state.task_id}: {state.status}, step {state.current_step}")
        for message in messages(state, "plain", load):
            print(f"\n[{message['role']}]\n{message['content']}")
        if state.error is not None:
            print(f"\nfailed: {state.error_type}: {state.error}")
    for error in lost:
        print(f"journal: {error}", file=sys.stderr)
    return 1 if lost else 0


async def replay(arguments: argparse.Namespace, config: Config) -> int:
    """Events as JSON lines, with the position they were read at."""
    async with _journal(arguments, config) as j:
        partition = partition_of(arguments.task, j.log.partitions)
        start, end = _point(arguments.start, partition), _point(arguments.end, partition)
        found = False
        head = Head()
        for record in await j.records(arguments.task):
            found = True
            seq = _passed(head, record)
            if _before(start, seq, record.offset):
                continue
            if _after(end, seq, record.offset):
                break
            for line in json_lines(f"{partition}:{record.offset}", record, raw=arguments.raw):
                print(line)
    if not found:
        raise TaskNotFound(f"no task {arguments.task} in {j.url}; journal tasks lists them")
    return 0


async def state(arguments: argparse.Namespace, config: Config) -> int:
    """The checkpoint as JSON."""
    async with _journal(arguments, config) as j:
        partition = partition_of(arguments.task, j.log.partitions)
        at = _point(arguments.at, partition)
        folded = TaskState(arguments.task, partition=partition)
        async for offset, event in j.events(arguments.task):
            if _after(at, _seq(folded.head, event), offset):
                break
            apply(folded, event, offset)
    if not folded.exists:
        raise TaskNotFound(f"no task {arguments.task} in {j.url}; journal tasks lists them")
    print(msgspec.json.format(msgspec.json.encode(_checkpoint(folded)), indent=2).decode())
    return 0


def _checkpoint(state: TaskState) -> dict[str, Any]:
    out: dict[str, Any] = _row(state) | {
        "completed_steps": [
            {
                "step_index": s.index,
                "decision": s.raw_decision,
                "calls": [
                    {
                        "tool_name": c.tool_name,
                        "status": c.status,
                        "result": c.result,
                        "error": c.error,
                    }
                    for c in s.all_calls()
                ],
            }
            for s in state.completed_steps
        ],
        "accumulated_results": state.results,
        "pending": [
            {"key": w.key.removeprefix("="), "question": w.question, "until": w.until}
            for w in state.pending
        ],
        "subtasks": {s.name: s.status for s in state.subtasks.values()},
        "usage": state.usage,
        "final_answer": state.final_answer,
        "error": state.error,
        "epoch": state.head.epoch,
        "seq": state.head.seq,
        "position": f"{state.partition}:{state.offset}",
    }
    return out


async def retry(arguments: argparse.Namespace, config: Config) -> int:
    """Reopen a failed task."""
    async with _journal(arguments, config) as j:
        state = await j.retry(arguments.task)
    print(f"{state.task_id} is {state.status} again, at step {state.current_step}")
    return 0


# --- points in a task's history -----------------------------------------------------------------


def _point(text: str | None, partition: int) -> tuple[bool, int] | None:
    """`SEQ` to (False, seq), `P:OFFSET` to (True, offset). Raises `UsageError`."""
    if text is None:
        return None
    head, colon, tail = text.rpartition(":")
    try:
        if colon and int(head) != partition:
            raise UsageError(f"the task lives in partition {partition}, not {head}")
        return bool(colon), int(tail)
    except ValueError:
        raise UsageError(f"{text} is no point: give a seq, or partition:offset") from None


def _seq(head: Head, event: Envelope) -> int:
    """The seq that the task has reached with this event: of one that does not count, whatever seq
    its writer gave it, that of the last one that did."""
    if event.seq is None or event.type not in EVENT_TYPES or judge(head, event) != ACCEPTED:
        return head.seq
    return event.seq


def _passed(head: Head, record: Record) -> int:
    """The same of a record, which the head is moved past."""
    try:
        event = decode_event(record.value, record.key)
    except BadRecord:
        return head.seq
    seq = _seq(head, event)
    if event.type in EVENT_TYPES:
        advance(head, event, judge(head, event))
    return seq


def _before(point: tuple[bool, int] | None, seq: int, offset: int) -> bool:
    return point is not None and (offset if point[0] else seq) < point[1]


def _after(point: tuple[bool, int] | None, seq: int, offset: int) -> bool:
    return point is not None and (offset if point[0] else seq) > point[1]
