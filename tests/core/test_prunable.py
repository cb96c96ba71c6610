"""Convolutions, linear layers and attention projections; never biases, normalisation or embeddings."""

import sys
import types

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import activeprune as ap
from activeprune.core.prunable import prunable
from tests.helpers import SmallNet


def test_only_weights_of_convolutions_and_linear_layers_in_parameter_order() -> None:
    model = SmallNet()
    assert list(prunable(model)) == ["conv1.weight", "conv2.weight", "fc.weight"]
    assert all(parameter is dict(model.named_parameters())[name] for name, parameter in prunable(model).items())


def test_attention_convolutions_of_every_kind_and_nothing_else() -> None:
    model = nn.ModuleDict(
        {
            "attention": nn.MultiheadAttention(8, 2),
            "cross": nn.MultiheadAttention(8, 2, kdim=4, vdim=6),
            "one": nn.Conv1d(2, 3, 1),
            "up": nn.ConvTranspose2d(2, 3, 2),
            "words": nn.Embedding(5, 8),
            "norm": nn.LayerNorm([4, 8]),
            "root": nn.RMSNorm(8),
        }
    )
    assert list(prunable(model)) == [
        "attention.in_proj_weight",
        "attention.out_proj.weight",
        "cross.q_proj_weight",
        "cross.k_proj_weight",
        "cross.v_proj_weight",
        "cross.out_proj.weight",
        "one.weight",
        "up.weight",
    ]


def test_transformers_conv1d_is_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("transformers.pytorch_utils")
    monkeypatch.setitem(sys.modules, "transformers.pytorch_utils", module)

    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 3))
            self.bias = nn.Parameter(torch.ones(3))

    Conv1D.__module__ = module.__name__
    assert list(prunable(nn.Sequential(Conv1D()))) == ["0.weight"]
    Conv1D.__module__ = "somebody.elses"
    with pytest.raises(ap.InputError, match="no weight of Sequential can be pruned: it has no convolution"):
        prunable(nn.Sequential(Conv1D()))


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (None, "fc", ["conv1.weight", "conv2.weight"]),
        (None, ["conv1", "fc.weight"], ["conv2.weight"]),
        ("conv*", None, ["conv1.weight", "conv2.weight"]),
        ("conv*", "conv1", ["conv2.weight"]),
        (["fc", "conv1.*"], None, ["conv1.weight", "fc.weight"]),
        ("*", "bn1", ["conv1.weight", "conv2.weight", "fc.weight"]),
    ],
)
def test_patterns_name_layers_or_parameters(include: object, exclude: object, expected: list[str]) -> None:
    assert list(prunable(SmallNet(), include, exclude)) == expected
    assert list(ap.Masks.dense(SmallNet(), include=include, exclude=exclude)) == expected


def test_a_matrix_of_an_unknown_layer_can_be_included_by_its_full_name() -> None:
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.ones(2, 2))
            self.fc = nn.Linear(2, 2)
            self.words = nn.Embedding(3, 2)

    model = Custom()
    assert list(prunable(model)) == ["fc.weight"]
    assert list(prunable(model, include=["matrix", "fc"])) == ["matrix", "fc.weight"]
    assert list(prunable(model, include="*")) == ["fc.weight"]
    for forbidden in ("fc.bias", "words.weight"):
        with pytest.raises(ap.InputError, match=f"'{forbidden}' cannot be pruned: biases"):
            prunable(model, include=forbidden)


def test_mistakes_in_patterns_are_named() -> None:
    with pytest.raises(ap.InputError, match="unknown layer in exclude 'cnov1': did you mean 'conv1'"):
        prunable(SmallNet(), exclude="cnov1")
    with pytest.raises(ap.InputError, match="unknown layer in include 'head'"):
        prunable(SmallNet(), include=["fc", "head"])
    with pytest.raises(ap.InputError, match="no weight of SmallNet can be pruned: include and exclude leave none"):
        prunable(SmallNet(), exclude="*")


def test_a_shared_weight_is_an_error_until_it_is_excluded() -> None:
    model = nn.ModuleDict({"words": nn.Embedding(5, 8), "body": nn.Linear(8, 8), "head": nn.Linear(8, 5, bias=False)})
    model["head"].weight = model["words"].weight
    with pytest.raises(ap.InputError, match=r"'head.weight' is one tensor with several names .*'words.weight'"):
        ap.Masks.dense(model)
    masks = ap.Masks.dense(model, exclude="head")
    assert list(masks) == ["body.weight"]
    masks.apply_(model)


def test_a_layer_under_two_names_and_two_parameters_on_one_memory_are_shared_too() -> None:
    layer = nn.Linear(3, 3)
    with pytest.raises(ap.InputError, match=r"'a.weight' is one tensor with several names \('a.weight', 'b.weight'\)"):
        prunable(nn.ModuleDict({"a": layer, "b": layer}))
    twin = nn.Linear(3, 3)
    twin.weight.data = layer.weight.data
    with pytest.raises(ap.InputError, match="several names"):
        prunable(nn.Sequential(layer, twin))


def test_weights_that_are_not_there_yet_or_not_their_own_are_errors() -> None:
    with pytest.raises(ap.InputError, match=r"'0.weight' has no values yet \(a lazy layer\)"):
        prunable(nn.Sequential(nn.LazyLinear(3)))
    assert list(prunable(nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2)), exclude="0")) == ["1.weight"]
    halfway = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    prune.l1_unstructured(halfway[0], "weight", 2)
    with pytest.raises(ap.InputError, match=r"'0.weight': no parameter of its own .*prune.remove"):
        prunable(halfway)
    assert list(prunable(halfway, exclude="0")) == ["1.weight"]
    with pytest.raises(ap.InputError, match=r"'0.weight': no parameter of its own"):
        prunable(nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 3))))


def test_integer_weights_are_an_error_and_meta_tensors_are_never_shared() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].weight = nn.Parameter(torch.ones(2, 2, dtype=torch.int8), requires_grad=False)
    with pytest.raises(ap.InputError, match=r"'0.weight' is torch.int8: only floating-point weights"):
        prunable(model)
    with torch.device("meta"):
        assert len(prunable(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))) == 2


def test_wrappers_do_not_change_names() -> None:
    model = SmallNet()
    names = list(ap.Masks.dense(model))
    assert list(ap.Masks.dense(nn.DataParallel(model))) == names
    assert list(ap.Masks.dense(torch.compile(model))) == names
