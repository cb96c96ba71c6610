"""Several studies at once, and the best of them by validation accuracy: test images have no say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from .plan import record_of
from .reading import written
from .runs import Run, store_beside
from .study import Study

WINNER_FILE = "winner.yaml"


@dataclass(frozen=True)
class Search:
    """A grid of studies in one folder; they share a store, and so every training that they have in common."""

    runs: dict[str, Run]
    out: Path

    @classmethod
    def new(cls, studies: Mapping[str, Study], out: Path, store: str | Path | None = None) -> Search:
        """Each study gets a folder of its own inside `out`."""
        shared = store_beside(out, store)
        return cls({label: Run(study, out / label, shared) for label, study in studies.items()}, out)

    def register(self) -> None:
        """Lets the store know of all studies, so that the first does not tidy away what the others need."""
        for run in self.runs.values():
            run.write_study()

    def validation(self) -> dict[str, float]:
        """Of every study that is finished, the mean validation accuracy over its cells, at their best epochs."""
        return {label: fmean(found) for label, run in self.runs.items() if (found := _validation_accuracies(run))}

    def write_winner(self) -> str | None:
        """Writes the best study as a file, the first on a tie; None while none is finished."""
        found = self.validation()
        if not found:
            return None
        best = max(found, key=lambda label: found[label])
        text = f"# the best of {len(found)} by validation accuracy ({found[best]:.2%}): {best}\n"
        (self.out / WINNER_FILE).write_text(text + written(self.runs[best].study), encoding="utf-8")
        return best


def _validation_accuracies(run: Run) -> list[float] | None:
    """One number a cell; None where a cell is missing or failed."""
    accuracies = []
    for cell in run.plan.cells:
        record = record_of(run.store, cell.training.key)
        if record is None or record["failure"] is not None:
            return None
        best = next(epoch for epoch in record["epochs"] if epoch["epoch"] == record["best_epoch"])
        accuracies.append(best["validation_accuracy"])
    return accuracies
