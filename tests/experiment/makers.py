"""What tests of studies share: a tiny one, run; what its store holds; and who counts what is computed."""

import shutil
from pathlib import Path
from queue import SimpleQueue

from activeprune.experiment.plan.steps import Step
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.experiment.work.observer import Observer

TINY = {"variants": ["plain", "ap_lite"], "cycles": 1}


def contents(store: Path) -> dict[str, bytes]:
    """Everything that is promised to the byte: all but provenance."""
    found = (path for path in (store / "objects").rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(store)): path.read_bytes() for path in found if path.name != "provenance.json"}


class Counting(Observer):
    """Notes what is computed."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def finished(self, step: Step, seconds: float) -> None:
        self.steps.append(step)


class Listening(Observer):
    """Hands what is told to a test that waits for it."""

    def __init__(self) -> None:
        self.lines: SimpleQueue[Step | str] = SimpleQueue()

    def finished(self, step: Step, seconds: float) -> None:
        self.lines.put(step)

    def trouble(self, line: str) -> None:
        self.lines.put(line)

    def told(self, count: int) -> list[Step | str]:
        """The next things that are told, in order."""
        return [self.lines.get(timeout=300) for _ in range(count)]


def go(folder: Path, **changes) -> tuple[Run, Counting]:
    run = started("smoke", folder / "run", changes={**TINY, **changes})
    counting = Counting()
    run.go(counting)
    return run, counting


def copied(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "copy")


def of_images(path: Path) -> dict:
    data = {"name": "imagefolder", "path": str(path), "validation": 2}
    return {**TINY, "data": data, "batch": 4, "resolution": 16, "network": "resnet8"}
