"""The command `projector`: arguments, exit codes and words on the screen.

Everything heavy is imported by the command that needs it. Nothing imports this file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from journal.errors import JournalError, UsageError

if TYPE_CHECKING:
    from projector.running import Projection

DEFAULT_DB = "./runs.duckdb"

_EPILOG = """\
exit status: 0 done (of run without --once: or stopped by SIGTERM or Ctrl-C); 1 it failed, with
one line on stderr; 2 wrong usage; 130 or 143 stopped by Ctrl-C or SIGTERM before it was done.
"""


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--db",
        metavar="FILE",
        help=f"the projection's DuckDB file (default: $JOURNAL_DB, else {DEFAULT_DB})",
    )
    common.add_argument("--debug", action="store_true", help="show tracebacks")
    log = argparse.ArgumentParser(add_help=False)
    log.add_argument(
        "--log",
        metavar="URL",
        help="a path, or kafka://host:port/topic (default: $JOURNAL_LOG, else ./journal.db)",
    )
    log.add_argument(
        "--kafka-config",
        metavar="FILE",
        help="Kafka's own properties, for TLS and SASL (default: $JOURNAL_KAFKA_CONFIG)",
    )
    parser = argparse.ArgumentParser(
        prog="projector",
        description="Fold a journal's log into DuckDB tables, and ask SQL of them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=help,
            description=help[0].upper() + help[1:] + ".",
            parents=[common, *parents],
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    run = command("run", "fold the log into the tables, and follow it until stopped", log)
    run.add_argument("--once", action="store_true", help="stop at the end of the log as of now")
    run.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="of the lines on stderr"
    )
    run.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help="answer Prometheus there (host: 127.0.0.1; needs the extra `metrics`)",
    )
    command("rebuild", "fold the whole log into a new file, which then replaces the old one", log)
    health = command("health", "ask the projector that runs on this file how it is")
    health.add_argument(
        "--ready", action="store_true", help="fail, too, while it waits for the log or for room"
    )
    sql = command("sql", "answer one SELECT, whether or not a projector runs")
    sql.add_argument("query", metavar="SQL", help="for example: SELECT * FROM runs")
    sql.add_argument(
        "--format", choices=("table", "json", "csv", "parquet"), default="table", help="of output"
    )
    status = command("status", "show how far each partition has been read", log)
    status.add_argument("--format", choices=("table", "json"), default="table", help="of output")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    args = _parser().parse_args(argv)
    db = args.db or os.environ.get("JOURNAL_DB") or DEFAULT_DB
    complain: Callable[[str], None] = _complain
    if args.command in ("run", "rebuild"):
        from projector.logs import set_up

        complain = set_up(getattr(args, "log_format", "text"), aiokafka=args.debug)
    try:
        if args.command == "sql":
            return _sql(db, args.query, args.format)
        if args.command == "status":
            return asyncio.run(_status(db, args.log, args.kafka_config, args.format))
        if args.command == "rebuild":
            return asyncio.run(_rebuild(db, args.log, args.kafka_config))
        if args.command == "health":
            return _health(db, args.ready)
        return asyncio.run(_run(db, args))
    except KeyboardInterrupt:
        return 130
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    except BrokenPipeError:
        # Whoever read the output has had enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if args.debug:
            raise
        if isinstance(error, JournalError | OSError):
            complain(str(error))
        else:
            complain(f"{type(error).__name__}: {error} (--debug shows where)")
        return 2 if isinstance(error, UsageError) else 1


def _complain(message: str) -> None:
    from projector.output import complain

    complain(message)


def _health(db: str, ready: bool) -> int:
    from projector.health import ask

    health = ask(db)
    print(f"{health.state}: {health.detail}" if health.detail else health.state)
    return 1 if ready and not health.ready else 0


def _sql(db: str, sql: str, format: str) -> int:
    from projector.client import query
    from projector.output import write

    with query(db, sql) as reader:
        write(reader, format, sys.stdout)
    sys.stdout.flush()
    return 0


def _kafka_config(file: str | None) -> Mapping[str, str] | None:
    if not file:
        return None
    from journal.kafka_config import load

    return load(file)


async def _run(db: str, args: argparse.Namespace) -> int:
    import logging

    from journal.backends import log_url
    from projector.running import Projection, opened

    said = logging.getLogger("projector")
    url, config = log_url(args.log), _kafka_config(args.kafka_config)
    projection = Projection(db, url, lambda: opened(url, config), said.info, warn=said.warning)
    loop = asyncio.get_running_loop()
    signals: list[int] = []

    def stop(number: int) -> None:
        signals.append(number)
        projection.stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    with contextlib.ExitStack() as stack:
        if args.metrics is not None:
            stack.enter_context(_metrics(args.metrics, projection))
        try:
            await (projection.once() if args.once else projection.follow())
        finally:
            await projection.close()
    # Whoever waits for the end of the log must not take this for it.
    return 128 + signals[0] if args.once and signals else 0


async def _rebuild(db: str, url: str | None, kafka_config: str | None) -> int:
    from journal.backends import log_url
    from projector.output import complain
    from projector.rebuild import rebuild
    from projector.running import opened

    url, config = log_url(url), _kafka_config(kafka_config)
    this = asyncio.current_task()
    assert this is not None
    # So that nothing is left of the new file; Ctrl-C does the same.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    records, old = await rebuild(db, lambda: opened(url, config))
    complain(f"{records:,} records read from {url} into {db}; the file before it is {old}")
    return 0


@contextlib.contextmanager
def _metrics(address: str, projection: Projection) -> Iterator[None]:
    import logging

    try:
        from projector.metrics import Metrics, parsed
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise UsageError("--metrics needs: pip install 'step-journal[metrics]'") from None
    host, port = parsed(address)
    metrics = Metrics(projection.figures)
    projection.on_written = metrics.written
    port = metrics.serve((host, port))
    logging.getLogger("projector").info("metrics at http://%s:%d/metrics", host, port)
    try:
        yield
    finally:
        metrics.close()


async def _status(db: str, url: str | None, kafka_config: str | None, format: str) -> int:
    from journal.backends import log_url
    from journal.errors import LogReplaced, ProjectionError
    from projector.client import ask
    from projector.frames import Request
    from projector.output import print_rows
    from projector.running import opened

    log, identity = await opened(log_url(url), _kafka_config(kafka_config))
    try:
        offsets = ask(db, Request(offsets=True)).offsets
        ends = await log.ends()
        starts = await log.starts()
    finally:
        await log.close()
    rows: list[list[object]] = []
    for partition in range(identity.partitions):
        offset = offsets.get(partition)
        if offset is not None and offset.journal_id != identity.journal_id:
            raise ProjectionError(f"{db}: belongs to another journal than {log.url}")
        next_offset, end = (
            starts[partition] if offset is None else offset.next_offset,
            ends[partition],
        )
        if end < next_offset:
            # The file was asked before the log.
            raise LogReplaced(
                f"{log.url}: partition {partition} ends at {end}, and {next_offset} was to be read "
                f"next; the log was replaced: name another file with --db"
            )
        rows.append([partition, next_offset, end, end - next_offset])
    names = ["partition", "next_offset", "end", "lag"]
    if format == "json":
        import msgspec

        found = [dict(zip(names, row, strict=True)) for row in rows]
        print(msgspec.json.encode(found).decode())
    else:
        print_rows(names, rows, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
