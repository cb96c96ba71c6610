"""Numbers that the page draws on demand: each array once, in four bytes a number."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

COARSE, HALF = np.uint32(0xFFFFE000), np.uint32(0x1000)  # of a deviation three digits: zeros take no room once packed
Columns = Mapping[str, Iterable[float | None]]


@dataclass
class Arrays:
    """Tables of columns under a name and a choice, such as a cycle; equal columns are kept once."""

    tables: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    packed: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, choice: str, columns: Columns) -> None:
        """What is not there is NaN."""
        self.tables.setdefault(name, {})[choice] = {column: self._place(column, of) for column, of in columns.items()}

    def _place(self, column: str, values: Iterable[float | None]) -> int:
        numbers = np.array([np.nan if value is None else value for value in values], "<f4")
        if column == "std":
            numbers = ((numbers.view("<u4") + HALF) & COARSE).view("<f4")
        return self.packed.setdefault(b64encode(numbers.tobytes()).decode(), len(self.packed))

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"arrays": [*self.packed], "tables": self.tables}
