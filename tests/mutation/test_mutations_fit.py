"""What is to be broken on purpose is still in the source, also where it is too slow to be tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.mutations import MUTATIONS
from tests.simulation.mutations import MUTATIONS as BY_SEEDS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("what", "file", "old"), [m[:3] for m in (*MUTATIONS, *BY_SEEDS)])
def test_what_is_to_be_broken_is_there_once(what: str, file: str, old: str) -> None:
    found = (ROOT / file).read_text().count(old)
    assert found == 1, f"{what}: {file} has changed; change the mutation"
