"""A pass of evaluation, kernel by kernel: the layers of one width are one kernel."""

from __future__ import annotations

from itertools import groupby

import torch

from . import arguments as args
from .launches import NONE, Launches, Source, at
from .memory import Buffers, Networks, Shared


class EvaluationStep(Launches):
    """The launches of a pass over images with running statistics."""

    def __init__(self, shared: Shared, networks: Networks, buffers: Buffers) -> None:
        super().__init__(shared, networks, buffers)
        self._kept: list[torch.Tensor] = []  # what kernels read and nobody else knows
        self._affine()
        self.gather()
        self.stem()
        blocks = self.layout.blocks
        for _, numbers in groupby(range(len(blocks)), lambda number: blocks[number].conv1.outputs):
            self._series(list(numbers))
        self.head()
        self.finish()

    def source(self, index: int) -> Source:
        """The input of block `index`, which a series has put down."""
        return Source(at(self.buffers.joined(index)), args.Norm())

    def _affine(self) -> None:
        """All norms as lines, which the series read."""
        layout, networks = self.layout, self.networks
        a = args.Affine(
            parameters=at(networks.parameters),
            running=at(networks.running),
            places=at(self._on_device(layout.norm_slots)),
            affine=at(self.buffers.floats("affine", 2, layout.channels)),
            count=layout.size,
            channels=layout.channels,
        )
        self.add("affine", -(-layout.channels // 256), a)

    def _series(self, numbers: list[int]) -> None:
        """Blocks of one width: but for a first convolution that halves the side, all convolutions are one kernel."""
        layout, buffers = self.layout, self.buffers
        blocks = [layout.blocks[number] for number in numbers]
        first = blocks[0]
        convolutions = [conv for block in blocks for conv in (block.conv1, block.conv2)]
        before, kind, shortcut = layout.stem, NONE, None
        if first.conv1.down:
            self.begin_block(numbers[0])
            before, *convolutions = convolutions
            kind, shortcut, _ = self.shortcut(numbers[0])
        links = [[conv.packed // 8, conv.norm.start] for conv in convolutions]
        a = args.Series(
            input=at(buffers.raw(before)),
            shortcut=shortcut,
            links=at(self._on_device(torch.tensor(links, dtype=torch.int32))),
            weights=at(self.networks.packed_forward),
            affine=at(buffers["affine"]),
            output=at(buffers.joined(numbers[-1] + 1)),
            kind=kind,
            count=len(convolutions),
            input_norm=before.norm.start,
            shortcut_norm=first.projection.norm.start if first.projection else 0,
            weight_pitch=layout.packed // 8,
            channels=layout.channels,
            images=self.batch,
            networks=self.members,
        )
        kernel = self.kernels[f"series_{first.conv1.outputs}"]
        self.add(kernel.name, self.batch * first.conv2.side**2 // kernel.pixels, a)

    def _on_device(self, values: torch.Tensor) -> torch.Tensor:
        self._kept.append(values.to(self.shared.images.device))
        return self._kept[-1]
