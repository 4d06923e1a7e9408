"""From a URL to an open log: the one place that knows which backends there are.

A backend is imported only when its URL is used: the embedded log costs no Kafka client.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from journal.blobs import BlobStore
from journal.errors import UsageError
from journal.log import Log

DEFAULT_LOG = "./journal.db"
MEMORY = "memory://"


def log_url(url: str | os.PathLike[str] | None) -> str:
    """The URL to use: as given, else `JOURNAL_LOG`, else `./journal.db`."""
    return os.fspath(url) if url is not None else os.environ.get("JOURNAL_LOG") or DEFAULT_LOG


def is_kafka(url: str) -> bool:
    """Whether the URL is a topic's, and not a path. Raises `UsageError` where it is neither."""
    if "://" in url and not url.startswith("kafka://"):
        raise UsageError(f"no log speaks {url}; give a path, or kafka://host:port/topic")
    return url.startswith("kafka://")


async def open_log(
    url: str,
    *,
    create: bool = False,
    partitions: int | None = None,
    replication_factor: int | None = None,
    config: Mapping[str, str] | None = None,
    append_deadline_s: float = 30.0,
) -> Log:
    """Open `kafka://host:port[,host:port]/topic`, `memory://NAME`, or a path as an embedded log.

    `config` holds Kafka's own property names; `partitions` and `replication_factor` count only
    for a topic that `create` makes. Raises `UsageError` for any other URL, and what the backend
    raises.
    """
    if url.startswith(MEMORY):
        from journal.memory_log import Memory

        return Memory.at(url, create=create).handle()
    if is_kafka(url):
        from journal.kafka_log import KafkaLog

        return await KafkaLog.open(
            url,
            create=create,
            partitions=partitions or 12,
            replication_factor=replication_factor,
            config=config,
            append_deadline_s=append_deadline_s,
        )
    from journal.sqlite_log import SqliteLog

    return await SqliteLog.open(url, create=create)


def default_blobs(url: str) -> str | BlobStore:
    """Where a log's large payloads are kept: `JOURNAL_BLOBS`, else beside the log. For a log in
    memory that is memory, in any case."""
    if url.startswith(MEMORY):
        from journal.memory_log import blobs_of

        return blobs_of(url)
    beside = "./journal.blobs" if url.startswith("kafka://") else f"{url}.blobs"
    return os.environ.get("JOURNAL_BLOBS") or beside
