"""`python -m tests.simulation SEED`: one seed, with its history; `SEED SEED2`: all in between."""

from __future__ import annotations

import logging
import sys
import time

from tests.simulation.run import lines, simulate, worlds

if __name__ == "__main__":
    logging.disable()
    first = int(sys.argv[1])
    if len(sys.argv) == 2:
        world = simulate(first)
        print("\n".join(lines(world)))
        sys.exit(bool(world.violations))
    began, bad = time.perf_counter(), 0
    for world in worlds(range(first, int(sys.argv[2]))):
        if world.violations:
            bad += 1
            print(f"seed {world.seed}: {world.violations[0][:300]}", flush=True)
    took = time.perf_counter() - began
    count = int(sys.argv[2]) - first
    print(f"{count} seeds, {bad} with violations, {took:.1f} s, {count / took:.1f} seeds a second")
    sys.exit(bool(bad))
