"""Seeds of the simulation: nothing acknowledged is lost, nothing is doubled, all comes to its end.

A seed that fails prints its history; `python -m tests.simulation SEED` shows the same again. That
the properties bite is shown by `mutations`: what is turned off there, one at a time, costs some
seed a violation.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

from tests.attacks import Rounds
from tests.simulation.run import lines, simulate, worlds


def _history(seed: int) -> str:
    return "\n".join(lines(simulate(seed)))


def test_no_seed_breaks_a_promise(rounds: Rounds) -> None:
    for world in worlds(range(rounds(10_000, 300, "seeds"))):
        assert not world.violations, "\n".join(
            [*lines(world), f"again: python -m tests.simulation {world.seed}"]
        )


def test_a_seed_is_the_same_again_in_another_process() -> None:
    """Else a failure could not be looked into: no order hangs on hashes or addresses."""
    seeds = range(100, 130)
    here = hashlib.sha256("".join(_history(seed) for seed in seeds).encode()).hexdigest()
    program = (
        "import hashlib\nfrom tests.simulation.run import lines, simulate\n"
        f"all = ''.join('\\n'.join(lines(simulate(s))) for s in {seeds!r})\n"
        "print(hashlib.sha256(all.encode()).hexdigest())"
    )
    there = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == here


def test_the_seeds_meet_what_they_are_for() -> None:
    """Faults, crashes, lost races and ends of every kind: a draw that no longer brings them about
    would leave nothing to hold."""
    wanted = {
        *("killed", "clock", "down", "written late", "effect", "ran"),
        *("lost", "unheard", "late", "twice", "refused"),
        *("TaskFenced", "OutcomeUnknown", "TaskCancelled", "SubtaskCompleted"),
    }
    for seed in range(400):
        world = simulate(seed)
        wanted -= {what for _, _, what, _ in world.history}
        wanted -= {str(about[0]) for _, _, what, about in world.history if what == "fate"}
        text = "\n".join(lines(world))
        wanted = {word for word in wanted if not (word[0].isupper() and word in text)}
        if not wanted:
            return
    raise AssertionError(f"no seed had {wanted}")
