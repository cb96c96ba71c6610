"""Runs a study again and again, each time killed at another moment: `python -m … OUT SEED KILLS [late]`.

The timer's signal ends a process at once, as `kill -9` does: nothing is cleaned up. Children are forked, so that they
need not import torch anew; this process itself computes nothing.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from activeprune.experiment.plan.steps import Step
from activeprune.experiment.search import started
from activeprune.experiment.work import compute
from activeprune.experiment.work.observer import Observer

CHANGES = {"epochs": "2ep", "cycles": 2, "variants": ["plain", "ap_lite", "ap_pro"]}
LATE = {**CHANGES, "chain": "rewind", "rewind_epoch": 1, "epochs": "3ep", "keep": "records"}


class Noting(Observer):
    """Writes down which steps were finished, beside the folder of the run."""

    def __init__(self, out: str) -> None:
        self.file = Path(out).parent / "finished.txt"

    def finished(self, step: Step, seconds: float) -> None:
        with self.file.open("a") as file:
            file.write(f"{step.key}\n")


def attempt(out: str, changes: dict, seconds: float | None) -> tuple[bool, float]:
    """Whether the run got to its end before the timer, and how long it took."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        if seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, seconds)
        started("smoke", out, changes=changes).go(Noting(out))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        sys.exit("a child failed by itself")
    return not os.WIFSIGNALED(status), time.monotonic() - began


def main() -> None:
    out, seed, kills = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    changes = LATE if "late" in sys.argv else CHANGES
    torch.set_num_threads(1)
    compute.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    started("smoke", f"{out}/reference/run", changes=changes).study.training.feed(0)  # imports what loads the data
    _, whole = attempt(f"{out}/reference/run", changes, None)
    draw = random.Random(seed)
    done, killed = False, 0
    while killed < kills:
        if done:  # there are more moments to try: once more from an empty store
            os.rename(f"{out}/killed", f"{out}/killed-{killed}")
        done, _ = attempt(f"{out}/killed/run", changes, draw.uniform(0.0, whole))
        killed += not done
    attempt(f"{out}/killed/run", changes, None)
    print(killed)


if __name__ == "__main__":
    main()
