"""The command `journal`: arguments in, one call each, words on the screen out.

Exit status: 0 done (a tail: ended by SIGTERM or a closed pipe), 1 it could not be done (one line
says why) or the doctor found something wrong, 2 wrong usage, 130 interrupted.
Everything heavy is imported when a command needs it, so that `--help` is quick.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from journal.cli.escape import prepare
from journal.errors import JournalError, UsageError

Command = Callable[[argparse.Namespace, Mapping[str, Any] | None], Coroutine[Any, Any, int]]
EPILOG = "exit status: 0 done or ended by SIGTERM, 1 it failed, 2 wrong usage, 130 interrupted"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--log", help="path or kafka://host:port/topic (or JOURNAL_LOG)")
    common.add_argument("--kafka-config", metavar="FILE", help="Kafka client properties")
    common.add_argument("--debug", action="store_true", help="show tracebacks")
    writes = argparse.ArgumentParser(add_help=False, parents=[common])
    writes.add_argument(
        "--redact",
        metavar="patterns|MODULE:FUNCTION",
        help="take secrets out of every text before it is written (or JOURNAL_REDACT)",
    )
    top = argparse.ArgumentParser(prog="journal", epilog=EPILOG, description="The step journal.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def task(of: argparse.ArgumentParser) -> None:
        of.add_argument("task", metavar="TASK", help="the task's id")

    def format(of: argparse.ArgumentParser) -> None:
        of.add_argument(
            "--format",
            choices=["table", "json"],
            default="table",
            help="of output (default: table)",
        )

    def add(
        name: str, text: str, options: argparse.ArgumentParser = common
    ) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[options])

    init = add("init", "make a journal: a file, or a topic with the right settings")
    init.add_argument(
        "--partitions", type=int, default=12, metavar="N", help="of a topic, for ever (default: 12)"
    )
    init.add_argument(
        "--replication-factor",
        type=int,
        metavar="N",
        help="of a topic (default: 3, or as many as there are brokers)",
    )
    demo = add("demo", "kill an agent in the middle of a step and resume it")
    demo.add_argument("--keep", action="store_true", help="leave the demo's folder and name it")
    tasks = add("tasks", "list tasks, from the log alone")
    tasks.add_argument("--status", help="only those that are running, waiting, completed, …")
    format(tasks)
    show = add("show", "print one task's run")
    task(show)
    replay = add("replay", "print a task's events, one JSON object a line")
    task(replay)
    replay.add_argument("--from", dest="start", metavar="SEQ|P:OFFSET", help="from this on")
    replay.add_argument("--to", dest="end", metavar="SEQ|P:OFFSET", help="up to and with this")
    replay.add_argument("--raw", action="store_true", help="as written, not upcast")
    tail = add("tail", "follow the log and print each event as it is appended")
    tail.add_argument(
        "--from",
        dest="start",
        metavar="start|end|P:OFFSET",
        default="end",
        help="where to begin (default: end); at P:OFFSET, with the other partitions at their end",
    )
    tail.add_argument("--task", help="only this task's events")
    format(tail)
    tail.add_argument("--count", type=_count, metavar="N", help="stop after N events")
    tail.add_argument("--raw", action="store_true", help="as written, a newer release's events too")
    state = add("state", "print a task's checkpoint as JSON")
    task(state)
    state.add_argument("--at", metavar="SEQ|P:OFFSET", help="as it was there")
    retry = add("retry", "reopen a failed task")
    task(retry)
    send = add("send", "give a task a message; its owner sees it before its next decision", writes)
    task(send)
    send.add_argument("text", metavar="TEXT", help="the message")
    send.add_argument(
        "--role", choices=["user", "system"], default="user", help="whose it is (default: user)"
    )
    send.add_argument("--id", help="the message's own; the same again changes nothing")
    answer = add("answer", "answer what a task asks for; the first answer counts", writes)
    task(answer)
    answer.add_argument("value", metavar="VALUE", help="JSON, or else a text")
    answer.add_argument("--text", action="store_true", help="a text, even where it is JSON")
    answer.add_argument("--key", help="which request, where there are several")
    answer.add_argument("--by", metavar="NAME", help="who answers (default: this user)")
    cancel = add(
        "cancel", "end a task: at once if it waits, else before it begins anything new", writes
    )
    task(cancel)
    cancel.add_argument("--reason", metavar="TEXT", help="why, for whoever looks at the task")
    resolve = add("resolve", "settle a call of which nobody knows whether it happened", writes)
    task(resolve)
    resolve.add_argument("call", metavar="STEP:POSITION", help="the call, such as 3:0")
    outcome = resolve.add_mutually_exclusive_group(required=True)
    outcome.add_argument("--result", metavar="VALUE", help="it happened: JSON, or else a text")
    outcome.add_argument("--error", metavar="TEXT", help="it failed")
    outcome.add_argument("--run-again", action="store_true", help="it did not happen")
    resolve.add_argument("--by", metavar="NAME", help="who says so (default: this user)")
    doctor = add("doctor", "check versions, log and blobs, and say how to mend what is wrong")
    format(doctor)
    imported = add(
        "import", "import runs of other programs; of a file that has grown, the rest", writes
    )
    imported.add_argument("files", nargs="+", metavar="FILE", help="of any of the known formats")
    imported.add_argument("--strict", action="store_true", help="exit 1 if anything was wrong")
    return top


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of events from 1")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    prepare(sys.stdout)
    arguments = parser().parse_args(argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (JournalError, OSError) as error:
        if arguments.debug:
            raise
        print(f"journal: {_shown(error, arguments)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _shown(error: BaseException, arguments: argparse.Namespace) -> str:
    """An error in one line, without the secrets that it may have from the command line."""
    from journal.backends import redact_hook
    from journal.redact import redacted_text

    text = " ".join(str(error).split())
    try:
        hook = redact_hook(getattr(arguments, "redact", None))
    except UsageError:
        return text  # it is the one about the hook
    try:
        return text if hook is None else redacted_text(text, hook)
    except UsageError as failed:
        return str(failed)


def _run(arguments: argparse.Namespace) -> int:
    if ":" in (getattr(arguments, "redact", None) or os.environ.get("JOURNAL_REDACT", "")):
        # A hook of the user's own stands in the folder that the command is run from.
        sys.path.append(os.getcwd())
    if arguments.command == "demo":
        from journal.cli.demo import demo

        log = arguments.log or os.environ.get("JOURNAL_LOG")
        return demo(log, arguments.kafka_config, arguments.keep)
    run: Command
    if arguments.command == "import":
        from journal.cli.import_ import import_files as run
    elif arguments.command in ("send", "answer", "cancel", "resolve"):
        from journal.cli import outside

        run = getattr(outside, arguments.command)
    elif arguments.command == "tail":
        from journal.cli.tail import tail as run
    elif arguments.command == "doctor":
        from journal.cli.doctor import doctor as run
    else:
        from journal.cli import commands

        run = getattr(commands, arguments.command)
    return asyncio.run(run(arguments, _config(arguments)))


def _config(arguments: argparse.Namespace) -> Mapping[str, Any] | None:
    if not arguments.kafka_config:
        return None
    from journal.kafka_config import load

    return load(arguments.kafka_config)
