"""Narrow convolutions that are computed in another way: the same numbers, names and parameters."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d

from activeprune.training.narrow import Padded, Spread, rewrite
from tests.helpers import needs_a_compiler

SAME = {"padding": 1}


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "settings", "way"),
    [
        (3, 12, 3, SAME, Spread),
        (28, 12, 3, SAME, Spread),
        (40, 16, 3, {**SAME, "bias": False}, Spread),
        (20, 5, (3, 5), {"padding": (1, 2)}, Spread),
        (16, 12, 3, {"stride": 2, **SAME}, Padded),
        (16, 12, 3, {"stride": 2, "bias": False}, Padded),
        (3, 40, 3, {"padding": "same", "dilation": 2}, Padded),
        (20, 12, 3, {"padding": 2}, Padded),
        (20, 12, 2, {}, Padded),
        (28, 12, 1, {}, Padded),
    ],
)
def test_another_way_to_the_same_outputs_and_gradients(inputs, outputs, kernel, settings: dict, way: type) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(inputs, outputs, kernel, dtype=torch.float64, **settings)
    other = nn.Conv2d(inputs, outputs, kernel, dtype=torch.float64, **settings)
    other.load_state_dict(plain.state_dict())
    rewrite(nn.Sequential(other))
    assert type(other) is way
    images = torch.randn(2, inputs, 7, 9, dtype=torch.float64)
    towards = torch.randn_like(plain(images))
    seen = []
    for conv in (plain, other):
        shown = images.clone().requires_grad_()
        y = conv(shown)
        (y * towards).sum().backward()
        seen.append([y.detach(), shown.grad, *(parameter.grad for parameter in conv.parameters())])
    for one, two in zip(*seen, strict=True):
        torch.testing.assert_close(two, one)


def test_a_single_image_and_a_frozen_weight_are_no_exception() -> None:
    for settings in ({"padding": 1}, {"stride": 2}):
        plain, other = (nn.Conv2d(20, 12, 3, dtype=torch.float64, **settings) for _ in range(2))
        other.load_state_dict(plain.state_dict())
        rewrite(nn.Sequential(other))
        image = torch.randn(20, 6, 6, dtype=torch.float64)
        torch.testing.assert_close(other(image), plain(image))
        other.weight.requires_grad_(False)
        shown = image[None].requires_grad_()
        other(shown).sum().backward()
        assert other.weight.grad is None
        torch.testing.assert_close(shown.grad, torch.autograd.grad(plain(shown).sum(), shown)[0])


@needs_a_compiler
@pytest.mark.slow
def test_compiled_in_16_bits_they_compute_the_same() -> None:
    """With gradients and without, as torch's convolutions do under autocast, but for rounding."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(20, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 20, 3, stride=2))
    other = deepcopy(plain)
    rewrite(other)
    assert [type(layer) for layer in other] == [Spread, nn.ReLU, Padded]
    images = torch.randn(4, 20, 9, 9)
    seen = []
    for model in (plain, torch.compile(other, fullgraph=True, dynamic=False, options={"deterministic": True})):
        with torch.autocast("cpu", torch.bfloat16):
            y = model(images)
            y.float().square().sum().backward()
            with torch.no_grad():
                again = model(images)
        seen.append([y.detach(), again])
    seen = [[*outputs, *(p.grad for p in of.parameters())] for outputs, of in zip(seen, (plain, other), strict=True)]
    for one, two in zip(*seen, strict=True):
        assert one.dtype == two.dtype
        assert float((one.float() - two.float()).norm() / one.float().norm()) < 0.02


def test_in_16_bits_the_sums_are_kept_in_32() -> None:
    """An output is rounded a second time at most, whatever the number of inputs."""
    torch.manual_seed(0)
    conv = nn.Conv2d(128, 8, 3, padding=1, bias=False)
    images = torch.randn(2, 128, 8, 8).bfloat16()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        exact = conv2d(images.double(), conv.weight.bfloat16().double(), padding=1)
        rewrite(nn.Sequential(conv))
        assert type(conv) is Spread
        found = conv(images)
    assert found.dtype == torch.bfloat16
    assert float((found.double() - exact).norm() / exact.norm()) < 0.0025  # 0.0039 with sums in 16 bits


def test_only_narrow_convolutions_are_rewritten() -> None:
    kinds = {
        "spread": nn.Conv2d(28, 12, 3, padding=1),
        "padded": nn.Conv2d(3, 8, 3),
        "wide": nn.Conv2d(8, 16, 3),
        "even": nn.Conv2d(16, 16, 3, padding=1),
        "grouped": nn.Conv2d(12, 12, 3, groups=12),
        "round": nn.Conv2d(12, 8, 3, padding_mode="circular"),
        "own": type("Own", (nn.Conv2d,), {})(3, 8, 3),
    }
    model = nn.ModuleDict(kinds)
    before = {name: id(tensor) for name, tensor in model.named_parameters()}
    rewrite(model)
    assert {name: type(module) for name, module in model.items() if type(module) in (Spread, Padded)} == {
        "spread": Spread, "padded": Padded,
    }  # fmt: skip
    assert {name: id(tensor) for name, tensor in model.named_parameters()} == before
