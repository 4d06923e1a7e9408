"""One broker that is killed, frozen, or behind a bad connection, under agents at work."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from aiokafka.admin import NewTopic

from journal.kafka_admin import settings_for
from tests.attacks import FULL, Rounds
from tests.broker.java import JavaBroker
from tests.fire.checks import hold
from tests.fire.load import Load
from tests.fire.proxy import Proxy
from tests.fire.scale import AGENTS, OPTIONS, full_only, scaled
from tests.topics import admin

pytestmark = [pytest.mark.kafka, pytest.mark.fire]


@full_only
async def test_killed_and_started_again(broker: JavaBroker, tmp_path: Path, rounds: Rounds) -> None:
    url = f"kafka://{broker.address}/t"
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        for turn in range(rounds(10, 2, "kills")):
            await load.progress()
            await asyncio.to_thread(broker.kill)
            if turn % 2:
                # Away for longer than an append may take.
                await load.troubled(AGENTS // 2)
            await asyncio.to_thread(broker.start)
        await load.finish()
        await hold(load, tmp_path)


async def test_frozen(broker: JavaBroker, tmp_path: Path) -> None:
    url = f"kafka://{broker.address}/t"
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        await load.progress()
        broker.freeze()
        await asyncio.sleep(scaled(60, 8))
        broker.thaw()
        await load.finish()
        assert all(agent.troubles for agent in load.agents)
        await hold(load, tmp_path)


async def test_agents_cancelled_while_they_append(
    broker: JavaBroker, tmp_path: Path, rounds: Rounds
) -> None:
    url = f"kafka://{broker.address}/t"
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        caught = 0
        for turn in range(rounds(20, 2, "cancellations")):
            await load.progress()
            broker.freeze()
            caught += await load.caught(AGENTS // 4)
            load.crash(load.agents[turn % 2 :: 2])
            broker.thaw()
        assert caught > 0
        await load.finish()
        await hold(load, tmp_path, cancelled=True)


BAD = [
    # The worst of them: Kafka has what was sent, and nobody is told so.
    (Proxy.mute, Proxy.drop),
    (Proxy.trickle,),
    (Proxy.drop,),
    (Proxy.stall,),
    (Proxy.stall, Proxy.drop),
]


async def test_a_bad_connection(tmp_path: Path, rounds: Rounds) -> None:
    async with Proxy.running() as proxy:
        broker = JavaBroker({}, quick_restart=True)
        proxy.target = broker.also_listen("PLAINTEXT", name="PROXIED", advertised=proxy.address)
        try:
            await asyncio.to_thread(broker.start)
            await behind(proxy, tmp_path, rounds(3, 1, "rounds of faults"))
        finally:
            await asyncio.to_thread(broker.stop)


async def behind(proxy: Proxy, folder: Path, count: int) -> None:
    url = f"kafka://{proxy.address}/t"
    async with Load.working(url, folder, agents=AGENTS, **OPTIONS) as load:
        for _ in range(count):
            for faults in BAD if FULL else BAD[:2]:
                await load.progress()
                for fault in faults:
                    fault(proxy)
                    await asyncio.sleep(scaled(10, 3))
                proxy.mend()
        await load.finish()
        await hold(load, folder)


@full_only
async def test_an_event_too_large(broker: JavaBroker, tmp_path: Path, rounds: Rounds) -> None:
    url = f"kafka://{broker.address}/t"
    async with admin(broker.address) as client:
        settings = settings_for(1) | {"max.message.bytes": "65536"}
        await client.create_topics([NewTopic("t", 12, 1, topic_configs=settings)])
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        for turn in range(rounds(20, 3, "large events")):
            await load.progress()
            heavy = load.agents[turn % AGENTS]
            before = heavy.troubles["EventTooLarge"]
            # Random digits of 4 bits each: compressed they are half as long.
            load.burden[heavy.number] = os.urandom(100_000).hex()
            await load.progress(2)
            assert heavy.troubles["EventTooLarge"] == before + 1, heavy.said
            assert "nothing was written; store the value" in heavy.said[-1]
            # The others were disturbed at most, and are not told that theirs was too large.
            for agent in load.agents:
                said = [text for text in agent.said if "TooLarge" in text or "takes:" in text]
                assert agent is heavy or all("another append" in text for text in said), said
            heavy.said.clear()
        await load.finish()
        await hold(load, tmp_path)
