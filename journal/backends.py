"""From a URL to an open log, and what else is named by a text or by the environment: the one
place that knows which backends there are.

A backend is imported only when its URL is used: the embedded log costs no Kafka client.
"""

from __future__ import annotations

import importlib
import os
import re
from typing import TYPE_CHECKING

from journal.blobs import BlobStore
from journal.errors import UsageError
from journal.log import Log
from journal.redact import Redact, patterns

if TYPE_CHECKING:
    from journal.kafka_config import Config

DEFAULT_LOG = "./journal.db"
MEMORY = "memory://"


def log_url(url: str | os.PathLike[str] | None) -> str:
    """The URL to use: as given, else `JOURNAL_LOG`, else `./journal.db`."""
    return os.fspath(url) if url is not None else os.environ.get("JOURNAL_LOG") or DEFAULT_LOG


def is_kafka(url: str) -> bool:
    """Whether the URL is a topic's, and not a path. Raises `UsageError` where it is neither."""
    if "://" in url and not url.startswith("kafka://"):
        # What stands before an @ may be a password.
        url = re.sub(r"://.*@", "://", url)
        raise UsageError(f"no log speaks {url}; give a path, or kafka://host:port/topic")
    return url.startswith("kafka://")


async def open_log(
    url: str,
    *,
    create: bool = False,
    partitions: int | None = None,
    replication_factor: int | None = None,
    config: Config | None = None,
    append_deadline_s: float = 30.0,
) -> Log:
    """Open `kafka://host:port[,host:port]/topic`, `memory://NAME`, or a path as an embedded log.

    `config` is what `kafka_config` of `journal.connect` is; `partitions` and `replication_factor`
    count only for a topic that `create` makes. Raises `UsageError` for any other URL, and what the
    backend raises.
    """
    if url.startswith(MEMORY):
        from journal.memory_log import Memory

        return Memory.at(url, create=create).handle()
    if is_kafka(url):
        from journal.kafka_log import KafkaLog

        return await KafkaLog.open(
            url,
            create=create,
            partitions=12 if partitions is None else partitions,
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


def redact_hook(redact: Redact | str | None) -> Redact | None:
    """What takes secrets out of texts: a function, or the name of one as `MODULE:FUNCTION`, or
    `patterns`; None means what `JOURNAL_REDACT` names, and an empty name nothing.

    Raises `UsageError`.
    """
    named = os.environ.get("JOURNAL_REDACT") if redact is None else redact
    if not named or not isinstance(named, str):
        return named or None
    if named == "patterns":
        return patterns()
    module, _, name = named.partition(":")
    if not (module and name):
        raise UsageError(f"redact: {named} is neither patterns nor MODULE:FUNCTION")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"redact: {named} cannot be imported: {error}") from None
    except Exception as error:
        raise UsageError(f"redact: {named} cannot be imported: {type(error).__name__}") from None
    if not callable(found):
        raise UsageError(f"redact: {named} is no function from a text to a text")
    hook: Redact = found
    return hook
