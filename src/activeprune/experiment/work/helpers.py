"""Other processes that work on the same run, and what they say."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ...training import Epoch
from ..plan import Plan
from .observer import Observer

SECONDS_TO_LEAVE = 10.0


class Helpers:
    """Processes that compute steps of a plan until nothing is left, or until this context ends; `command` starts one.

    What they report on their standard output goes to the observer as if it had happened here.
    """

    def __init__(self, command: Sequence[str], count: int, plan: Plan, observer: Observer) -> None:
        self.command, self.count, self.plan, self.observer = command, count, plan, observer
        self._processes: list[subprocess.Popen[str]] = []
        self._listeners: list[threading.Thread] = []
        self._over = False

    def __enter__(self) -> Self:
        for _ in range(self.count):
            process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True, start_new_session=True)
            listener = threading.Thread(target=self._listen, args=(process,), daemon=True)
            listener.start()
            self._processes.append(process)
            self._listeners.append(listener)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        for process in self._processes:
            process.terminate()
        for process, listener in zip(self._processes, self._listeners, strict=True):
            try:
                process.wait(SECONDS_TO_LEAVE)
            except subprocess.TimeoutExpired:  # stopped, or stuck in a driver
                process.kill()
                process.wait()
            listener.join()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._relay(json.loads(line))
        if process.wait() and not self._over:
            self.observer.trouble(f"a helper process ended with code {process.returncode}: the others go on without it")

    def _relay(self, event: dict[str, object]) -> None:
        if event["event"] == "trouble":
            self.observer.trouble(str(event["line"]))
            return
        step = self.plan.steps.get(str(event["key"]))
        if step is None:  # of another study: somebody has written another one into the folder
            return
        if event["event"] == "epoch":
            self.observer.epoch(step, Epoch(**event["epoch"]), event["epochs"])  # type: ignore[arg-type]
        else:
            self.observer.finished(step, event["seconds"])  # type: ignore[arg-type]
