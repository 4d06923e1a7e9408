"""Kafka's properties: the file's format, what each becomes, and that no secret shows."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import journal
from journal.backends import is_kafka, open_log
from journal.errors import LogUnavailable, UsageError
from journal.kafka_admin import Topic, findings, misconfigured, settings_for
from journal.kafka_client import Clients, parse_url
from journal.kafka_config import client_options, load

SECRET = "hunter2"
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="me" password="hun\\"ter2";'
)


def written(folder: Path, text: str) -> Path:
    file = folder / "kafka.properties"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_format_is_that_of_java_properties(tmp_path: Path) -> None:
    text = (
        "# a comment\n"
        "  ! another \\\n"
        "client.id = a b \n"
        "security.protocol:SASL_PLAINTEXT\r\n"
        "sasl.mechanism PLAIN\n"
        "\n"
        "sasl.username=\\u00e4\\=\\:\\\\\n"
        "sasl.password = one\\\n"
        "    two\\tthree\n"
    )
    assert dict(load(written(tmp_path, text))) == {
        "client.id": "a b ",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ä=:\\",
        "sasl.password": "onetwo\tthree",
    }


def test_without_properties_there_are_defaults() -> None:
    options = client_options(None)
    assert options["security_protocol"] == "PLAINTEXT"
    assert options["client_id"] == "step-journal"
    assert "ssl_context" not in options


def test_a_file_may_stand_for_its_properties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = written(tmp_path, "client.id=named\n")
    assert client_options(named)["client_id"] == "named"
    assert client_options(str(named))["client_id"] == "named"
    monkeypatch.setenv("JOURNAL_KAFKA_CONFIG", str(named))
    assert client_options(None)["client_id"] == "named"
    # What is given counts alone.
    assert client_options({})["client_id"] == "step-journal"
    monkeypatch.setenv("JOURNAL_KAFKA_CONFIG", "")
    assert client_options(None)["client_id"] == "step-journal"
    with pytest.raises(UsageError, match=r"cannot read the Kafka properties none\.properties"):
        client_options("none.properties")


def test_times_are_numbers() -> None:
    options = client_options({"request.timeout.ms": "1234", "retry.backoff.ms": "5"})
    assert options["request_timeout_ms"] == 1234
    assert options["retry_backoff_ms"] == 5


@pytest.mark.parametrize(
    "config",
    [
        {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS},
        {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "me", "sasl.password": 'hun"ter2'},
    ],
)
def test_credentials_in_either_style(config: dict[str, str]) -> None:
    options = client_options({"security.protocol": "SASL_SSL", **config})
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert options["sasl_plain_username"] == "me"
    assert options["sasl_plain_password"] == 'hun"ter2'
    assert isinstance(options["ssl_context"], ssl.SSLContext)


def test_the_host_name_is_checked_unless_told_otherwise() -> None:
    config = {"security.protocol": "SSL"}
    assert client_options(config)["ssl_context"].check_hostname
    config["ssl.endpoint.identification.algorithm"] = ""
    context = client_options(config)["ssl_context"]
    assert not context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("sasl.pasword=hunter2", "not a property"),
        ("acks=1", "must be durable"),
        ("enable.idempotence=false", "change nothing"),
        ("bootstrap.servers=a:1", "URL"),
        ("request.timeout.ms=soon", "milliseconds"),
        ("request.timeout.ms=-1", "milliseconds"),
        ("security.protocol=TLS", "SASL_SSL"),
        ("sasl.password=hunter2", "no effect"),
        ("ssl.ca.location=/x", "no effect"),
        ("client.id=b", "set twice"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, why: str) -> None:
    file = written(tmp_path, f"# first\nclient.id=a\n{line}\n")
    with pytest.raises(UsageError) as caught:
        load(file)
    message = str(caught.value)
    name = line.split("=")[0]
    assert message.startswith(f"{file}:3: {name}")
    assert why in message
    assert SECRET not in message
    assert "\n" not in message


SASL = {"security.protocol": "SASL_PLAINTEXT"}
TLS = {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (SASL, "sasl.mechanisms: must be one of"),
        (SASL | {"sasl.mechanism": "OAUTHBEARER"}, "must be one of"),
        (SASL | {"sasl.mechanism": "PLAIN", "sasl.username": "me"}, "needs sasl.username and"),
        (SASL | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": SECRET}, "must read"),
        (
            SASL | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS, "sasl.password": SECRET},
            "keep one",
        ),
        (TLS | {"ssl.truststore.type": "JKS"}, "must be PEM"),
        (TLS | {"ssl.truststore.location": "/does/not/exist"}, "PEM certificates"),
        (TLS | {"ssl.truststore.certificates": SECRET}, "PEM certificates"),
        (TLS | {"ssl.keystore.location": "/does/not/exist"}, "PEM certificate with its key"),
        (TLS | {"ssl.endpoint.identification.algorithm": "no"}, "must be https"),
    ],
)
def test_what_cannot_be_used_is_refused(config: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        client_options(config)
    assert why in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.properties: No such file"):
        load(tmp_path / "none.properties")


def test_no_repr_shows_a_value(tmp_path: Path) -> None:
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=me\n"
    text += f"sasl.password={SECRET}\n"
    properties = load(written(tmp_path, text))
    assert "sasl.password" in repr(properties)
    assert SECRET not in repr(properties)
    assert SECRET not in str(properties)


def test_a_key_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(UsageError, match=r"ssl\.key\.password"):
        client_options(TLS | {"ssl.keystore.location": str(file)})


class NoTicket(Exception):
    """What `gssapi` raises."""


class Refused:
    """A client that gets no ticket."""

    def __init__(self) -> None:
        self._client = self
        self.closed = False

    async def start(self) -> None:
        raise NoTicket("Major (458752): No credentials, Minor (2529639053): No cache (FILE:cc)")

    async def close(self) -> None:
        self.closed = True


async def test_a_kerberos_ticket_that_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = Clients(parse_url("kafka://h:1/t"), client_options({}))
    with pytest.raises(NoTicket):
        await clients._started(Refused())
    package = SimpleNamespace(exceptions=SimpleNamespace(GSSError=NoTicket))
    monkeypatch.setitem(sys.modules, "gssapi", package)
    client = Refused()
    with pytest.raises(LogUnavailable) as raised:
        await clients._started(client)
    assert str(raised.value) == (
        "cannot use Kafka at h:1: Kerberos says: No cache (FILE:cc); kinit gets a ticket"
    )
    assert client.closed


@pytest.mark.parametrize(("replication_factor", "least"), [(1, "1"), (2, "1"), (3, "2"), (5, "2")])
def test_the_replicas_that_must_be_in_sync(replication_factor: int, least: str) -> None:
    settings = settings_for(replication_factor)
    assert settings["min.insync.replicas"] == least
    address = parse_url("kafka://a:1,b:2/t")
    assert findings(address, Topic(12, replication_factor, settings)) == []
    weaker = settings | {"min.insync.replicas": "1"}
    found = findings(address, Topic(12, replication_factor, weaker))
    assert [f.wanted for f in found] == ([] if least == "1" else ["2"])
    stronger = settings | {"min.insync.replicas": str(replication_factor)}
    assert findings(address, Topic(12, replication_factor, stronger)) == []
    impossible = settings | {"min.insync.replicas": str(replication_factor + 1)}
    assert len(findings(address, Topic(12, replication_factor, impossible))) == 1


def test_several_wrong_settings_have_one_remedy() -> None:
    address = parse_url("kafka://a:1,b:2/t")
    settings = settings_for(3) | {"retention.ms": "1", "min.insync.replicas": "1"}
    found = findings(address, Topic(12, 3, settings))
    assert str(misconfigured(address, found)).endswith(
        "fix it with: kafka-configs.sh --bootstrap-server a:1,b:2 --alter --entity-type topics "
        "--entity-name t --add-config retention.ms=-1,min.insync.replicas=2"
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("foo://x", "foo://x"),
        ("KAFKA://h:1/t", "KAFKA://h:1/t"),
        ("postgres://me:hunter2@h/x", "postgres://h/x"),
        ("redis://:hunter2@h@x", "redis://x"),
    ],
)
async def test_what_no_log_speaks_is_said_at_once_and_without_a_password(
    url: str, shown: str
) -> None:
    for refused in (lambda: journal.connect(url), lambda: is_kafka(url)):
        with pytest.raises(UsageError) as raised:
            refused()
        assert str(raised.value) == (
            f"no log speaks {shown}; give a path, or kafka://host:port/topic"
        )


@pytest.mark.parametrize(
    "wanted", [{"partitions": 0}, {"partitions": -1}, {"replication_factor": 0}]
)
async def test_a_topic_of_no_partition_is_wrong_usage(wanted: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="one partition and one replica at least"):
        await open_log("kafka://127.0.0.1:1/t", create=True, **wanted)  # type: ignore[arg-type]
