"""How a run shows itself: a live line on a terminal, one line an epoch in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..experiment.plan import Plan, Todo
from ..experiment.plan.steps import Step, Train
from ..experiment.work.observer import Observer
from ..training import Epoch


def observer(quiet: bool, names: Mapping[str, str], where: str) -> Observer:
    """For a terminal, for a log, or for nobody; on standard error. `names` of trainings by key, `where` they go on."""
    if quiet:
        return Observer()
    return Terminal(sys.stderr, names, where) if sys.stderr.isatty() else Log(sys.stderr, names, where)


def named(plan: Plan) -> dict[str, str]:
    """What each reported training is: the variants that it stands for."""
    found: dict[str, list[str]] = {}
    for cell in plan.cells:
        variants = found.setdefault(cell.training.key, [])
        if cell.cycle and cell.variant not in variants:
            variants.append(cell.variant)
    return {key: ", ".join(variants) for key, variants in found.items() if variants}


class Log(Observer):
    """One line an epoch and one a step."""

    def __init__(self, file: TextIO, names: Mapping[str, str], where: str) -> None:
        self.file, self.names, self.where = file, names, where
        self.left = 0
        self.total: int | None = None
        self.images = 0  # that all trainings have shown their networks
        self.epochs: dict[str, tuple[float, int]] = {}  # when the last one of each training ended; images till then

    def planned(self, todo: Todo) -> None:
        """Counts what is left; the first time, says it."""
        self.left = len(todo.missing) - len(todo.blocked)
        if self.total is None:
            self.total = self.left
            self._say(f"{self.left} steps to do {self.where}")

    def epoch(self, step: Step, epoch: Epoch, epochs: int) -> None:
        """Loss, accuracies and speed of an epoch."""
        self._say(f"{self._described(step)}  {epoch_line(epoch, epochs)}{self._speed(step, epoch)}")

    def _speed(self, step: Step, epoch: Epoch) -> str:
        """Images a second of all that are trained meanwhile, evaluation included; nothing for the first epoch, which
        also loads.
        """
        if not isinstance(step, Train):
            return ""
        now = time.monotonic()
        self.images += epoch.step // (epoch.epoch + 1) * step.training.batch
        since, before = self.epochs.get(step.key, (now, self.images))
        self.epochs[step.key] = now, self.images
        return "" if since == now else f" {(self.images - before) / (now - since):,.0f} images/s in all"

    def finished(self, step: Step, seconds: float) -> None:
        """A step and how long it took."""
        self.left = max(self.left - 1, 0)  # until the next count
        self._say(f"{self._described(step)}  done in {seconds:.1f} s, {self.left} left")

    def trouble(self, line: str) -> None:
        """Something was damaged."""
        self._say(line)

    def _described(self, step: Step) -> str:
        name = self.names.get(step.key)
        return step.title if name is None else f"{step.title} ({name})"

    def _say(self, line: str) -> None:
        print(line, file=self.file, flush=True)


class Terminal(Log):
    """One line that changes: overall, current step, epoch, speed and time left."""

    def __init__(self, file: TextIO, names: Mapping[str, str], where: str) -> None:
        super().__init__(file, names, where)
        self.console = Console(file=file)
        self.live = Live(console=self.console, refresh_per_second=4, transient=True)
        self.live.start()
        self.began = time.monotonic()
        self.step = ""

    def started(self, step: Step) -> None:
        """Shows which step begins."""
        self.step = self._described(step)
        self._show("")

    def epoch(self, step: Step, epoch: Epoch, epochs: int) -> None:
        """Shows the epoch."""
        self.step = self._described(step)
        self._show(epoch_line(epoch, epochs) + self._speed(step, epoch))

    def finished(self, step: Step, seconds: float) -> None:
        """One fewer is left."""
        self.left = max(self.left - 1, 0)

    def close(self) -> None:
        """Gives the terminal back."""
        self.live.stop()

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False)

    def _show(self, line: str) -> None:
        total = self.total or 0
        done = total - self.left
        spent = time.monotonic() - self.began
        left = f", about {clock(spent / done * self.left)} left" if done else ""
        self.live.update(Text(f"[{done}/{total} steps{left}] {self.step} {line}", overflow="ellipsis", no_wrap=True))


def epoch_line(epoch: Epoch, epochs: int) -> str:
    """An epoch in a few words."""
    accuracies = f"validation {epoch.validation_accuracy:.2%} test {epoch.test_accuracy:.2%}"
    return f"epoch {epoch.epoch + 1}/{epochs} loss {epoch.train_loss:.4f} {accuracies}"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> clock(75), clock(3700)
    ('1:15', '1:01:40')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
