"""What people tell a task from a terminal: `journal send`, `answer`, `cancel` and `resolve`.

Knows the public API and how a value is written on a command line.
"""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Mapping
from typing import Any

import msgspec

from journal.client import Journal, connect
from journal.errors import UsageError

Config = Mapping[str, Any] | None


def _journal(arguments: argparse.Namespace, config: Config) -> Journal:
    return connect(arguments.log, create=False, kafka_config=config, redact=arguments.redact)


async def send(arguments: argparse.Namespace, config: Config) -> int:
    """Give a task a message."""
    async with _journal(arguments, config) as j:
        id = await j.send(arguments.task, arguments.text, arguments.role, id=arguments.id)
    print(f"{arguments.task}: message {id}")
    return 0


async def answer(arguments: argparse.Namespace, config: Config) -> int:
    """Answer what a task asks for."""
    value = arguments.value if arguments.text else _value(arguments.value)
    async with _journal(arguments, config) as j:
        state = await j.answer(
            arguments.task, value, key=arguments.key, answered_by=arguments.by or _user()
        )
    print(f"{state.task_id}: answered; it is {state.status}")
    return 0


async def cancel(arguments: argparse.Namespace, config: Config) -> int:
    """Want a task to end."""
    async with _journal(arguments, config) as j:
        state = await j.cancel(arguments.task, arguments.reason)
    ends = "" if state.status == "cancelled" else ", and its owner will end it"
    print(f"{state.task_id} is {state.status}{ends}")
    return 0


async def resolve(arguments: argparse.Namespace, config: Config) -> int:
    """Settle an uncertain call."""
    index, position = _call(arguments.call)
    settled = {"result": _value(arguments.result)} if arguments.result is not None else {}
    async with _journal(arguments, config) as j:
        await j.resolve(
            arguments.task,
            index,
            position,
            error=arguments.error,
            run_again=arguments.run_again,
            resolved_by=arguments.by or _user(),
            **settled,
        )
    print(f"{arguments.task}: call {arguments.call} is settled; its agent can go on")
    return 0


def _call(text: str) -> tuple[int, int]:
    index, _, position = text.partition(":")
    if not (index.isdecimal() and position.isdecimal()):
        raise UsageError(f"{text} names no call: give STEP:POSITION, such as 3:0")
    return int(index), int(position)


def _value(text: str) -> Any:
    """JSON where it is that, else the text itself: `true`, `3` and `{"ok": true}` are values."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None
