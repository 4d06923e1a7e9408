"""What every broker of the tests can do, and the small things that all kinds need."""

from __future__ import annotations

import random
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # The default of 128 MiB is taken from the heap at the start.
    "log.cleaner.dedupe.buffer.size": "4194304",
}
QUICK_RESTART = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
START_S = 90.0


class NoBroker(Exception):
    """This machine has nothing to run a broker with."""


class BrokerFailed(Exception):
    """A broker could have run here but did not; the message holds its output."""


class Broker(ABC):
    """One node, on ports and with data that outlive a kill. Methods block; from a coroutine,
    call them through `asyncio.to_thread`."""

    address: str
    """"host:port" for clients; the same after a restart."""

    def __init__(self, properties: dict[str, str], *, quick_restart: bool) -> None:
        self.properties = PROPERTIES | (QUICK_RESTART if quick_restart else {}) | properties

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """Why this kind cannot be run here; None where it can."""

    @abstractmethod
    def start(self) -> None:
        """Start, or start again after `kill`, and return once it serves."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL, as a power cut would. Data and ports are kept for `start`."""

    @abstractmethod
    def stop(self) -> None:
        """Kill it if it runs, and leave nothing behind. Safe to call twice."""

    @abstractmethod
    def output(self) -> str:
        """The end of what it has printed."""

    def restart(self) -> None:
        self.kill()
        self.start()


def free_ports(count: int) -> list[int]:
    """TCP ports on which nobody listens, from below the range of outgoing connections: there a
    client that keeps trying a dead broker's port could connect to itself, or take the port."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


def serves(address: str, brokers: int = 1) -> bool:
    """True once the broker counts itself, and as many as `brokers` in all, among the living: long
    before that it accepts connections and even answers, but leads no partition."""
    host, port = address.rsplit(":", 1)
    # Metadata v1 about no topics: length, api key 3, version 1, correlation id, no client id, 0.
    request = struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0)
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.sendall(request)
            with connection.makefile("rb") as answer:
                _, _, living = struct.unpack(">iii", answer.read(12))
    except (OSError, struct.error):
        return False
    return bool(living >= brokers)


def wait_until_serves(broker: Broker, died: Callable[[], bool]) -> None:
    """Raise `BrokerFailed` with the output where `died()` says so or time runs out."""
    deadline = time.monotonic() + START_S
    while not serves(broker.address):
        late = time.monotonic() > deadline
        if late or died():
            what = f"does not serve after {START_S:.0f} s" if late else "ended"
            raise BrokerFailed(f"the Kafka broker {what}:\n{broker.output()}")
        time.sleep(0.05)
