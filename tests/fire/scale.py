"""How much is set on fire: JOURNAL_TEST_ROUNDS=full is all of it, else little, for CI."""

from __future__ import annotations

from typing import Any

import pytest

from tests.attacks import FULL

AGENTS = 50 if FULL else 12
OPTIONS: dict[str, Any] = (
    {} if FULL else {"deadline_s": 4.0, "kafka_config": {"request.timeout.ms": "2000"}}
)
"""Of `journal.connect`: the defaults, or less patience, so that a short outage outlasts it."""

full_only = pytest.mark.skipif(not FULL, reason="minutes; JOURNAL_TEST_ROUNDS=full runs it")


def scaled(full: int, short: int) -> int:
    return full if FULL else short
