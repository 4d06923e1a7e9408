"""What is to be thought of the facts about an installation, a log and a blob store. Pure.

Facts in, checks out; who looks is `doctor`. Knows thresholds, words and remedies.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from journal.errors import EventTooNew, JournalError, LogMisconfigured, LogNotFound
from journal.genesis import Identity

if TYPE_CHECKING:
    from journal.kafka_admin import Finding, Topic
    from journal.kafka_look import Cluster, Opening

Status = Literal["ok", "warning", "wrong", "skipped"]

FREE_BYTES = 1 << 30
"""With less disk than this a warning; the writer of an embedded log spares it, too."""

CHECK_S = 2.0
"""How long SQLite's quick check of a file may take."""

WAL_BYTES = 256 << 20
"""A busy log's WAL has some 33 MiB. One of more than this has not been checkpointed for long."""

SQLITE = "3.51.3"
"""The first version whose checkpoints cannot spoil a WAL that several connections use."""


class Check(NamedTuple):
    """One line of a diagnosis. `remedy` is a command."""

    check: str
    status: Status
    detail: str
    remedy: str | None = None


def skipped(checks: Sequence[str], reason: str) -> list[Check]:
    return [Check(check, "skipped", reason) for check in checks]


def unimportable(checks: Sequence[str], module: str) -> list[Check]:
    """Of several checks that need a module, the first says that it is not to be had."""
    reason = f"{module} cannot be imported"
    return [Check(checks[0], "wrong", reason), *skipped(checks[1:], reason)]


# --- versions ---------------------------------------------------------------------------------


class Versions(NamedTuple):
    """What is installed. A version that is None is missing."""

    python: str
    requires_python: str
    """A range, or "" where the package's own metadata is missing."""
    journal: str | None
    packages: Mapping[str, str | None]
    """Requirement, as the package's metadata has it, to the version that is there."""
    sqlite: str | None
    """Of the library that apsw brings."""


def versions(facts: Versions) -> list[Check]:
    checks = [_version("python", facts.python, facts.requires_python, None)]
    if facts.journal is None:
        detail = "runs without its metadata, so that no version can be compared"
        checks.append(Check("step-journal", "warning", detail, "pip install step-journal"))
    else:
        checks.append(Check("step-journal", "ok", facts.journal))
    for text, installed in facts.packages.items():
        wanted = Requirement(text)
        remedy = f"pip install {shlex.quote(text)}"
        checks.append(_version(wanted.name, installed, str(wanted.specifier), remedy))
    remedy = f"pip install --upgrade {shlex.quote(f'apsw>={SQLITE}')}"
    checks.append(_version("sqlite", facts.sqlite, f">={SQLITE}", remedy))
    return checks


def _version(name: str, installed: str | None, wanted: str, remedy: str | None) -> Check:
    if installed is None:
        return Check(name, "wrong", f"is missing, must be {wanted}", remedy)
    if SpecifierSet(wanted).contains(installed, prereleases=True):
        return Check(name, "ok", installed)
    return Check(name, "wrong", f"{installed}, must be {wanted}", remedy)


# --- folders ----------------------------------------------------------------------------------


class Folder(NamedTuple):
    """A place for files, that is there or can be made."""

    path: str
    existing: str
    """`path`, or the nearest folder above it that exists."""
    is_folder: bool
    writable: bool
    owned: bool
    """By the user who asks."""
    read_only: bool
    """The file system is mounted so."""
    free_bytes: int


def folder(name: str, facts: Folder, *, made_by: str = "") -> list[Check]:
    """Two checks: whether it can be written, and the disk's free space. A missing folder is
    wrong, unless `made_by` says who will make it."""
    place, disk = f"{name} folder", f"{name} disk"
    if not facts.is_folder:
        checks = [Check(place, "wrong", f"{facts.existing} is no folder; name another path")]
    elif facts.existing != facts.path and not made_by:
        remedy = f"mkdir -p {shlex.quote(facts.path)}"
        checks = [Check(place, "wrong", f"{facts.path} does not exist", remedy)]
    elif facts.read_only:
        detail = f"{facts.existing} is on a file system that is mounted read-only"
        checks = [Check(place, "wrong", detail)]
    elif not facts.writable:
        remedy = f"chmod u+rwx {shlex.quote(facts.existing)}"
        checks = [_unwritable(place, facts.existing, facts.owned, remedy)]
    elif facts.existing != facts.path:
        checks = [Check(place, "ok", f"{facts.path}, to be made by {made_by}")]
    else:
        checks = [Check(place, "ok", facts.path)]
    free = f"{_size(facts.free_bytes)} free at {facts.existing}"
    if facts.free_bytes < FREE_BYTES:
        return [*checks, Check(disk, "warning", f"{free}, less than {_size(FREE_BYTES)}")]
    return [*checks, Check(disk, "ok", free)]


def _unwritable(check: str, path: str, owned: bool, remedy: str) -> Check:
    if owned:
        return Check(check, "wrong", f"{path} cannot be written", remedy)
    return Check(check, "wrong", f"{path} belongs to another user, and cannot be written")


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"


# --- an embedded log --------------------------------------------------------------------------


class Contents(NamedTuple):
    """What an embedded log tells of itself: its offsets, what SQLite's quick check found (None
    where it took too long), and its first record."""

    first: int
    end: int
    faults: tuple[str, ...] | None
    opening: Opening


class File(NamedTuple):
    """An embedded log's file."""

    path: str
    network: str | None
    """The type of the network file system that it is on."""
    writable: bool
    owned: bool
    bytes: int
    wal_bytes: int
    contents: Contents | JournalError | None
    """Or why it could not be looked into; None where a WAL waits to be recovered."""


def file(facts: File) -> list[Check]:
    """The checks of an embedded log, but for its folder's."""
    checks = [Check("mount", "ok", "a local file system")]
    if facts.network is not None:
        detail = f"{facts.network}, a network mount, where SQLite can lose data; use a local disk"
        checks = [Check("mount", "wrong", detail)]
    found = facts.contents
    if isinstance(found, JournalError):
        checks.append(Check("log", "wrong", *_unusable(facts.path, found)))
        return checks + skipped(["wal", "integrity", "genesis", "partitions"], "the log is wrong")
    if not facts.writable:
        remedy = f"chmod u+rw {shlex.quote(facts.path)}"
        checks.append(_unwritable("log", facts.path, facts.owned, remedy))
    else:
        held = "" if found is None else f", {_many(found.end - found.first, 'record')}"
        checks.append(Check("log", "ok", f"{facts.path}, {_size(facts.bytes)}{held}"))
    checks.append(_wal(facts.wal_bytes))
    if found is None:
        reason = "a WAL was left behind; the next command that opens the log recovers it"
        return checks + skipped(["integrity", "genesis", "partitions"], reason)
    checks.append(_integrity(facts, found.faults))
    return checks + _openings(facts.path, [found.opening])


def _unusable(path: str, error: JournalError) -> tuple[str, str | None]:
    if isinstance(error, LogNotFound):
        return f"no journal at {path}", f"journal init --log {shlex.quote(path)}"
    return str(error), _UPGRADE if isinstance(error, LogMisconfigured) else None


_UPGRADE = "pip install --upgrade step-journal"


def _wal(count: int) -> Check:
    if count > WAL_BYTES:
        return Check("wal", "warning", f"{_size(count)}; end what has been reading for long")
    return Check("wal", "ok", _size(count))


def _integrity(facts: File, faults: tuple[str, ...] | None) -> Check:
    if faults is None:
        detail = f"not done within {CHECK_S:g} s, for {_size(facts.bytes)}"
        query = f"sqlite3 -readonly {shlex.quote(facts.path)} 'PRAGMA quick_check'"
        return Check("integrity", "skipped", detail, query)
    if faults:
        return Check("integrity", "wrong", f"{'; '.join(faults)}; restore it from a backup")
    return Check("integrity", "ok", "SQLite's quick check finds nothing")


# --- a topic ----------------------------------------------------------------------------------

_OF_TOPIC = ("settings", "replication", "genesis", "partitions")


class Remote(NamedTuple):
    """A Kafka log, as far as it could be looked at: behind an error there is nothing."""

    url: str
    cluster: Cluster | JournalError
    topic: Topic | JournalError | None = None
    findings: Sequence[Finding] = ()
    openings: Sequence[Opening] | JournalError = ()


def remote(facts: Remote, settings: Sequence[str]) -> list[Check]:
    """The checks of a Kafka log; `settings` are those that matter."""
    cluster, topic = facts.cluster, facts.topic
    if isinstance(cluster, JournalError):
        checks = [Check("broker", "wrong", str(cluster))]
        return checks + skipped(["topic", *_OF_TOPIC], "the broker does not answer")
    detail = f"cluster {cluster.cluster_id}, {_many(cluster.brokers, 'broker')}"
    checks = [Check("broker", "ok", f"{detail}, {cluster.round_trip_ms:.0f} ms")]
    if isinstance(topic, LogNotFound):
        remedy = f"journal init --log {shlex.quote(facts.url)}"
        checks.append(Check("topic", "wrong", "does not exist", remedy))
        return checks + skipped(_OF_TOPIC, "there is no topic")
    if topic is None or isinstance(topic, JournalError):
        checks.append(Check("topic", "wrong", str(topic)))
        return checks + skipped(_OF_TOPIC, "the topic does not answer")
    checks.append(Check("topic", "ok", _many(topic.partitions, "partition")))
    checks += _settings(topic, facts.findings, settings)
    checks.append(_replication(topic))
    if isinstance(facts.openings, JournalError):
        checks.append(Check("genesis", "wrong", str(facts.openings)))
        return checks + skipped(["partitions"], "the topic does not answer")
    return checks + _openings(facts.url, facts.openings)


def _settings(topic: Topic, findings: Sequence[Finding], names: Sequence[str]) -> list[Check]:
    if not topic.settings:
        detail = "not checked: this user needs DescribeConfigs on the topic to read them"
        return [Check("settings", "warning", detail)]
    wrong = {
        f.setting: Check(f.setting, "wrong", f"{f.value}, must be {f.wanted}: {f.reason}", f.remedy)
        for f in findings
    }
    return [
        wrong.get(name) or Check(name, "ok", topic.settings.get(name, "unknown to this broker"))
        for name in names
    ]


def _replication(topic: Topic) -> Check:
    count = topic.replication_factor
    setting = topic.settings.get("min.insync.replicas")
    if count == 1 and setting in (None, "1"):
        detail = "1 replica: survives the death of a process, not that of a machine"
        return Check("replication", "warning", detail)
    if setting is None:
        detail = f"{count} replicas, and how many must hold an event is not known"
        return Check("replication", "warning", detail)
    least = int(setting)
    what = f"{_many(count, 'replica')}, min.insync.replicas={least}"
    if least > count:
        return Check("replication", "wrong", f"{what}: nothing can be appended")
    if least == 1:
        detail = f"{what}: the loss of one machine can lose acknowledged events"
        return Check("replication", "warning", detail)
    if least == count:
        detail = f"{what}: while one broker is away nothing can be appended"
        return Check("replication", "warning", detail)
    return Check("replication", "ok", f"{what}: survives the loss of {_many(least - 1, 'machine')}")


# --- both -------------------------------------------------------------------------------------


def _openings(url: str, openings: Sequence[Opening]) -> list[Check]:
    """Of what each partition opens with: the checks `genesis` and `partitions`."""
    genesis = _genesis(url, openings)
    first = openings[0]
    if not isinstance(first, Identity):
        return [genesis, *skipped(["partitions"], "no genesis record tells how many there were")]
    if first.partitions != len(openings):
        detail = (
            f"{len(openings)}, made with {first.partitions}: tasks would be looked for in the "
            f"wrong ones; name a new log"
        )
        return [genesis, Check("partitions", "wrong", detail)]
    return [genesis, Check("partitions", "ok", f"{first.partitions}, as at the beginning")]


def _genesis(url: str, openings: Sequence[Opening]) -> Check:
    for error in openings:
        if isinstance(error, EventTooNew):
            return Check("genesis", "wrong", str(error), _UPGRADE)
        if isinstance(error, JournalError):
            return Check("genesis", "wrong", str(error))
    first = openings[0]
    if not any(openings):
        remedy = f"journal init --log {shlex.quote(url)}"
        return Check("genesis", "wrong", "the log is empty, and nobody's journal yet", remedy)
    for partition, opening in enumerate(openings):
        if opening not in (None, first):
            detail = f"partition {partition} belongs to another journal than partition 0"
            return Check("genesis", "wrong", detail)
    empty = [str(partition) for partition, opening in enumerate(openings) if opening is None]
    if empty:
        detail = f"still missing in partition {', '.join(empty)}; whoever opens the log writes it"
        return Check("genesis", "warning", detail)
    assert isinstance(first, Identity)
    return Check("genesis", "ok", f"journal {first.journal_id}")


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
