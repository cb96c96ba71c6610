"""Lookahead: a weight counts as much as the weights before and behind it let it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..evidence import Evidence
from ..graph import Link, WeightGraph
from ..precision import widened
from . import method

Squares = NDArray[np.float64]
NONE = -1.0  # instead of a sum of squares: there is no neighbour


@method("lookahead", scope="layer", graph=True)
def lookahead(evidence: Evidence, skips: bool = True) -> dict[str, Tensor]:
    """|w| · ‖weights feeding the neuron that w reads‖ · ‖weights reading the neuron that w feeds‖ (Park et al. 2020).

    A batch-norm in between multiplies by |γ| / √(var + ε). Several neighbours add their squared norms, a skip
    connection counts 1 (with `skips=False` only weights are neighbours), no neighbour gives the factor 1.
    """
    graph = evidence.graph
    alive = {name: w.masked_fill(~evidence.masks[name].to(w.device), 0) for name, w in evidence.weights.items()}
    tensors = {**dict(evidence.model.named_parameters()), **dict(evidence.model.named_buffers()), **alive}
    fed, read = _fed_and_read(graph, tensors, skips)
    scores = {}
    for name, weight in evidence.weights.items():
        scores[name] = weight.abs()
        if name in graph.layers:
            layer = graph.layers[name]
            blocks = layer.blocks(scores[name])
            groups, outputs, inputs, _ = blocks.shape
            before = torch.from_numpy(_norms(fed, layer.reads, groups * inputs)).view(groups, 1, inputs, 1)
            behind = torch.from_numpy(_norms(read, layer.feeds, groups * outputs)).view(groups, outputs, 1, 1)
            scores[name] = layer.unblocked(blocks * before.to(blocks) * behind.to(blocks))
    return scores


def _fed_and_read(graph: WeightGraph, tensors: Mapping[str, Tensor], skips: bool) -> tuple[Squares, Squares]:
    """For every neuron the squared norm of what feeds it and of what reads it."""
    fed, read = np.full(graph.size, NONE), np.full(graph.size, NONE)
    unit = np.ones(graph.size)  # what a skip connection has been multiplied by since its neuron was made, squared
    for layer in graph.layers.values():
        squares = layer.blocks(widened(tensors[layer.weight])).square()
        _add(fed, layer.feeds[:, 0], _sums(squares, (2, 3))[layer.feeds[:, 1]])
        _add(read, layer.reads[:, 0], _sums(squares, (1, 3))[layer.reads[:, 1]])
    factors = [_squared_factors(link, tensors) for link in graph.links]
    for link, factor in zip(graph.links, factors, strict=True):
        if link.mode == "scale" and not link.making:
            unit[link.target] = unit[link.source] * factor
        if link.mode != "identity":
            _add(fed, link.target, np.where(fed[link.source] == NONE, NONE, fed[link.source] * factor))
        elif skips:
            _add(fed, link.target, unit[link.source])
    for link, factor in zip(reversed(graph.links), reversed(factors), strict=True):
        if link.mode != "identity":
            _add(read, link.source, np.where(read[link.target] == NONE, NONE, read[link.target] * factor))
        elif skips:
            _add(read, link.source, np.ones(len(link.source)))
    return fed, read


def _add(squares: Squares, where: NDArray[np.int64], more: Squares) -> None:
    """Adds neighbours, in place."""
    where, more = where[more != NONE], more[more != NONE]
    squares[where] = np.maximum(squares[where], 0)
    np.add.at(squares, where, more)


def _sums(squares: Tensor, axes: tuple[int, int]) -> Squares:
    return squares.sum(axes, dtype=torch.float64).reshape(-1).cpu().numpy()


def _squared_factors(link: Link, tensors: Mapping[str, Tensor]) -> Squares:
    if link.scale is None or link.channel is None:
        return np.ones(len(link.source))
    return link.scale.factors(tensors, link.channel) ** 2


def _norms(squares: Squares, pairs: NDArray[np.int64], length: int) -> Squares:
    """The norm for every index of a weight's axis."""
    found = np.full(length, NONE)
    _add(found, pairs[:, 1], squares[pairs[:, 0]])
    return np.where(found == NONE, 1.0, np.sqrt(np.maximum(found, 0)))
