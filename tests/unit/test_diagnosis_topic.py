"""What the facts about a topic are taken to mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from journal.cli.diagnosis import Check, Remote, remote
from journal.errors import EventTooNew, LogNotFound, LogUnavailable, NotAJournal
from journal.genesis import Identity
from journal.kafka_admin import FIXED, Topic, findings, settings_for
from journal.kafka_client import Address
from journal.kafka_look import Cluster

URL = "kafka://a:1/t"
SETTINGS = [*FIXED, "min.insync.replicas"]
OURS = Identity("j", 1)


def by_name(checks: list[Check]) -> dict[str, Check]:
    assert not any("\n" in check.detail for check in checks)
    return {check.check: check for check in checks}


@dataclass
class Around:
    """A topic, and what is found about it."""

    replicas: int = 3
    partitions: int = 3
    change: dict[str, str] = field(default_factory=dict)
    openings: Any = None

    def checks(self) -> dict[str, Check]:
        topic = Topic(self.partitions, self.replicas, settings_for(self.replicas) | self.change)
        wrong = findings(Address(URL, "a:1", "t"), topic)
        openings = [Identity("j", 3)] * self.partitions if self.openings is None else self.openings
        facts = Remote(URL, Cluster("c", 3, 1.4), topic, wrong, openings)
        return by_name(remote(facts, SETTINGS))


def test_a_topic_that_is_in_order() -> None:
    found = Around().checks()
    names = ["broker", "topic", *SETTINGS, "replication", "genesis", "partitions"]
    assert list(found) == names
    assert {check.status for check in found.values()} == {"ok"}
    assert found["broker"].detail == "cluster c, 3 brokers, 1 ms"
    assert "survives the loss of 1 machine" in found["replication"].detail


def test_every_wrong_setting_is_listed_with_its_remedy() -> None:
    change = {"retention.ms": "5", "cleanup.policy": "compact", "min.insync.replicas": "1"}
    found = Around(change=change).checks()
    assert {name for name, check in found.items() if check.status == "wrong"} == set(change)
    for name, value in change.items():
        assert found[name].detail.startswith(f"{value}, must be ")
        assert f"--add-config {name}=" in str(found[name].remedy)


@pytest.mark.parametrize(
    ("replicas", "least", "status", "words"),
    [
        (1, "1", "warning", "not that of a machine"),
        (1, None, "warning", "not that of a machine"),
        (1, "2", "wrong", "nothing can be appended"),
        (2, "1", "warning", "one machine can lose"),
        (2, "2", "warning", "while one broker is away"),
        (3, "1", "warning", "one machine can lose"),
        (3, "2", "ok", "loss of 1 machine"),
        (3, "3", "warning", "while one broker is away"),
        (3, None, "warning", "not known"),
        (5, "3", "ok", "loss of 2 machines"),
    ],
)
def test_what_replication_survives(
    replicas: int, least: str | None, status: str, words: str
) -> None:
    settings = {} if least is None else {"min.insync.replicas": least}
    topic = Topic(1, replicas, settings)
    facts = Remote(URL, Cluster("c", 3, 1.0), topic, (), [OURS])
    found = by_name(remote(facts, SETTINGS))
    assert found["replication"].status == status
    assert words in found["replication"].detail
    if least is None:
        assert found["settings"].status == "warning"
        assert "DescribeConfigs" in found["settings"].detail


def test_a_setting_that_the_broker_does_not_know_is_no_fault() -> None:
    topic = Topic(1, 1, {"retention.ms": "-1"})
    found = by_name(remote(Remote(URL, Cluster("c", 1, 1.0), topic, (), [OURS]), SETTINGS))
    assert {found[name].status for name in SETTINGS} == {"ok"}
    assert found["cleanup.policy"].detail == "unknown to this broker"


@pytest.mark.parametrize(
    ("openings", "status", "words", "remedy"),
    [
        ([None, None, None], "wrong", "empty", "journal init --log kafka://a:1/t"),
        ([Identity("j", 3), None, None], "warning", "in partition 1, 2", None),
        ([None, Identity("j", 3), None], "wrong", "partition 1 belongs to another", None),
        ([Identity("j", 3), Identity("k", 3), None], "wrong", "partition 1 belongs", None),
        ([Identity("j", 3), None, NotAJournal("2 is none")], "wrong", "2 is none", None),
        (
            [EventTooNew("JournalCreated", 2, "0:0"), None, None],
            "wrong",
            "newer release",
            "pip install --upgrade step-journal",
        ),
        (LogUnavailable("away"), "wrong", "away", None),
    ],
)
def test_the_records_that_open_the_partitions(
    openings: Any, status: str, words: str, remedy: str | None
) -> None:
    found = Around(openings=openings).checks()
    assert (found["genesis"].status, found["genesis"].remedy) == (status, remedy)
    assert words in found["genesis"].detail
    known = isinstance(openings, list) and isinstance(openings[0], Identity)
    assert found["partitions"].status == ("ok" if known else "skipped")


def test_partitions_that_were_added_are_wrong() -> None:
    found = Around(partitions=4, openings=[*[Identity("j", 3)] * 3, None]).checks()
    assert found["partitions"].status == "wrong"
    assert found["partitions"].detail.startswith("4, made with 3")


@pytest.mark.parametrize(
    ("facts", "wrong", "reason"),
    [
        (Remote(URL, LogUnavailable("away")), "broker", "the broker does not answer"),
        (
            Remote(URL, Cluster("c", 1, 1.0), LogNotFound("none")),
            "topic",
            "there is no topic",
        ),
        (
            Remote(URL, Cluster("c", 1, 1.0), LogUnavailable("no leader")),
            "topic",
            "the topic does not answer",
        ),
    ],
)
def test_what_comes_after_a_failure_is_skipped(facts: Remote, wrong: str, reason: str) -> None:
    found = by_name(remote(facts, SETTINGS))
    names = ["broker", "topic", "settings", "replication", "genesis", "partitions"]
    assert list(found) == names
    at = names.index(wrong)
    assert [found[name].status for name in names] == [
        *["ok"] * at,
        "wrong",
        *["skipped"] * (len(names) - at - 1),
    ]
    assert {found[name].detail for name in names[at + 1 :]} == {reason}
    if reason == "there is no topic":
        assert found["topic"].remedy == f"journal init --log {URL}"
