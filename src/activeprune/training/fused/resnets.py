"""K residual networks for small images, trained at once: one kernel a layer for all, one CUDA graph a step.

What a network computes depends on its own start, data and settings alone, to the last bit: not on K, not on its slot
and not on its neighbours, active, finished or diverged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import torch
from torch import Tensor

from ...core.recording import recorded_by
from ..result import State
from .compiling import kernels
from .evaluation import EvaluationStep
from .launches import Launch, Launches
from .layout import MOMENTUM, Layout
from .memory import STEPS, Augmentation, Buffers, Networks, Recipe, Shared
from .training import TrainingStep

MOST_IMAGES = 1 << 22  # a row of images, crop and flip are one int32
MOST_CLASSES = 256
BRANCHES = 2  # of a step, each with a share of the networks: one fills what the other leaves idle
EVALUATED_AT_ONCE = 8192  # images of all networks, unless a training batch of each is more; 1024 is 14 % slower for 8
EVALUATED_OF_ONE = 1024  # images of one network at most: more would leave much of the last batch empty


def why_not(layout: Layout, recipe: Recipe, images: tuple[int, ...]) -> str | None:
    """What of this the engine cannot do, or None; `images` is the shape of all of them.

    >>> why_not(Layout(20, "conv", 10), Recipe(), (60_000, 3, 32, 32))
    >>> why_not(Layout(20, "conv", 10), Recipe(batch=100), (60_000, 3, 32, 32))
    'batch = 100: the fused engine needs a multiple of 8'
    """
    count, *image = images
    if layout.depth < 8 or (layout.depth - 2) % 6:
        return f"depth = {layout.depth}: the fused engine has residual networks of 8, 14, 20, ... layers"
    if image != [3, 32, 32]:
        return f"images of {tuple(image)}: the fused engine takes 3x32x32"
    if recipe.batch < 8 or recipe.batch % 8:
        return f"batch = {recipe.batch}: the fused engine needs a multiple of 8"
    if not 1 <= layout.classes <= MOST_CLASSES:
        return f"{layout.classes} classes: the fused engine has 1 to {MOST_CLASSES}"
    if recipe.augment not in get_args(Augmentation):
        return f"augment = {recipe.augment!r}: the fused engine has {', '.join(get_args(Augmentation))}"
    if count > MOST_IMAGES:
        return f"{count} images: the fused engine takes {MOST_IMAGES} at most"
    return None


class FusedResNets:
    """K = `members` networks in training, each in its slot; `images` uint8 [N, 3, 32, 32] and `labels` int64 [N] on
    the GPU serve them all, and a batch is `recipe.batch` rows of them.

    Raises `EngineUnavailable` where there is no GPU that can, `ValueError` for what `why_not` names.
    """

    def __init__(self, layout: Layout, recipe: Recipe, images: Tensor, labels: Tensor, members: int) -> None:
        if reason := why_not(layout, recipe, images.shape):
            raise ValueError(reason)
        if images.dtype != torch.uint8 or len(labels) != len(images):
            found = f"{images.dtype} {tuple(images.shape)}, and {len(labels)} labels"
            raise ValueError(f"bytes [N, 3, 32, 32] and N labels are needed, not {found}")
        self.device = images.device
        self.layout, self.recipe, self.members, self.batch = layout, recipe, members, recipe.batch
        self.networks = networks = Networks.zeros(members, layout, recipe.batch, self.device)
        self.parameters, self.velocity, self.running = networks.parameters, networks.velocity, networks.running
        self.batches = torch.zeros(members, dtype=torch.int64, device=self.device)
        self._shared = shared = Shared(
            layout=layout,
            kernels=kernels(self.device),
            images=images.contiguous(),
            labels=labels.to(torch.int64).contiguous(),
            recipe=recipe,
            forward_slots=layout.forward_slots.to(self.device),
            backward_slots=layout.backward_slots.to(self.device),
        )
        most = min(EVALUATED_AT_ONCE // (recipe.batch * members), EVALUATED_OF_ONE // recipe.batch)
        self._parts = 1 << max(0, most.bit_length() - 1)
        self.buffers: dict[str, Tensor] = {}  # of training: every value between two kernels
        scratch: dict[str, Tensor] = {}
        self._launches: dict[bool, list[Launches]] = {True: [], False: []}  # of training and of evaluation, by branch
        share = -(-members // BRANCHES)
        for first in range(0, members, share):
            slots = slice(first, min(first + share, members))
            own = networks.part(slots)
            kept = Buffers(self.buffers, layout, members, slots, self.batch, self.device)
            self._launches[True].append(TrainingStep(shared, own, kept))
            kept = Buffers(scratch, layout, members, slots, self.batch * self._parts, self.device)
            self._launches[False].append(EvaluationStep(shared, own, kept))
        self._graphs: dict[bool, torch.cuda.CUDAGraph] = {}

    def normalise(self, slot: int, scale: Tensor, shift: Tensor) -> None:
        """How the network in a slot sees its images: bytes · scale + shift for each channel."""
        self.networks.scale[slot, :3] = scale.reshape(3).to(self.device)
        self.networks.shift[slot, :3] = shift.reshape(3).to(self.device)

    def place(
        self,
        slot: int,
        state: Mapping[str, Tensor],
        masks: Mapping[str, Tensor] | None = None,
        momentum: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Puts a network into a slot: its state, masks by weight name and momentum by "parameter/momentum_buffer".
        Pruned weights and their momentum become 0.
        """
        layout, networks = self.layout, self.networks
        layout.check(state)
        mask = layout.mask_row(masks)
        pruned = mask == 0
        networks.mask[slot] = mask.to(self.device)
        networks.parameters[slot] = layout.row(state).masked_fill_(pruned, 0).to(self.device)
        networks.velocity[slot] = layout.row(momentum or {}, MOMENTUM).masked_fill_(pruned, 0).to(self.device)
        networks.running[slot] = layout.running(state).to(self.device)
        self.batches[slot] = int(state[f"{layout.stem.norm.name}.num_batches_tracked"])
        for packed, slots in (
            (networks.packed_forward, self._shared.forward_slots),
            (networks.packed_backward, self._shared.backward_slots),
        ):
            used = slots >= 0
            packed[slot, slots[used].long()] = networks.parameters[slot, used].bfloat16()

    def train(self, order: Tensor, shift: Tensor, flip: Tensor, rates: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
        """S steps of all active networks: `order` int [K, S, B] are rows of the images, `shift` int [K, S, B, 2] and
        `flip` bool [K, S, B] say how each is augmented (as in `data.augmented`), `rates` [K, S], `active` bool [K].

        Returns loss and number of right answers of each step, [K, S], on the device; nothing waits for it.
        A network that is not active stays as it is, and its results are 0. Rows and labels are not checked.
        """
        active = active.to(self.device, torch.bool, non_blocking=True)
        self.networks.active.copy_(active)
        self.batches += active * order.shape[1]
        codes = self._code(order, shift, flip) * active[:, None, None]
        table = self._run(codes, rates.to(self.device, torch.float32, non_blocking=True))
        table = table.masked_fill_(~active[:, None, None], 0)
        return table[..., 0] / self.batch, table[..., 1].long()

    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss, float64 [K], and number of right answers, int64 [K], of `rows` int [K, M] of the images, with
        running statistics, without augmentation and label smoothing; on the device.
        """
        count, batch = rows.shape[1], self.batch * self._parts
        steps = -(-count // batch)
        codes = torch.full((self.members, steps * batch), -1, dtype=torch.int32, device=self.device)
        codes[:, :count] = self._code(rows)
        table = self._run(codes.view(self.members, steps, batch), None)
        return table[..., 0].double().sum(1), table[..., 1].long().sum(1)

    def finite(self) -> Tensor:
        """Whether all numbers of each network's state are, bool [K], on the device."""
        return torch.isfinite(self.parameters).all(1) & torch.isfinite(self.running).flatten(1).all(1)

    def state(self, slot: int) -> State:
        """A network's `state_dict`, on the CPU; waits for the device."""
        return self.layout.state(self.parameters[slot].cpu(), self.running[slot].cpu(), int(self.batches[slot]))

    def momentum(self, slot: int) -> State:
        """A network's momentum by "parameter/momentum_buffer", on the CPU; waits for the device."""
        return self.layout.tensors(self.velocity[slot].cpu(), MOMENTUM)

    def _code(self, rows: Tensor, shift: Tensor | None = None, flip: Tensor | None = None) -> Tensor:
        """Row, crop and flip of each image as one int32: row << 9 | flip << 8 | down << 4 | right."""
        code = rows.to(self.device, torch.int32, non_blocking=True) << 9
        if shift is None or self.recipe.augment == "none":
            return code | 4 << 4 | 4
        moved = shift.to(self.device, torch.int32, non_blocking=True)
        code = code | moved[..., 0] << 4 | moved[..., 1]
        if flip is None or self.recipe.augment == "crop":
            return code
        return code | flip.to(self.device, torch.int32, non_blocking=True) << 8

    def _run(self, codes: Tensor, rates: Tensor | None) -> Tensor:
        """Replays a step for every [K, B] of `codes`, in training where there are rates.

        Returns loss and right answers, both summed over each `self.batch` images, [K, S, 2].
        """
        graph, networks = self._graph(rates is not None), self.networks
        steps, batch = codes.shape[1:]
        parts = batch // self.batch
        room = networks.codes.view(self.members, STEPS // parts, batch)
        table = torch.empty(self.members, steps * parts, 2, device=self.device)
        for first in range(0, steps, STEPS // parts):
            last = min(first + STEPS // parts, steps)
            count = last - first
            room[:, :count] = codes[:, first:last]
            if rates is not None:
                networks.rates[:, :count] = rates[:, first:last]
            networks.step.zero_()
            for _ in range(count):
                graph.replay()
            table[:, first * parts : last * parts] = networks.table[:, : count * parts]
        return table

    def _graph(self, training: bool) -> torch.cuda.CUDAGraph:
        if training not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.device(self.device), recorded_by(graph, self.device):
                _side_by_side(self._launches[training])
            self._graphs[training] = graph
        return self._graphs[training]


def _side_by_side(branches: list[Launches]) -> None:
    """A step of each branch, each on a stream of its own."""
    here = torch.cuda.current_stream()
    streams = [torch.cuda.Stream() for _ in branches]  # type: ignore[no-untyped-call]
    for branch, stream in zip(branches, streams, strict=True):
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            _launch(branch.launches)
    for stream in streams:
        here.wait_stream(stream)


def _launch(launches: list[Launch]) -> None:
    """Puts the kernels of a step on the current stream, and those aside of it on another."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    for number, one in enumerate(launches):
        if one.way == "aside":
            side.wait_stream(main)
            with torch.cuda.stream(side):
                one.launch(False)
            continue
        if one.way == "joining":
            main.wait_stream(side)
        one.launch(number > 0 and one.way == "next")
