"""Three brokers of one cluster on this machine's Java, each to be killed, frozen or shut down.

Knows nothing of topics. Takes about 15 s to start, and 1 GB.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.broker.base import START_S, BrokerFailed, serves
from tests.broker.java import JavaBroker

SIZE = 3
_REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    # Leaders go back to where they were soon after their broker is back, and not in minutes.
    "leader.imbalance.check.interval.seconds": "2",
    "leader.imbalance.per.broker.percentage": "0",
}


class Cluster:
    """`brokers[n]` has the node id n + 1. With `controllers=1` the first broker alone is the
    controller, so that the others may both be away and it still decides who leads."""

    def __init__(self, *, controllers: int = SIZE) -> None:
        self.brokers = [JavaBroker(dict(_REPLICATED), quick_restart=True) for _ in range(SIZE)]
        voting = self.brokers[:controllers]
        voters = ",".join(f"{n}@{broker.controller}" for n, broker in enumerate(voting, 1))
        for n, broker in enumerate(self.brokers, 1):
            broker.properties |= {"node.id": str(n), "controller.quorum.voters": voters}
            if n > controllers:
                broker.properties["process.roles"] = "broker"
        self.address = ",".join(broker.address for broker in self.brokers)

    def start(self, which: Sequence[JavaBroker] = ()) -> None:
        """Start these, or all, at once, and return when each counts all three among the living.
        Raises `BrokerFailed`."""
        starting = which or self.brokers
        with ThreadPoolExecutor(SIZE) as pool:
            list(pool.map(JavaBroker.start, starting))
        deadline = time.monotonic() + START_S
        while not all(serves(broker.address, SIZE) for broker in self.brokers):
            if time.monotonic() > deadline:
                raise BrokerFailed(f"no cluster of {SIZE}:\n{starting[0].output()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill all, and leave nothing behind."""
        for broker in self.brokers:
            broker.stop()
