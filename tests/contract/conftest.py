"""The backends under contract: one fresh log a test, and any number of handles on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from journal.backends import open_log as open_backend
from journal.log import Log
from tests.contract.probe import OpenLog


@pytest.fixture(params=["sqlite", "memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def log_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where this test's log is. There is nothing there yet."""
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    if request.param == "memory":
        return f"memory://{tmp_path}"
    url: str = request.getfixturevalue("kafka_url")
    return url


@pytest.fixture
async def open_log(log_url: str) -> AsyncIterator[OpenLog]:
    """Makes the log, the first time, and opens a handle on it; closes them all at the end."""
    handles: list[Log] = []

    async def open_one() -> Log:
        handles.append(await open_backend(log_url, create=True, partitions=1))
        return handles[-1]

    yield open_one
    for handle in handles:
        await handle.close()


@pytest.fixture
async def log(open_log: OpenLog) -> Log:
    """One handle on this test's log."""
    return await open_log()
