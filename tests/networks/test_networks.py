"""The paper's networks: their sizes, shapes and starts."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import activeprune as ap
from activeprune.core.randomness import everybodys_states
from activeprune.networks import NETWORKS, network
from activeprune.networks.initial import initial

# name, classes, input, parameters as the literature counts them; tests/networks/test_graphs.py goes through them, too
SIZES = [
    ("resnet8", 10, (3, 8, 8), 78_042),
    ("resnet20", 10, (3, 32, 32), 272_474),  # 269,722 with padded shortcuts, and two 1x1 convolutions with batch-norm
    ("vgg19", 10, (3, 32, 32), 20_035_018),
    ("densenet40", 100, (3, 32, 32), 1_060_132),
    ("mobilenetv2", 100, (3, 32, 32), 2_351_972),
    ("resnet50", 1000, (3, 64, 64), 25_557_032),
]
LARGE = [("vgg19_139m", 10, (3, 32, 32), 139_616_714), ("vit_b16", 10, (3, 384, 384), 86_098_186)]


def check(name: str, classes: int, shape: tuple[int, ...], parameters: int) -> None:
    model = ap.build(name, num_classes=classes)
    assert sum(p.numel() for p in model.parameters()) == parameters
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.fill_(1.0)  # timm starts the last of each block at 0, which lets no gradient through
    output = model(torch.randn(2, *shape))
    assert output.shape == (2, classes)
    nn.functional.cross_entropy(output, torch.tensor([0, classes - 1])).backward()
    weights = ap.Masks.dense(model).weights_of(model)
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in weights.values())


@pytest.mark.parametrize(("name", "classes", "shape", "parameters"), SIZES, ids=[row[0] for row in SIZES])
def test_parameters_shapes_and_a_gradient_for_every_prunable_weight(
    name: str, classes: int, shape: tuple[int, ...], parameters: int
) -> None:
    check(name, classes, shape, parameters)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "classes", "shape", "parameters"), LARGE, ids=[row[0] for row in LARGE])
def test_the_same_for_the_large_ones(name: str, classes: int, shape: tuple[int, ...], parameters: int) -> None:
    check(name, classes, shape, parameters)


def test_all_of_them_are_listed_with_a_line() -> None:
    assert {row[0] for row in SIZES + LARGE} == set(NETWORKS), "a network needs a line in SIZES (or LARGE) above"
    assert all(NETWORKS[name].summary for name in NETWORKS)


def test_resnet20_with_padded_shortcuts_has_no_weights_there() -> None:
    model = ap.build("resnet20", shortcut="pad")
    assert sum(p.numel() for p in model.parameters()) == 269_722
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 10)
    assert not any("shortcut" in name for name, _ in model.named_parameters())


def test_digits_have_one_channel() -> None:
    assert ap.build("resnet8", in_channels=1)(torch.randn(2, 1, 8, 8)).shape == (2, 10)


def test_a_network_of_ones_own_by_module_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_nets.py").write_text(
        "from torch import nn\n"
        "def tiny(num_classes, width=4):\n"
        "    return nn.Sequential(nn.Linear(2, width), nn.Linear(width, num_classes))\n"
        "def classless():\n    return nn.Linear(2, 2)\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert ap.build("my_nets:tiny", num_classes=7, width=5)[0].out_features == 5
    for name, says in [
        ("my_nets:missing", "network 'my_nets:missing' cannot be imported"),
        ("no_such_module:tiny", "network 'no_such_module:tiny' cannot be imported"),
        ("my_nets:number", "is no function but 3"),
        ("my_nets:classless", "its builder must take num_classes"),
    ]:
        with pytest.raises(ap.InputError, match=says):
            ap.build(name)
    sys.modules.pop("my_nets", None)


def test_mistakes_are_named() -> None:
    for call, says in [
        (lambda: ap.build("resnet2"), "unknown network 'resnet2': did you mean 'resnet20'"),
        (lambda: ap.build("resnet20", shortcuts="pad"), "option of network 'resnet20' 'shortcuts': did you mean"),
        (lambda: ap.build("resnet20", shortcut="padd"), "unknown shortcut 'padd': did you mean 'pad'"),
        (lambda: ap.build("resnet20", num_classes=0), "num_classes = 0"),
        (lambda: ap.build("vit_b16", resolution=100), "resolution = 100: ViT-B/16 needs a multiple of 16"),
        (lambda: initial("resnet8", 10, 0, 0, init="kaiming"), "unknown init 'kaiming'"),
        (lambda: initial("resnet50", 10, 0, 0, init="kaiming_normal", pretrained=True), "would discard them"),
        (lambda: initial("resnet50", 10, 0, 0, init="kaiming_normal", weights="DEFAULT"), "would discard them"),
        (lambda: network("x", init="zeros")(lambda num_classes: nn.Linear(1, 1)), "unknown init 'zeros'"),
    ]:
        with pytest.raises(ap.InputError, match=says):
            call()


# -- where a training starts


def test_the_start_depends_on_seed_and_cycle_alone() -> None:
    torch.manual_seed(1)
    first = initial("resnet8", 10, seed=0, cycle=1).state_dict()
    torch.manual_seed(2)
    state = torch.get_rng_state()
    again = initial("resnet8", 10, seed=0, cycle=1).state_dict()
    assert torch.equal(torch.get_rng_state(), state)  # torch's own random state is left alone
    assert all(torch.equal(first[name], again[name]) for name in first)
    for seed, cycle in [(0, 2), (1, 1)]:
        other = initial("resnet8", 10, seed=seed, cycle=cycle).state_dict()
        assert not torch.equal(first["conv.weight"], other["conv.weight"])


def drawn_by_numpy(num_classes: int = 10) -> nn.Module:
    layer = nn.Linear(1, num_classes)
    layer.weight.data += float(np.random.rand()) + random.random()  # noqa: NPY002  as old code does
    return layer


def test_a_builder_may_draw_from_any_generator_that_is_everybodys() -> None:
    name, before = "tests.networks.test_networks:drawn_by_numpy", everybodys_states(torch.device("cpu"))
    one, two = (initial(name, 10, seed=5, cycle=0, init="native").state_dict() for _ in range(2))
    assert torch.equal(one["weight"], two["weight"])
    assert everybodys_states(torch.device("cpu")) == before
    other = initial(name, 10, seed=6, cycle=0, init="native").state_dict()
    assert not torch.equal(one["weight"], other["weight"])


def _native(random_state: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(random_state)
    return initial("resnet8", 10, seed=5, cycle=0, init="native").state_dict()


def test_native_starts_are_the_builders_own_and_repeatable() -> None:
    one, two = (_native(random_state) for random_state in (1, 2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert one["fc.weight"].abs().max() <= 1 / 8  # torch's uniform ±1 / √64, not a normal distribution


def test_kaiming_normal_has_variance_two_over_fan_in() -> None:
    model = initial("vgg19", 10, seed=0, cycle=0).requires_grad_(False)
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 30_000:
            fan_in = module.in_channels * 9
            assert module.weight.std() == pytest.approx((2 / fan_in) ** 0.5, rel=0.02)
            assert module.weight.mean().abs() < 5 * (2 / fan_in / module.weight.numel()) ** 0.5
        elif isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()


def test_recorded_starts_never_change() -> None:
    """A change here would orphan every stored result."""
    weights = initial("resnet8", 10, seed=0, cycle=1).conv.weight.flatten()[:3]
    assert weights.tolist() == pytest.approx([0.12830494, 0.33989170, -0.34319520], abs=1e-6)
