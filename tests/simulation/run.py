"""`simulate(seed)`: play one seed, and hold what came of it against the promises."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

from journal.codec import decode_event
from journal.errors import BadRecord
from journal.log import Append
from tests.simulation.checks import at_end, at_kill
from tests.simulation.world import World


def simulate(seed: int) -> World:
    """The world after the seed; its `violations` should be empty."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        world = World(seed)
        world.on_kill = at_kill
        world.run()
        at_end(world)
        world.bury()
    finally:
        if collecting:
            gc.enable()
    return world


def worlds(seeds: Iterable[int]) -> Iterator[World]:
    """The world after each seed."""
    for seed in seeds:
        if seed % _COLLECT == 0:
            # Off during a seed, the collector is slow to see what the worlds have left.
            gc.collect()
        yield simulate(seed)


_COLLECT = 100


def lines(world: World) -> Iterator[str]:
    """The history, a line each."""
    yield f"seed {world.seed}: {world.faults}"
    for now, who, what, about in world.history:
        yield f"{now:9.3f} {who:12} {what} {' '.join(map(_text, about))}"
    yield f"{len(world.violations)} violations"
    yield from world.violations


def _text(about: object) -> str:
    if isinstance(about, list):
        return "[" + ", ".join(map(_text, about)) + "]"
    if not isinstance(about, Append):
        return str(about)
    try:
        e = decode_event(about.value)
    except BadRecord:
        return "BadRecord"
    place = "" if e.epoch is None else f" {e.epoch}" if e.seq is None else f" {e.epoch}/{e.seq}"
    return f"{e.type}{place} {e.id[:6]} of {e.task_id}"
