"""A cluster of three whose brokers go away, one or two at a time, under agents at work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from projector.reporting import reader_name
from tests.attacks import Rounds
from tests.broker.cluster import Cluster
from tests.broker.java import JavaBroker
from tests.fire.checks import hold
from tests.fire.load import PATIENCE_S, Load
from tests.fire.scale import AGENTS, OPTIONS, full_only
from tests.projecting import tables
from tests.projector_child import running
from tests.topics import admin

pytestmark = [pytest.mark.kafka, pytest.mark.fire]


async def looked(cluster: Cluster, wanted: Callable[[dict[int, dict[str, Any]]], bool]) -> None:
    """Return once the partitions of the topic are as wanted, as a broker that is there tells."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                async with admin(cluster.address) as client:
                    while not wanted(await partitions(client)):
                        continue
                    return
            except KafkaError:
                continue


async def partitions(client: AIOKafkaAdminClient) -> dict[int, dict[str, Any]]:
    (topic,) = await client.describe_topics(["t"])
    return {found["partition"]: found for found in topic["partitions"]}


def in_sync(found: dict[int, dict[str, Any]]) -> bool:
    return bool(found) and all(len(partition["isr"]) == 3 for partition in found.values())


async def leader(cluster: Cluster, partition: int) -> JavaBroker:
    async with admin(cluster.address) as client:
        return cluster.brokers[(await partitions(client))[partition]["leader"] - 1]


@full_only
async def test_a_rolling_restart(cluster: Cluster, tmp_path: Path) -> None:
    """As an operator does it: each hands over first, and the next waits until all are in sync. The
    leaders go back afterwards."""
    url = f"kafka://{cluster.address}/t"
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        led = {p: found["leader"] for p, found in await described(cluster)}
        for broker in cluster.brokers:
            await load.progress()
            await asyncio.to_thread(broker.shut_down)
            await load.progress()
            await asyncio.to_thread(cluster.start, [broker])
            await looked(cluster, in_sync)
        await looked(cluster, lambda found: led == {p: f["leader"] for p, f in found.items()})
        await load.finish()
        await hold(load, tmp_path)


async def killed_and_back(load: Load, cluster: Cluster, broker: JavaBroker) -> None:
    await asyncio.to_thread(broker.kill)
    # The other two are enough.
    await load.progress(2)
    await asyncio.to_thread(cluster.start, [broker])
    await looked(cluster, in_sync)


async def test_leaders_killed(cluster: Cluster, tmp_path: Path, rounds: Rounds) -> None:
    url = f"kafka://{cluster.address}/t"
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        for turn in range(rounds(6, 1, "kills")):
            await load.progress()
            await killed_and_back(load, cluster, await leader(cluster, turn))
        await load.finish()
        await hold(load, tmp_path)


@full_only
async def test_the_coordinator_killed(cluster: Cluster, tmp_path: Path, rounds: Rounds) -> None:
    """The projector follows all the while, and commits how far it is to a group."""
    url, db = f"kafka://{cluster.address}/t", tmp_path / "followed.duckdb"
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        group = reader_name(load.journals[0].identity.journal_id)
        async with running(url, db) as child:
            await child.until("following")
            for _ in range(rounds(3, 1, "kills")):
                await load.progress()
                await killed_and_back(load, cluster, await coordinator(cluster, group))
            await load.finish()
            ends = await load.journals[0].log.ends()
            await child.has("SELECT sum(next_offset)::BIGINT AS n FROM offsets", sum(ends.values()))
            assert await child.ended() == 0
        await hold(load, tmp_path)
        assert tables(db) == tables(tmp_path / "once.duckdb")
        async with admin(cluster.address) as client:
            committed = await client.list_consumer_group_offsets(group)
        assert {tp.partition: found.offset for tp, found in committed.items()} == ends


async def coordinator(cluster: Cluster, group: str) -> JavaBroker:
    async with admin(cluster.address) as client:
        while True:
            try:
                return cluster.brokers[await client.find_coordinator(group) - 1]
            except KafkaError:
                # The topic of the groups is made when it is first asked for.
                continue


@full_only
@pytest.mark.parametrize("cluster", [1], indirect=True)
async def test_too_few_replicas(cluster: Cluster, tmp_path: Path, rounds: Rounds) -> None:
    """Two of three are away for longer than an append may take: what is left takes nothing."""
    url = f"kafka://{cluster.address}/t"
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        for _ in range(rounds(3, 1, "outages")):
            await load.progress()
            _, *away = cluster.brokers
            for broker in away:
                await asyncio.to_thread(broker.kill)
            await looked(cluster, lambda found: [p["isr"] for p in found.values()] == [[1]] * 12)
            await load.troubled(AGENTS)
            await asyncio.to_thread(cluster.start, away)
            await looked(cluster, in_sync)
        await load.finish()
        await hold(load, tmp_path)


async def described(cluster: Cluster) -> list[tuple[int, dict[str, Any]]]:
    async with admin(cluster.address) as client:
        return list((await partitions(client)).items())
