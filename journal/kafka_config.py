"""Kafka's own property names, as its operators know them, turned into the client's options.

Reads a properties file or takes a mapping; knows security and time-outs, nothing of topics or
records. No value ever reaches a message or a `repr`: any of them may be a password.
"""

from __future__ import annotations

import importlib.util
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from journal.errors import UsageError

Config = Mapping[str, str] | str | os.PathLike[str]
"""Kafka's properties, or the file that they stand in."""

Options = dict[str, Any]
"""Keyword arguments that every client class of aiokafka takes."""

DEFAULTS: Options = {
    "client_id": "step-journal",
    # A connection that went dead without a word is given up after this, well inside an
    # append's deadline.
    "request_timeout_ms": 8_000,
    "retry_backoff_ms": 100,
}

_PLAIN = {
    "client.id": "client_id",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}
_MILLISECONDS = {
    "request.timeout.ms": "request_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
}
_SASL = {
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
}
_SSL = {
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.ca.location",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
_OURS = {
    "bootstrap.servers": "the log's URL names the brokers",
    "acks": "the journal sets it: a step that returns must be durable",
    "enable.idempotence": "the journal sets it: a retried append must change nothing",
    "auto.offset.reset": "the journal sets it: a gap must never be skipped in silence",
    "isolation.level": "the journal sets it: it writes no transactions",
    "group.id": "readers of the journal use no group",
    "ssl.truststore.password": "a PEM trust store has none; remove it",
    "ssl.keystore.password": "a PEM key store has none; ssl.key.password opens its key",
}


class Properties(Mapping[str, str]):
    """Properties with the place each one came from; shows names, never values."""

    def __init__(self, values: Mapping[str, str], source: str, lines: Mapping[str, int]) -> None:
        self._values = dict(values)
        self._source = source
        self._lines = dict(lines)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Properties({self._source!r}, {sorted(self._values)})"

    def where(self, name: str) -> str:
        line = self._lines.get(name)
        return f"{self._source}:{line}" if line else self._source


def load(path: str | os.PathLike[str]) -> Properties:
    """Read a file in Java's properties format and check every property of it.

    Raises `UsageError` with file, line and property.
    """
    source = os.fspath(path)
    try:
        with open(source, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the Kafka properties {source}: {reason}") from None
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in _logical_lines(text):
        name, value = _split(line)
        if name in values:
            raise UsageError(f"{source}:{number}: {name} is set twice; keep one of the two")
        values[name] = value
        lines[name] = number
    properties = Properties(values, source, lines)
    client_options(properties)
    return properties


def client_options(config: Config | None) -> Options:
    """aiokafka's options for these properties, over `DEFAULTS`: a mapping's, a file's, or, where
    neither is given, those of the file that `JOURNAL_KAFKA_CONFIG` names, if it names one.

    Raises `UsageError` for a property that is unknown, not supported, or has an unusable value.
    """
    if config is None:
        config = os.environ.get("JOURNAL_KAFKA_CONFIG") or {}
    if not isinstance(config, Mapping):
        config = load(config)
    properties = config if isinstance(config, Properties) else Properties(config, "config", {})

    def refuse(name: str, why: str) -> UsageError:
        return UsageError(f"{properties.where(name)}: {name}: {why}")

    options = dict(DEFAULTS)
    for name, value in properties.items():
        if name in _PLAIN:
            options[_PLAIN[name]] = value
        elif name in _MILLISECONDS:
            if not re.fullmatch(r"[0-9]+", value.strip()):
                raise refuse(name, "must be a whole number of milliseconds")
            options[_MILLISECONDS[name]] = int(value)
        elif name in _OURS:
            raise refuse(name, _OURS[name])
        elif name not in _SASL | _SSL and name != "security.protocol":
            raise refuse(name, "not a property that the journal knows; see docs/kafka.md")
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise refuse("security.protocol", f"must be one of {', '.join(_PROTOCOLS)}")
    options["security_protocol"] = protocol
    _reject_idle(properties, protocol, refuse)
    if protocol.startswith("SASL_"):
        options |= _sasl(properties, refuse)
    if protocol.endswith("SSL"):
        options["ssl_context"] = _ssl_context(properties, refuse)
    return options


Refuse = Callable[[str, str], UsageError]


def _reject_idle(properties: Properties, protocol: str, refuse: Refuse) -> None:
    # Credentials beside a protocol that does not use them mean a connection that is not what
    # its operator believes it to be.
    for name in properties:
        if name in _SASL and not protocol.startswith("SASL_"):
            raise refuse(name, f"has no effect with security.protocol={protocol}; use SASL_SSL")
        if name in _SSL and not protocol.endswith("SSL"):
            raise refuse(name, f"has no effect with security.protocol={protocol}; use SSL")


def _sasl(properties: Properties, refuse: Refuse) -> Options:
    name = "sasl.mechanism" if "sasl.mechanism" in properties else "sasl.mechanisms"
    mechanism = properties.get(name, "").strip().upper()
    if mechanism not in _MECHANISMS:
        raise refuse(name, f"must be one of {', '.join(_MECHANISMS)}")
    options: Options = {"sasl_mechanism": mechanism}
    if mechanism == "GSSAPI":
        if importlib.util.find_spec("gssapi") is None:
            raise refuse(name, "GSSAPI needs the Python package gssapi; install it")
        return options
    user, password = properties.get("sasl.username"), properties.get("sasl.password")
    jaas = properties.get("sasl.jaas.config")
    if jaas is not None:
        if user is not None or password is not None:
            raise refuse("sasl.jaas.config", "is given beside sasl.username; keep one of the two")
        fields = dict(_JAAS_FIELD.findall(jaas))
        if not _JAAS.fullmatch(jaas.strip()):
            raise refuse(
                "sasl.jaas.config",
                "must read: org.apache.kafka.common.security.plain.PlainLoginModule required "
                'username="..." password="..."; (or scram.ScramLoginModule)',
            )
        user, password = (
            re.sub(r"\\(.)", r"\1", fields[key]) if key in fields else None
            for key in ("username", "password")
        )
    if not user or password is None:
        raise refuse(name, f"{mechanism} needs sasl.username and sasl.password")
    return options | {"sasl_plain_username": user, "sasl_plain_password": password}


_JAAS_FIELD = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_JAAS = re.compile(
    r"org\.apache\.kafka\.common\.security\.(?:plain\.PlainLoginModule|scram\.ScramLoginModule)"
    r'\s+required(?:\s+\w+\s*=\s*"(?:[^"\\]|\\.)*")*\s*;'
)


def _ssl_context(properties: Properties, refuse: Refuse) -> ssl.SSLContext:
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if properties.get(name, "PEM").strip().upper() != "PEM":
            raise refuse(
                name, "must be PEM; convert a JKS or PKCS12 store with keytool and openssl"
            )
    context = ssl.create_default_context()
    for name in ("ssl.truststore.location", "ssl.ca.location"):
        if name in properties:
            context = _trust(name, refuse, cafile=properties[name])
    if "ssl.truststore.certificates" in properties:
        name = "ssl.truststore.certificates"
        context = _trust(name, refuse, cadata=properties[name])
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", "", "none"):
        raise refuse("ssl.endpoint.identification.algorithm", "must be https, or empty")
    context.check_hostname = algorithm == "https"
    store = properties.get("ssl.keystore.location")
    certificate = properties.get("ssl.certificate.location", store)
    if certificate is not None:
        name = "ssl.certificate.location" if store is None else "ssl.keystore.location"
        # A password is always handed over: without one OpenSSL would ask on the terminal.
        password = properties.get("ssl.key.password", "")
        try:
            context.load_cert_chain(certificate, properties.get("ssl.key.location"), password)
        except (OSError, ValueError):
            raise refuse(
                name,
                "cannot be read as a PEM certificate with its key (or ssl.key.password is wrong)",
            ) from None
    return context


def _trust(name: str, refuse: Refuse, **source: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(**source)  # type: ignore[arg-type]
    except (OSError, ValueError):
        raise refuse(name, "cannot be read as PEM certificates") from None


# --- the file's format ------------------------------------------------------------------------

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAME = re.compile(r"((?:[^\\=:\s]|\\.)*)\s*[=:]?\s*", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their first number: comments dropped, continued lines joined."""
    begun: str | None = None
    first = 0
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        line = raw.lstrip(" \t\f")
        if begun is None:
            if not line or line[0] in "#!":
                continue
            begun, first = "", number
        # An odd number of backslashes at the end continues the line.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun += line[:-1]
        else:
            yield first, begun + line
            begun = None
    if begun:
        yield first, begun


def _split(line: str) -> tuple[str, str]:
    match = _NAME.match(line)
    assert match is not None
    return _unescape(match[1]), _unescape(line[match.end() :])


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        found = match[1]
        return chr(int(found[1:], 16)) if len(found) > 1 else _CONTROL.get(found, found)

    return _ESCAPE.sub(one, text)
