"""One broker that is killed, frozen, or behind a bad connection, under agents at work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.broker.java import JavaBroker
from tests.fire.checks import hold
from tests.fire.load import Load
from tests.fire.scale import AGENTS, OPTIONS, scaled

pytestmark = [pytest.mark.kafka, pytest.mark.fire]


async def test_killed_and_started_again(broker: JavaBroker, tmp_path: Path) -> None:
    url = f"kafka://{broker.address}/t"
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        for turn in range(scaled(10, 2)):
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


async def test_agents_cancelled_while_they_append(broker: JavaBroker, tmp_path: Path) -> None:
    url = f"kafka://{broker.address}/t"
    async with Load.working(url, tmp_path, agents=AGENTS, **OPTIONS) as load:
        for turn in range(scaled(20, 4)):
            await load.progress()
            broker.freeze()
            await load.until(lambda: load.on_its_way() >= AGENTS // 3, "appends on their way")
            load.crash(load.agents[turn % 2 :: 2])
            broker.thaw()
        await load.finish()
        await hold(load, tmp_path)
