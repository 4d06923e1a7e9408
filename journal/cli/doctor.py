"""The command `journal doctor`: looks at everything that a journal needs and changes nothing.

Only looks, and prints; what the facts mean is `diagnosis`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from journal.backends import is_kafka, log_url
from journal.blobs import DirectoryBlobs
from journal.cli import diagnosis
from journal.cli.diagnosis import Check, Contents, File, Folder, Remote, Versions
from journal.client import connect
from journal.errors import EventTooNew, JournalError, LogError, NotAJournal
from journal.genesis import read_genesis

if TYPE_CHECKING:
    from journal.kafka_look import Opening

_PACKAGE = "step-journal"


async def doctor(arguments: argparse.Namespace, config: Mapping[str, Any] | None) -> int:
    """Print one line for each check. Returns 1 where anything is wrong."""
    url = log_url(arguments.log)
    checks = diagnosis.versions(_versions())
    if is_kafka(url):
        checks += await _topic(url, config)
    else:
        checks += await asyncio.to_thread(_file, url)
    blobs = connect(url, create=False).blobs
    if isinstance(blobs, DirectoryBlobs):
        folder = _folder(os.path.abspath(blobs.root))
        checks += diagnosis.folder("blobs", folder, made_by="the first payload over 256 KiB")
    else:
        checks.append(Check("blobs", "ok", f"{blobs}, not looked at"))
    if arguments.format == "json":
        print(json.dumps([check._asdict() for check in checks], indent=2, ensure_ascii=False))
    else:
        _print(checks)
    return 1 if any(check.status == "wrong" for check in checks) else 0


def _print(checks: list[Check]) -> None:
    width = max(len(check.check) for check in checks)
    for check in checks:
        remedy = "" if check.remedy is None else f"; mend it with: {check.remedy}"
        line = f"{check.status:<7}  {check.check:<{width}}  {check.detail}{remedy}"
        print(" ".join(line.splitlines()))


# --- this machine -----------------------------------------------------------------------------


def _versions() -> Versions:
    journal, requires_python, wanted = _installed(_PACKAGE), "", []
    if journal is not None:
        requires_python = str(metadata.metadata(_PACKAGE)["Requires-Python"])
        for text in metadata.requires(_PACKAGE) or []:
            marker = Requirement(text).marker
            if marker is None or marker.evaluate({"extra": ""}):
                wanted.append(text)
    packages = {text: _installed(Requirement(text).name) for text in wanted}
    return Versions(platform.python_version(), requires_python, journal, packages, _sqlite())


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _sqlite() -> str | None:
    try:
        from journal.sqlite_look import library_version
    except ImportError:
        return None
    return library_version()


def _folder(path: str) -> Folder:
    at = path
    while not os.path.exists(at):
        at = os.path.dirname(at)
    return Folder(
        path,
        at,
        os.path.isdir(at),
        os.access(at, os.W_OK | os.X_OK),
        os.stat(at).st_uid == os.geteuid(),
        bool(os.statvfs(at).f_flag & os.ST_RDONLY),
        shutil.disk_usage(at).free,
    )


# --- an embedded log --------------------------------------------------------------------------


def _file(url: str) -> list[Check]:
    path = os.path.abspath(url)
    checks = diagnosis.folder("log", _folder(os.path.dirname(path)))
    try:
        from journal.sqlite_file import network_type, read_mounts
    except ImportError as error:
        names = ["log", "mount", "wal", "integrity", "genesis", "partitions"]
        return checks + diagnosis.unimportable(names, str(error.name))
    there = os.path.exists(path)
    facts = File(
        path,
        network_type(os.path.realpath(path), read_mounts()),
        os.access(path, os.R_OK | os.W_OK),
        there and os.stat(path).st_uid == os.geteuid(),
        os.path.getsize(path) if there else 0,
        os.path.getsize(f"{path}-wal") if os.path.exists(f"{path}-wal") else 0,
        _contents(path),
    )
    return checks + diagnosis.file(facts)


def _contents(path: str) -> Contents | JournalError | None:
    from journal.sqlite_look import look

    try:
        found = look(path, diagnosis.CHECK_S)
    except LogError as error:
        return error
    if found is None:
        return None
    opening: Opening = None
    if found.genesis is not None:
        try:
            opening = read_genesis(path, 0, found.genesis)
        except (NotAJournal, EventTooNew) as error:
            opening = error
    return Contents(found.first, found.end, found.faults, opening)


# --- a topic ----------------------------------------------------------------------------------


async def _topic(url: str, config: Mapping[str, Any] | None) -> list[Check]:
    try:
        from journal.kafka_admin import FIXED, findings, open_topic
        from journal.kafka_client import Clients, parse_url
        from journal.kafka_config import client_options
        from journal.kafka_look import look_at_cluster, look_at_openings
    except ImportError as error:
        names = ["broker", "topic", "settings", "replication", "genesis", "partitions"]
        return diagnosis.unimportable(names, str(error.name))
    clients = Clients(parse_url(url), client_options(config))
    settings = [*FIXED, "min.insync.replicas"]
    try:
        facts = Remote(url, await look_at_cluster(clients))
    except LogError as error:
        return diagnosis.remote(Remote(url, error), settings)
    try:
        topic = await open_topic(clients)
    except LogError as error:
        return diagnosis.remote(facts._replace(topic=error), settings)
    facts = facts._replace(topic=topic, findings=findings(clients.address, topic))
    try:
        facts = facts._replace(openings=await look_at_openings(clients, topic))
    except LogError as error:
        facts = facts._replace(openings=error)
    return diagnosis.remote(facts, settings)
