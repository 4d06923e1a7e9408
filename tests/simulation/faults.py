"""Which faults a seed has, and how often. Each kind is off in some seeds, so that the others
get further; all of them end with `calm`. Knows nothing of what they are done to."""

from __future__ import annotations

from random import Random

FATES = ("lost", "unheard", "late", "twice", "refused")


class Faults:
    """What goes wrong, drawn. Delays are in seconds."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.conditional = random.random() < 0.2
        self.confirm = "once" if not self.conditional and random.random() < 0.35 else "always"
        self.partitions = 1 if self.conditional else random.choice((1, 1, 2, 3))
        self.deadline_s = random.choice((3.0, 10.0, 30.0))
        self.holes = 0.0 if self.conditional else random.choice((0, 0, 0.1, 0.5))
        kinds = [f for f in FATES if random.random() < 0.5]
        if self.conditional:
            # A file's write is there, or not, by the time that its writer gives up.
            kinds = [f for f in kinds if f not in ("late", "twice")]
        self._fates = kinds
        self._often = random.choice((0.02, 0.1, 0.1, 0.3)) if kinds else 0.0
        self._slow = random.choice((0.002, 0.02, 0.3))
        self._read = random.choice((0.0, 0.002, 0.1))
        self._gone = random.choice((0.0, 0.0, 0.01, 0.05))
        self._groups = random.choice((1, 3, 20))
        self._batches = random.choice((1, 3, 1_000))
        self.outages = random.random() < 0.2
        self.crashes = random.choice((0, 60, 200, 600))
        self.naps = random.choice((0, 0, 60, 300))
        self.skews = random.choice((0, 0, 500, 120_000))
        self.claimers = random.choice((1, 2, 2, 3))
        self.lasts_s = random.choice((5.0, 20.0, 60.0))
        self.over = False

    def calm(self) -> None:
        """From here on nothing goes wrong any more."""
        self.over = True
        self._often = self._gone = 0.0
        self.outages = False
        self.crashes = self.naps = self.skews = 0

    def __str__(self) -> str:
        log = "conditional" if self.conditional else f"confirm={self.confirm}"
        return (
            f"{log}, {self.partitions} partitions, {self.claimers} claimers, fates {self._fates} "
            f"at {self._often}, deadline {self.deadline_s:g} s, crashes {self.crashes}, naps "
            f"{self.naps}, clocks {self.skews} ms, unavailable {self._gone}, holes {self.holes}, "
            f"{self.lasts_s:g} s"
        )

    # --- appends --------------------------------------------------------------------------------

    def fate(self) -> str:
        """Of one group of appends."""
        if self._often and self._random.random() < self._often:
            return self._random.choice(self._fates)
        return "fine"

    def group(self) -> int:
        return 1 + int(self._random.random() * self._groups)

    def delay(self) -> float:
        """Of one way through the network."""
        return self._random.random() * self._slow

    def long_delay(self) -> float:
        """Of what arrives when others have gone on."""
        return self._random.random() ** 2 * 40.0

    def tells_offset(self) -> bool:
        return self.conditional or self.over or self._random.random() < 0.95

    # --- reads ----------------------------------------------------------------------------------

    def read_delay(self) -> float:
        return self._random.random() * self._read if self._read else 0.0

    def batch(self) -> int:
        return 1 + int(self._random.random() * self._batches)

    def slow_read(self) -> bool:
        return self._random.random() < 0.1

    def unavailable(self) -> bool:
        return self._gone > 0.0 and self._random.random() < self._gone

    # --- processes ------------------------------------------------------------------------------

    def fuse(self) -> int:
        """Turns until a process is killed; -1 for never."""
        if not self.crashes or self._random.random() < 0.1:
            return -1
        return int(self._random.random() * self.crashes)

    def nap(self) -> tuple[int, float] | None:
        """Turns until it stalls, and the seconds that it then does."""
        if not self.naps:
            return None
        return int(self._random.random() * self.naps), self._random.random() * 30.0

    def skew_ms(self) -> int:
        return int((self._random.random() - 0.5) * 2 * self.skews) if self.skews else 0
