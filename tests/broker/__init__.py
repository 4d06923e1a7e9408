"""A real Kafka broker for tests and benchmarks: which one, and how to get at it.

Knows nothing of the journal. `session_address()` is for everybody who only needs an address;
`new_broker()` gives a broker of one's own that may be killed and restarted.

Environment:

- `JOURNAL_TEST_KAFKA=host:port`: use that broker, start none;
- `JOURNAL_TEST_BROKER=java|docker`: start this kind and no other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.broker.base import Broker, BrokerFailed, NoBroker
from tests.broker.docker import DockerBroker
from tests.broker.java import JavaBroker

__all__ = ["Broker", "BrokerFailed", "NoBroker", "new_broker", "session_address"]


def new_broker(
    *, properties: Mapping[str, str] | None = None, quick_restart: bool = False
) -> Broker:
    """A broker that is not started yet. Raises `NoBroker` where none can be had.

    `properties` are Kafka's own and come on top of ours. `quick_restart` lets a killed broker
    serve again after about 7 s instead of 15 s; on a busy machine it may also lose its
    leadership for a moment, so it is for tests that kill.
    """
    wanted = os.environ.get("JOURNAL_TEST_BROKER", "")
    kinds: dict[str, type[Broker]] = {"java": JavaBroker, "docker": DockerBroker}
    if wanted and wanted not in kinds:
        raise BrokerFailed(f"JOURNAL_TEST_BROKER is java or docker, not {wanted!r}")
    reasons = []
    for kind in [wanted] if wanted else kinds:
        reason = kinds[kind].missing()
        if reason is None:
            return kinds[kind](dict(properties or {}), quick_restart=quick_restart)
        reasons.append(f"{kind}: {reason}")
    raise NoBroker("no Kafka broker (" + "; ".join(reasons) + ")")


@contextmanager
def session_address() -> Iterator[str]:
    """ "host:port" of a broker that serves; one that was started here is stopped at the end."""
    given = os.environ.get("JOURNAL_TEST_KAFKA")
    if given:
        yield given
        return
    broker = new_broker()
    try:
        broker.start()
        yield broker.address
    finally:
        broker.stop()
