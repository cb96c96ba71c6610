"""How a kernel's work is cut into units, whose sums are added up in a fixed order: part of the numbers' definition.

Units depend on a network's own batch alone; how many a block takes, and who adds them up, on all networks and the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from .compiling import Kernel

# Output pixels of a unit of work, in the order of a step. Measured on an H200: more are faster for many networks, fewer
# for one (half of the GPU is idle then).
UNITS = {
    "stem_forward": 1024,
    "forward_16_join": 1024,
    "forward_16_middle": 1024,
    "forward_32_down": 512,
    "forward_32_project": 512,
    "forward_32_join": 256,
    "forward_32_middle": 256,
    "forward_64_down": 128,
    "forward_64_project": 128,
    "forward_64_join": 256,
    "forward_64_middle": 256,
    "backward_64_middle": 256,
    "backward_64_join": 256,
    "backward_64_down": 256,
    "project_backward_64": 512,
    "backward_32_middle": 512,
    "backward_32_join": 512,
    "backward_32_down": 512,
    "project_backward_32": 512,
    "backward_16_middle": 1024,
    "backward_16_join": 1024,
    "stem_backward": 1024,
}
# Units whose weight gradients are added up before all others: by the block that computed them where the networks are
# enough to keep every block busy with so many, which saves memory traffic, else by the update. The same numbers.
RUN = 4  # which `update` knows
BALANCED = 1.05  # how much longer the longest block may take with whole runs


@dataclass(frozen=True)
class Cut:
    """A network's batch for one kernel: `tiles` in all, `per_unit` of them a unit, and so many `units`."""

    tiles: int
    per_unit: int
    units: int

    @classmethod
    def of(cls, kernel: Kernel, pixels: int) -> Cut:
        """A batch of so many output pixels."""
        tiles, per_unit = pixels // kernel.pixels, UNITS[kernel.name] // kernel.pixels
        return cls(tiles, per_unit, -(-tiles // per_unit))

    def runs(self, kernel: Kernel, networks: int) -> tuple[int, int]:
        """How many units a block takes at least and adds up itself, and how many rows the update adds up first: where
        units are to be added up before all others, one of the two is that many.
        """
        if self.units % RUN:
            return 1, 1
        apart, together = (-(-(self.units // run) * networks // kernel.resident) * run for run in (1, RUN))
        return (RUN, 1) if together <= BALANCED * apart else (1, RUN)
