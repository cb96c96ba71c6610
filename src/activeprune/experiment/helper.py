"""A process that works on a run beside the one that started it: `python -m activeprune.experiment.helper DIR PID`."""

from __future__ import annotations

import os
import sys

from ..training import Epoch
from .runs import Run, Silent
from .steps import Step


class Orphan(Exception):
    """The process that asked for help is gone."""


class Attached(Silent):
    """Stops with the process that started it."""

    def __init__(self, parent: int) -> None:
        self.parent = parent

    def started(self, step: Step) -> None:
        """Looks whether anybody still waits for the result."""
        if os.getppid() != self.parent:
            raise Orphan

    def epoch(self, step: Step, epoch: Epoch, epochs: int) -> None:
        """Looks whether anybody still waits for the result."""
        if os.getppid() != self.parent:
            raise Orphan


def main() -> None:
    """Works until nothing is left."""
    out, parent = sys.argv[1:]
    sys.path.insert(0, "")  # where modules of the study's own may be
    try:
        Run.opened(out).work(Attached(int(parent)))
    except (Orphan, KeyboardInterrupt):
        return


if __name__ == "__main__":
    main()
