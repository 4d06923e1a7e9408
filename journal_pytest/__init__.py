"""The pytest plugin: fixtures for tests of agents. Only pytest loads it.

It stands beside the journal and not in it, so that a pytest run which uses none of its fixtures
imports nothing of the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from journal.testing import Memory


@pytest.fixture
def journal_log() -> Memory:
    """A fresh log in memory, to be given to `journal.connect`, or to a harness as `log=`."""
    from journal.testing import Memory

    return Memory()
