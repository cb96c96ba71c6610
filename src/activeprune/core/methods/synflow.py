"""Synaptic flow."""

from __future__ import annotations

import torch
from torch import Tensor

from ..calling import call, eval_mode, inputs_of
from ..errors import InputError
from ..evidence import Evidence, gradients
from . import method


@method("synflow", chain="at_init", rounds=100, batches=1)
def synflow(evidence: Evidence) -> dict[str, Tensor]:
    """|w · ∂R/∂w|, R the output of the network of absolute weights for an input of ones (Tanaka et al. 2020).

    Only the shape of the first batch matters. In float64: products over many layers leave float32's range.
    """
    arguments, keywords = inputs_of(next(evidence.batches()))
    if keywords or not isinstance(arguments[0], Tensor) or not arguments[0].is_floating_point():
        raise InputError("synflow needs a network whose only input is a floating-point tensor")
    with torch.inference_mode(False), torch.enable_grad(), eval_mode(evidence.model):
        return _flow_scores(evidence, arguments[0])


def _flow_scores(evidence: Evidence, example: Tensor) -> dict[str, Tensor]:
    everything = {**dict(evidence.model.named_parameters()), **dict(evidence.model.named_buffers())}
    absolute = {name: t.detach().abs().double() for name, t in everything.items() if t.is_floating_point()}
    leaves = {name: w.detach().abs().double().requires_grad_() for name, w in evidence.masked_weights().items()}
    ones = torch.ones(1, *example.shape[1:], dtype=torch.float64, device=example.device)
    flow = call(evidence.model, {**absolute, **leaves}, ones).sum()
    grads = gradients(flow, leaves)
    return {name: (weight.detach() * grads[name]).abs() for name, weight in leaves.items()}
