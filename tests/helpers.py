"""Small networks, random layers with many ties, and slow, obvious versions of what the library does fast."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import activeprune as ap
from activeprune.experiment.store import FolderStore

needs_a_compiler = pytest.mark.skipif(
    not shutil.which("gcc") and not shutil.which("c++"), reason="torch.compile needs a C++ compiler"
)


class SmallNet(nn.Module):
    """Convolutions with batch-norm, a linear layer, and something of everything that must never be pruned."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 6, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(6)
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu()
        x = self.bn2(self.conv2(x)).relu()
        return self.fc(self.dropout(x.mean((2, 3))))


class Net(nn.Module):
    """Layers by name, and a function that says how they are connected."""

    def __init__(self, forward: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def conv(inputs: int, outputs: int, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, groups=groups)


def small_batches(count: int = 3, size: int = 5, classes: int = 3) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(7)
    return [
        (torch.randn(size, 2, 6, 6, generator=draw), torch.randint(0, classes, (size,), generator=draw))
        for _ in range(count)
    ]


def random_masks(model: nn.Module, alive: float = 0.6, seed: int = 0) -> ap.Masks:
    draw = torch.Generator().manual_seed(seed)
    return ap.Masks(
        {name: torch.rand(mask.shape, generator=draw) < alive for name, mask in ap.Masks.dense(model).items()}
    )


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same_state(model: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def slow_lowest(keys: dict[str, Tensor], among: dict[str, Tensor], count: int) -> set[tuple[str, int]]:
    """The (layer, flat index) of the lowest keys, by sorting Python tuples: ties by layer, then by index."""
    ranked = [
        (float(keys[name].flatten()[i]), layer, i, name)
        for layer, name in enumerate(among)
        for i in range(among[name].numel())
        if bool(among[name].flatten()[i])
    ]
    return {(name, i) for _, _, i, name in sorted(ranked)[:count]}


def positions(masks: dict[str, Tensor] | ap.Masks) -> set[tuple[str, int]]:
    """Where bool tensors are True."""
    return {(name, int(i)) for name, mask in masks.items() for i in mask.flatten().nonzero()}


SHAPES = [(3,), (2, 3), (4, 2), (2, 2, 1, 2), (1, 5), (7,)]


@st.composite
def layers(draw: st.DrawFn, tied: bool = True) -> tuple[dict[str, Tensor], ap.Masks]:
    """Tensors by name (few different values, so many ties), and masks of them with at least one weight alive."""
    values = st.sampled_from([-1.5, -0.5, -0.25, -0.0, 0.0, 0.25, 0.5, 2.0]) if tied else st.floats(-100, 100, width=32)
    tensors, masks = {}, {}
    for index in range(draw(st.integers(1, 4))):
        shape = draw(st.sampled_from(SHAPES))
        size = int(torch.Size(shape).numel())
        tensors[f"layer{index}.weight"] = torch.tensor(draw(st.lists(values, min_size=size, max_size=size))).view(shape)
        masks[f"layer{index}.weight"] = torch.tensor(draw(st.lists(st.booleans(), min_size=size, max_size=size))).view(
            shape
        )
    first = next(iter(masks))
    masks[first].view(-1)[0] = True
    return tensors, ap.Masks(masks)


def holder(tensors: dict[str, Tensor]) -> nn.Module:
    """A model whose parameters are these: "layer0.weight" is the weight of its child "layer0"."""
    model = nn.Module()
    for name, tensor in tensors.items():
        child, _, attribute = name.rpartition(".")
        model.add_module(child, nn.Module())
        model.get_submodule(child).register_parameter(attribute, nn.Parameter(tensor.clone()))
    return model


@st.composite
def journeys(draw: st.DrawFn) -> tuple[ap.Masks, dict[str, Tensor], dict[str, Tensor], int]:
    """Masks, trained and start weights with many ties in value and in movement, and a count."""
    trained, masks = draw(layers())
    steps = st.sampled_from([0.0, 0.125, -0.125, 0.5, -0.5, 1.0])
    start = {}
    for name, weight in trained.items():
        moved = draw(st.lists(steps, min_size=weight.numel(), max_size=weight.numel()))
        start[name] = weight + torch.tensor(moved).view_as(weight)
    return masks, trained, start, draw(st.integers(0, masks.alive))


def algorithm_1(
    masks: ap.Masks, trained: dict[str, Tensor], start: dict[str, Tensor], count: int
) -> set[tuple[str, int]]:
    """The paper's words: sort |θ* - θ0| ascending; walking along, prune the first `count` weights that are negative."""
    entries = []
    for layer, name in enumerate(masks):
        for i in range(masks[name].numel()):
            if masks[name].flatten()[i]:
                now, then = float(trained[name].flatten()[i]), float(start[name].flatten()[i])
                entries.append((abs(now - then), layer, i, name, now))
    pruned: set[tuple[str, int]] = set()
    for _, _, i, name, now in sorted(entries):
        if len(pruned) < count and now < 0:
            pruned.add((name, i))
    return pruned


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2, nesterov=True),
    "sgd_foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 5) -> None:
    for x, y in small_batches(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def pruned_are_zero(model: nn.Module, masks: ap.Masks) -> bool:
    """Whether every pruned weight is +0.0 to the bit."""
    weights = dict(model.named_parameters())
    pruned = torch.cat([weights[name].detach()[~mask] for name, mask in masks.items()])
    return bool((pruned == 0).all() and not pruned.signbit().any())


def take_out(store: FolderStore, key: str) -> None:
    """An entry as if it had never been there."""
    shutil.rmtree(store.objects / key[:2] / key, ignore_errors=True)
