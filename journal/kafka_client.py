"""Getting at a Kafka cluster: the log's URL, clients that are started, errors that say why not.

Knows addresses and aiokafka's client classes; knows nothing of appends, reads or settings.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from journal.errors import LogUnavailable, UsageError
from journal.kafka_config import Options

_PROBE_S = 2.0
_RETIRE_S = 1.0

# aiokafka reports every failed attempt of a broken connection as an error. Without this, Python
# prints them all for a program that has set up no logging; one that has, still gets them.
logging.getLogger("aiokafka").addHandler(logging.NullHandler())


def _is_no_login(record: logging.LogRecord) -> bool:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any("Sasl" in type(argument).__name__ for argument in arguments)


# At DEBUG it shows every request, and one of them is the password.
logging.getLogger("aiokafka.conn").addFilter(_is_no_login)

_BROKER = r"(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?"
_URL = re.compile(rf"kafka://({_BROKER}(?:,{_BROKER})*)/([A-Za-z0-9._-]{{1,249}})")


class Address(NamedTuple):
    url: str
    brokers: str
    """"host:port", or several of them with commas."""
    topic: str


def parse_url(url: str) -> Address:
    """Raises `UsageError` unless it is `kafka://host:port[,host:port]/topic`."""
    match = _URL.fullmatch(url)
    if match is None or match[2] in {".", ".."}:
        # What stands before an @ may be a password.
        shown = "the URL" if "@" in url else url
        raise UsageError(f"{shown} is not of the form kafka://host:port[,host:port]/topic")
    return Address(url, match[1], match[2])


class Clients:
    """Makes aiokafka's clients for one cluster, all with the same options."""

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self._options = options
        brokers = address.brokers.split(",")
        self._common: Options = {"bootstrap_servers": brokers, **options}
        # The client tries one broker after the other, each for as long as a request may take.
        self.connect_s = len(brokers) * options["request_timeout_ms"] / 1000 + 1
        self.on_metadata: Callable[[object], None] | None = None
        """Called when a client of ours has asked anew where the topic's partitions are: now and
        then, and whenever one was not where it was before, or not there at all."""

    async def producer(self, batch_bytes: int) -> AIOKafkaProducer:
        """A started idempotent producer. Raises `LogUnavailable`."""
        producer = await self._started(
            AIOKafkaProducer(
                **self._common,
                acks="all",
                enable_idempotence=True,
                compression_type="zstd",
                linger_ms=0,
                max_batch_size=batch_bytes,
                # The broker knows its limit and refuses by name; a second one here only
                # disagrees with it some day.
                max_request_size=2**30,
            )
        )
        self._watch(producer.client)
        return producer

    async def consumer(
        self, max_wait_ms: int = 500, *, group: str | None = None
    ) -> AIOKafkaConsumer:
        """A started consumer without an assignment. Raises `LogUnavailable`.

        The broker answers an idle fetch after `max_wait_ms`; until then it answers nothing else
        on that connection. `group` is only for whoever commits its offsets.
        """
        consumer = await self._started(
            AIOKafkaConsumer(
                **self._common,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_wait_ms=max_wait_ms,
                max_partition_fetch_bytes=4 * 2**20,
            )
        )
        self._watch(consumer._client)
        return consumer

    def _watch(self, client: Any) -> None:
        told, beginning = self.on_metadata, True

        def asked(cluster: object) -> None:
            nonlocal beginning
            if told is not None and not beginning:
                told(cluster)
            beginning = False

        # The first time it asks because it has just begun.
        client.cluster.add_listener(asked)

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        """An admin client for a few requests. Raises `LogUnavailable`."""
        client = await self._started(AIOKafkaAdminClient(**self._common))
        try:
            yield client
        finally:
            await client.close()

    async def _started(self, client: Any) -> Any:
        _close_late_connections(client)
        stop = getattr(client, "stop", None) or client.close
        try:
            async with asyncio.timeout(self.connect_s):
                await client.start()
        except TimeoutError:
            await stop()
            raise self.unavailable(f"no answer within {self.connect_s:.0f} s") from None
        except (KafkaError, OSError):
            # The client tells that it failed, not why.
            await stop()
            raise self.unavailable(await self._reason()) from None
        except _no_tickets() as error:
            await stop()
            why = str(error).rpartition("): ")[2]
            raise self.unavailable(f"Kerberos says: {why}; kinit gets a ticket") from None
        except BaseException:
            await stop()
            raise
        return client

    def unavailable(self, why: str) -> LogUnavailable:
        return LogUnavailable(f"cannot use Kafka at {self.address.brokers}: {why}")

    def closed(self) -> LogUnavailable:
        return LogUnavailable(f"{self.address.url} was closed")

    async def _reason(self) -> str:
        """Connect once more, by hand, to the first broker, and say in a few words what fails."""
        broker = self.address.brokers.split(",")[0]
        host, _, port = broker.rpartition(":") if re.search(r":\d+$", broker) else (broker, "", "")
        options = {k: v for k, v in self._options.items() if k not in _NOT_OF_A_CONNECTION}
        try:
            async with asyncio.timeout(_PROBE_S):
                connection = await create_conn(host.strip("[]"), int(port or 9092), **options)
        except TimeoutError:
            return "it does not answer"
        except ssl.SSLCertVerificationError as error:
            return _distrust(host, error)
        except ssl.SSLError as error:
            return f"the TLS handshake failed ({error.reason or error}); check the Kafka properties"
        except socket.gaierror:
            return "the host name is unknown"
        except OSError as error:
            if error.errno:
                return f"{os.strerror(error.errno).lower()}; is the broker running?"
            return "it closes the connection; do security.protocol and port fit together?"
        except UnsupportedSaslMechanismError:
            return "it does not offer this sasl.mechanism; use one that it does"
        except (AuthenticationFailedError, SaslAuthenticationFailed):
            return "it refuses the credentials; check user, password and sasl.mechanism"
        except KafkaError as error:
            return f"{type(error).__name__}; do security.protocol and port fit together?"
        connection.close()
        return "it answers, but not yet with a cluster; try again"


class _Late(dict[Any, Any]):
    """The connections of a client that is closed."""

    def __setitem__(self, key: Any, connection: Any) -> None:
        connection.close()
        super().__setitem__(key, connection)


def _close_late_connections(client: Any) -> None:
    """What a client was asked for goes on after its end, and may connect once more: nobody would
    close that, and Python would complain."""
    inner = client.client if isinstance(client, AIOKafkaProducer) else client._client
    close = inner.close

    async def close_for_good() -> None:
        await close()
        inner._conns = _Late()

    inner.close = close_for_good


def _distrust(host: str, error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _OF_ANOTHER_HOST:
        return (
            f"its certificate is not for {host}; use a name in it, or leave "
            f"ssl.endpoint.identification.algorithm empty"
        )
    why = error.verify_message or "no reason given"
    return f"its certificate is not trusted ({why}); name its authority in ssl.truststore.location"


def _no_tickets() -> tuple[type[Exception], ...]:
    """What the package that the client asks for Kerberos tickets raises, where that is loaded:
    the client lets it through as it is."""
    gssapi = sys.modules.get("gssapi")
    return () if gssapi is None else (gssapi.exceptions.GSSError,)


_OF_ANOTHER_HOST = (62, 64)
"""OpenSSL's codes for a name, and for an address, that is not in a certificate."""

_NOT_OF_A_CONNECTION = {"retry_backoff_ms", "metadata_max_age_ms", "connections_max_idle_ms"}


async def retire(producer: AIOKafkaProducer) -> None:
    """Stop a producer without waiting for what it could not send; that is never settled.

    Its own `stop` waits for every batch, for ever when the broker is away, and closing its
    connections makes it open new ones; so its sender is ended first.
    """
    sender = producer._sender.sender_task
    for _ in range(2):
        # The first cancel ends the loop once requests in flight are answered, the second those.
        sender.cancel()
        await asyncio.wait([sender], timeout=_RETIRE_S)
    producer._closed = True
    await producer.client.close()


def words(error: BaseException) -> str:
    """An error's name and text on one line."""
    return " ".join(f"{type(error).__name__} {error}".split())


class Outage:
    """Says once, to the logger `journal`, that Kafka is away, and once that it is back.

    Several parts of a log notice it on their own; each gives its name.
    """

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers
        self._down: set[str] = set()

    def down(self, who: str, why: str) -> None:
        if not self._down:
            _log.warning("Kafka at %s is away (%s: %s); trying again", self._brokers, who, why)
        self._down.add(who)

    def up(self, who: str) -> None:
        if who in self._down:
            self._down.discard(who)
            if not self._down:
                _log.warning("Kafka at %s is back", self._brokers)


_log = logging.getLogger("journal")
