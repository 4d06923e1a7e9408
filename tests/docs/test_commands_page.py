"""docs/commands.md is what the argument parsers say: commands, options, choices, nothing more; and
each of them has a help text."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from journal.cli.main import parser as journal_parser
from projector.cli import _parser as projector_parser

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
PARSERS = {"journal": journal_parser(), "projector": projector_parser()}


def commands(program: str) -> dict[str, argparse.ArgumentParser]:
    (found,) = (
        action
        for action in PARSERS[program]._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    assert set(found.choices) == {action.dest for action in found._choices_actions if action.help}
    return dict(found.choices)


COMMANDS = [(program, name) for program in PARSERS for name in commands(program)]


def own(program: str, name: str) -> list[argparse.Action]:
    """A command's arguments without `--help`."""
    return [action for action in commands(program)[name]._actions if action.dest != "help"]


def told(program: str) -> dict[str, str]:
    """The page's row of each command: its usage and its options."""
    rows = re.findall(r"^\| `(\w+)( [^|]*)?` \| ?(.*?) ?\|$", SECTIONS[f"`{program}`"], re.M)
    assert len(rows) == len({name for name, _, _ in rows})
    return {name: f"{usage} {options}" for name, usage, options in rows}


def for_all() -> set[str]:
    return set(re.findall(r"^\| `(--[\w-]+)", SECTIONS["For all"], re.M))


@pytest.mark.parametrize(("program", "name"), COMMANDS)
def test_a_command_is_told_of_whole(program: str, name: str) -> None:
    row = told(program)[name]
    options = {action.option_strings[-1]: action for action in own(program, name) if _long(action)}
    named = set(re.findall(r"--[\w-]+", row))
    assert named == set(options) - for_all()
    for action in own(program, name):
        if not action.option_strings:
            assert str(action.metavar) in row
        if action.option_strings and action.option_strings[-1] in for_all():
            continue
        for choice in action.choices or ():
            assert re.search(rf"\b{choice}\b", row), choice


def _long(action: argparse.Action) -> bool:
    return bool(action.option_strings)


@pytest.mark.parametrize(("program", "name"), COMMANDS)
def test_every_argument_has_a_help_text(program: str, name: str) -> None:
    assert commands(program)[name].description
    assert [action.dest for action in own(program, name) if not action.help] == []


@pytest.mark.parametrize("program", PARSERS)
def test_nothing_is_told_of_that_is_not_there(program: str) -> None:
    assert set(told(program)) == set(commands(program))


def test_what_is_for_all_is_somewhere() -> None:
    there = {
        option
        for program, name in COMMANDS
        for action in own(program, name)
        for option in action.option_strings
    }
    assert for_all() <= there
