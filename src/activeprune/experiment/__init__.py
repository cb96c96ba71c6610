"""Studies: files that say what to run, the graph of steps that follows, and a store that keeps what was computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .findings import Rows
from .runs import Run
from .search import Search, opened, started

__all__ = ["Rows", "Run", "Search", "results", "run"]


def run(  # noqa: PLR0913  options by name
    study: str | Path,
    out: str | Path | None = None,
    store: str | Path | None = None,
    set: Mapping[str, Any] | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    processes: int = 1,
    pack: int | None = None,
) -> Run | Search:
    """Runs a study by name or file, with some keys changed; what its store has already is not computed again.

    `out` is the folder of the results (runs/STUDY), `store` the folder of all that is computed (.store beside it).
    `grid` gives several values to some keys, and makes a search of it. `processes` work at once; on a GPU `pack`
    networks are trained at once, None: as many as are fastest. The same call goes on after an interruption.
    """
    chosen = started(study, out, store, set, grid)
    chosen.go(processes=processes, pack=pack)
    return chosen


def results(out: str | Path) -> Rows:
    """What the run or grid in a folder found so far: a list of dicts, one a variant, cycle and seed.

    Those of a grid also say which study they belong to. `.frame()` makes a pandas DataFrame of them.
    """
    return opened(out).rows()
