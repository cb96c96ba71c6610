"""A process that works on a run beside the one that started it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any, TextIO

from ..core.errors import InputError
from ..training import Epoch
from .errand import Errand
from .plan.steps import Step
from .search import opened
from .work.observer import Observer


class Orphan(Exception):
    """The process that asked for help is gone."""


class Telling(Observer):
    """One line of JSON an event, for the process that asked; without it, there is nobody to work for."""

    def __init__(self, parent: int, events: TextIO) -> None:
        self.parent, self.events = parent, events

    def started(self, step: Step) -> None:
        """Looks whether anybody still waits for the result."""
        if os.getppid() != self.parent:
            raise Orphan

    def epoch(self, step: Step, epoch: Epoch, epochs: int) -> None:
        """An epoch of a training."""
        self._tell(event="epoch", key=step.key, epoch=asdict(epoch), epochs=epochs)

    def finished(self, step: Step, seconds: float) -> None:
        """A step is in the store."""
        self._tell(event="finished", key=step.key, seconds=seconds)

    def trouble(self, line: str) -> None:
        """Something was damaged, or failed."""
        self._tell(event="trouble", line=line)

    def _tell(self, **event: Any) -> None:
        if os.getppid() != self.parent:
            raise Orphan
        try:
            print(json.dumps(event), file=self.events, flush=True)
        except BrokenPipeError as error:
            raise Orphan from error


def main() -> None:
    """Works until nothing is left."""
    errand = Errand.read(sys.argv[1:])
    telling = Telling(errand.parent, os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)  # what a method or a network prints is no event
    try:
        opened(errand.out).work(telling, errand.pack)
    except (Orphan, KeyboardInterrupt):
        os._exit(0)  # nothing is left to flush or to wait for
    except InputError as error:
        telling.trouble(str(error))
        os._exit(1)


if __name__ == "__main__":
    main()
