"""What `import journal` gives, which is imported only when it is asked for."""

from __future__ import annotations

import importlib
import types

import pytest

import journal


@pytest.mark.parametrize("name", journal.__all__)
def test_every_public_name_is_there(name: str) -> None:
    found = getattr(journal, name)
    assert found.__name__.removeprefix("journal.") == name
    assert name in dir(journal)


def test_no_module_takes_a_public_name() -> None:
    for home in journal._HOMES:
        importlib.import_module(f"journal.{home}")
    for name in set(journal.__all__) - set(journal._MODULES):
        assert not isinstance(getattr(journal, name), types.ModuleType), name


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        journal.nothing  # noqa: B018
