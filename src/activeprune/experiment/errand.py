"""What a helper process is asked to do: as the command that starts it, and as it reads that again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HELPER = "activeprune.experiment.helper"  # by name: it opens runs, which ask for helpers


@dataclass(frozen=True)
class Errand:
    """To work on the run in a folder, for the process that asks, with so many networks trained at once."""

    out: Path
    parent: int
    pack: int | None = None  # None: as many as are fastest

    @property
    def command(self) -> list[str]:
        """What starts a process that does it: `… DIR PID [PACK]`."""
        pack = () if self.pack is None else (str(self.pack),)
        return [sys.executable, "-m", HELPER, str(self.out), str(self.parent), *pack]

    @classmethod
    def read(cls, arguments: Sequence[str]) -> Errand:
        """From the arguments of such a process.

        >>> Errand.read(Errand(Path("runs/demo"), 7, 8).command[3:]) == Errand(Path("runs/demo"), 7, 8)
        True
        """
        out, parent, *pack = arguments
        return cls(Path(out), int(parent), int(pack[0]) if pack else None)
