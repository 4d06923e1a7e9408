"""How long `journal --help` and `projector --help` take, beside a Python that does nothing.

Run `python -m benchmarks.bench_start`: medians of the rounds, in which they take turns.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 11
FOLDER = Path(sys.executable).parent
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "journal --help": [str(FOLDER / "journal"), "--help"],
    "projector --help": [str(FOLDER / "projector"), "--help"],
}


def took(command: list[str]) -> float:
    """Seconds from its start to its end."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Print the medians."""
    rounds = [[took(command) for command in COMMANDS.values()] for _ in range(ROUNDS)]
    for name, times in zip(COMMANDS, zip(*rounds, strict=True), strict=True):
        print(f"{name:16} {statistics.median(times):.3f} s")


if __name__ == "__main__":
    main()
