"""What the folder of a run says of it that its results do not."""

from __future__ import annotations

from dataclasses import dataclass

from ..experiment.files import read_json
from ..experiment.runs import RUN_FILE, Run


@dataclass(frozen=True)
class Origin:
    """The modules that had to be imported before the study could be read."""

    imports: tuple[str, ...] = ()


def origin(run: Run) -> Origin:
    """Of a run that was started before."""
    return Origin(tuple(map(str, read_json(run.out / RUN_FILE, "imports")["imports"])))
