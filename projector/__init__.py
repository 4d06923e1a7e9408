"""The projector: folds the log of a journal into tables that anybody can query."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from projector.client import Checkpoints


def connect(file: str | os.PathLike[str]) -> Checkpoints:
    """The checkpoints in a projection's file, for `journal.connect(…, checkpoints=…)`.

    Works while a projector runs, through its socket, and without one. Nothing is opened yet.
    """
    from projector.client import Checkpoints

    return Checkpoints(file)
