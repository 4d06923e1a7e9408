"""The command `journal tail`: every partition followed at once, each event printed as it comes.

Knows where to begin and when to stop; what an event looks like is `lines`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from journal.cli.lines import Row, json_lines, rows
from journal.cli.output import Output
from journal.client import connect
from journal.codec import check_task_id
from journal.errors import EventTooNew, UsageError
from journal.log import Log, Record
from journal.partition import partition_of

_POSITION, _TYPE, _TASK = 8, 17, 12
"""Columns of the table. Tasks' ids make theirs wider as they come."""


async def tail(arguments: argparse.Namespace, config: Mapping[str, Any] | None) -> int:
    """Print events until stopped: by SIGTERM, by a reader that closes the pipe, or at `--count`."""
    task = asyncio.current_task()
    assert task is not None
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.set_exception_handler(_without_leftovers)
    try:
        output = Output(sys.stdout, stop)
        try:
            await _follow(arguments, config, output)
        finally:
            output.close()
    except asyncio.CancelledError:
        if not stopped:
            raise
    return 0


def _without_leftovers(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # A Kafka client that is stopped while it connects forgets the connection. It closes it when
    # it is collected, with a complaint that tells whoever pressed Ctrl-C nothing.
    if not context["message"].startswith("Unclosed "):
        loop.default_exception_handler(context)


async def _follow(
    arguments: argparse.Namespace, config: Mapping[str, Any] | None, output: Output
) -> None:
    if arguments.task is not None:
        check_task_id(arguments.task)
    async with connect(arguments.log, create=False, kafka_config=config) as j:
        starts = await _starts(j.log, arguments.start, arguments.task)
        what = j.url if arguments.task is None else f"{arguments.task} in {j.url}"
        print(f"journal: following {what} from {arguments.start}", file=sys.stderr, flush=True)
        printer = _Printer(arguments, output)
        feeds = [
            asyncio.create_task(_feed(j.log, partition, start, printer))
            for partition, start in starts.items()
        ]
        try:
            done, _ = await asyncio.wait(feeds, return_when=asyncio.FIRST_COMPLETED)
            for feed in done:
                feed.result()
        finally:
            for feed in feeds:
                feed.cancel()
            await asyncio.gather(*feeds, return_exceptions=True)


async def _feed(log: Log, partition: int, start: int, printer: _Printer) -> None:
    """Returns when nothing more is wanted."""
    async with contextlib.aclosing(log.tail(partition, start)) as batches:  # type: ignore[type-var]
        async for records in batches:
            if await printer.show(partition, records):
                return


async def _starts(log: Log, start: str, task: str | None) -> dict[int, int]:
    """Partition to the offset to begin at, of those partitions that are to be followed.

    Raises `UsageError`.
    """
    offsets = dict(await (log.starts() if start == "start" else log.ends()))
    alone = None if task is None else partition_of(task, log.partitions)
    if start not in ("start", "end"):
        match = re.fullmatch(r"([0-9]+):([0-9]+)", start)
        if match is None:
            raise UsageError(f"{start} is no place to begin: give start, end or partition:offset")
        partition, offset = int(match[1]), int(match[2])
        if partition not in offsets:
            raise UsageError(f"{log.url} has no partition {partition}; its last is {max(offsets)}")
        if alone not in (None, partition):
            raise UsageError(f"the task lives in partition {alone}, not {partition}")
        if offset > offsets[partition]:
            raise UsageError(f"{start} is past the end, {partition}:{offsets[partition]}")
        offsets[partition] = offset
    return offsets if alone is None else {alone: offsets[alone]}


class _Printer:
    """Batches of records to lines of text, in the form and number that were asked for."""

    def __init__(self, arguments: argparse.Namespace, output: Output) -> None:
        self._output = output
        self._key = None if arguments.task is None else arguments.task.encode()
        self._left: int | None = arguments.count
        self._raw = arguments.raw
        table = arguments.format == "table"
        self._read: Callable[..., list[Any]] = rows if table else json_lines
        self._text: Callable[[list[Any]], str] = self._table if table else _lines
        self._task = _TASK

    async def show(self, partition: int, records: list[Record]) -> bool:
        """Print what is wanted of a batch; True when that was the last of it.

        Raises `EventTooNew`, with what stands before that event printed.
        """
        found: list[Any] = []
        try:
            for record in self._wanted(records):
                found += self._read(f"{partition}:{record.offset}", record, raw=self._raw)
        except EventTooNew:
            await self._output.write(self._text(found))
            raise
        await self._output.write(self._text(found))
        return self._left == 0

    def _wanted(self, records: list[Record]) -> Iterator[Record]:
        for record in records:
            if self._left == 0:
                return
            if self._key is None or record.key == self._key:
                if self._left is not None:
                    self._left -= 1
                yield record

    def _table(self, found: list[Row]) -> str:
        self._task = max([self._task, *(len(row.task) for row in found)])
        return _lines(
            [
                f"{row.position:<{_POSITION}} {row.at} {row.task:<{self._task}} "
                f"{row.type:<{_TYPE}} {row.about}".rstrip()
                for row in found
            ]
        )


def _lines(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)
