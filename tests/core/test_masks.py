"""Masks are values that know their model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from safetensors.torch import save_file
from torch import nn

import activeprune as ap
from tests.helpers import SmallNet, holder, layers, random_masks, same_state, snapshot


def test_dense_masks_count_every_prunable_weight() -> None:
    masks = ap.Masks.dense(SmallNet())
    assert masks.alive == masks.total == 4 * 2 * 9 + 6 * 4 * 9 + 3 * 6
    assert masks.density == 1.0
    assert masks["conv1.weight"].dtype == torch.bool
    assert masks["conv1.weight"].shape == (4, 2, 3, 3)
    assert dict(masks).keys() == {"conv1.weight", "conv2.weight", "fc.weight"}


def test_density_is_alive_over_prunable() -> None:
    masks = ap.Masks({"a": torch.tensor([True, False, False]), "b": torch.tensor([[True]])})
    assert (masks.alive, masks.total, masks.density) == (2, 4, 0.5)
    assert repr(masks) == "Masks(2 layers, 2 of 4 weights alive, density 0.5000)"


def test_pruned_weights_become_exactly_zero_and_nothing_else_changes() -> None:
    model = SmallNet()
    before = snapshot(model)
    masks = random_masks(model)
    assert masks.apply_(model) is masks
    for name, tensor in model.state_dict().items():
        if name in masks:
            assert torch.equal(tensor[masks[name]], before[name][masks[name]])
            dead = tensor[~masks[name]]
            assert (dead == 0).all()
            assert not dead.signbit().any()
        else:
            assert torch.equal(tensor, before[name])


def test_even_nan_weights_become_zero() -> None:
    model = nn.Linear(2, 1)
    model.weight.data.fill_(torch.nan)
    ap.Masks({"weight": torch.tensor([[True, False]])}).apply_(model)
    assert model.weight[0, 1] == 0


def test_masks_without_chosen_positions_leave_the_old_ones_alone() -> None:
    masks = ap.Masks({"a": torch.tensor([True, True, False])})
    chosen = {"a": torch.tensor([True, False, True])}
    assert masks.without(chosen)["a"].tolist() == [False, True, False]
    assert chosen["a"].tolist() == [True, False, True]
    assert masks.without(chosen, reuse=True)["a"].tolist() == [False, True, False]
    assert masks["a"].tolist() == [True, True, False]


class Deeper(SmallNet):
    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Linear(2, 2)


def test_masks_of_another_model_are_refused_before_anything_changes() -> None:
    masks = random_masks(SmallNet())
    strict = ap.Masks.dense(SmallNet())
    for other, says in [
        (nn.Linear(3, 3), r"Linear has no weight 'conv1.weight', 'conv2.weight', 'fc.weight'"),
        (SmallNet(classes=4), r"'fc.weight' is \(3, 6\) in the masks and \(4, 6\) in SmallNet"),
        (Deeper(), r"they have no mask for 'extra.weight' of Deeper"),
    ]:
        before = snapshot(other)
        foreign = strict if isinstance(other, Deeper) else masks
        with pytest.raises(ap.InputError, match=says):
            foreign.apply_(other)
        with pytest.raises(ap.InputError, match=says):
            foreign.hold(other, torch.optim.SGD(other.parameters(), lr=1))
        with pytest.raises(ap.InputError, match=says):
            ap.score("lamp", other, foreign)
        assert same_state(other, before)


def test_a_weight_that_was_tied_after_the_masks_were_made_is_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    masks = ap.Masks.dense(model)
    model[1].weight = model[0].weight
    with pytest.raises(ap.InputError, match="one tensor with several names"):
        masks.apply_(model)
    with pytest.raises(ap.InputError, match="one tensor with several names"):
        ap.score("lamp", model, masks)


def test_layers_left_out_on_purpose_are_not_missed() -> None:
    model = Deeper()
    ap.Masks.dense(model, exclude="extra").apply_(model)
    with pytest.raises(ap.InputError, match=r"no mask for 'extra.weight'"):
        ap.Masks.dense(SmallNet(), exclude="fc").apply_(model)


def test_masks_are_bool_tensors() -> None:
    with pytest.raises(ap.InputError, match=r"mask of 'a' must be a bool tensor, got torch.float32"):
        ap.Masks({"a": torch.ones(3)})
    with pytest.raises(ap.InputError, match=r"mask of 'a' must be a bool tensor, got a list"):
        ap.Masks({"a": [True]})


def test_masks_of_nothing_are_refused() -> None:
    with pytest.raises(ap.InputError, match="masks need at least one weight"):
        ap.Masks({})


def test_equality_is_of_names_order_and_values() -> None:
    one, two = torch.tensor([True]), torch.tensor([False])
    assert ap.Masks({"a": one, "b": two}) == ap.Masks({"a": one.clone(), "b": two.clone()})
    assert ap.Masks({"a": one, "b": two}) != ap.Masks({"b": two, "a": one})
    assert ap.Masks({"a": one}) != ap.Masks({"a": two})
    assert ap.Masks({"a": one}) != {"a": one}


@given(layers())
def test_a_file_gives_the_same_masks_back_in_the_same_order(tmp_path_factory: object, drawn: tuple) -> None:
    masks = ap.Masks(dict(reversed(list(drawn[1].items()))))
    path = tmp_path_factory.mktemp("masks") / "m.safetensors"  # type: ignore[attr-defined]
    masks.save(path)
    assert ap.Masks.load(path) == masks == ap.Masks.from_bytes(masks.to_bytes())
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == masks.to_bytes()


def test_a_file_takes_one_bit_a_weight_and_remembers_what_was_left_out(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(1000, 100), nn.Linear(100, 10))
    path = tmp_path / "m.safetensors"
    random_masks(model).save(path)
    assert path.stat().st_size < 101_000 / 8 + 1000
    ap.Masks.dense(model, exclude="1").save(path)
    ap.Masks.load(path).apply_(model)
    with pytest.raises(ap.InputError, match=r"no mask for '2.weight'"):
        ap.Masks.load(path).apply_(model.append(nn.Linear(10, 2)))


def test_a_file_that_is_not_masks_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ap.InputError, match=r"no such file: .*nowhere"):
        ap.Masks.load(tmp_path / "nowhere.safetensors")
    (tmp_path / "noise").write_bytes(b"not a safetensors file at all")
    with pytest.raises(ap.InputError, match=r"noise is not a readable masks file"):
        ap.Masks.load(tmp_path / "noise")
    save_file({"a": torch.ones(3)}, tmp_path / "weights")
    with pytest.raises(ap.InputError, match=r"weights is not a masks file"):
        ap.Masks.load(tmp_path / "weights")
    ap.Masks({"a": torch.ones(100, dtype=torch.bool)}).save(tmp_path / "cut")
    (tmp_path / "cut").write_bytes((tmp_path / "cut").read_bytes()[:-3])
    with pytest.raises(ap.InputError, match=r"cut is not a readable masks file"):
        ap.Masks.load(tmp_path / "cut")
    for name, why in (("noise", "readable "), ("weights", ""), ("cut", "readable ")):
        with pytest.raises(ap.InputError, match=f"what was given is not a {why}masks file"):
            ap.Masks.from_bytes((tmp_path / name).read_bytes())


@pytest.mark.parametrize("shape", [[4], [100], [-1], "many"])
def test_a_file_whose_shapes_do_not_fit_its_bits_is_an_error(tmp_path: Path, shape: object) -> None:
    metadata = {"activeprune.masks/1": json.dumps({"shapes": {"a": shape}, "left_out": None})}
    save_file({"a": torch.zeros(3, dtype=torch.uint8)}, tmp_path / "odd", metadata)
    with pytest.raises(ap.InputError, match=r"odd is not a readable masks file"):
        ap.Masks.load(tmp_path / "odd")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"shapes": 3, "left_out": null}', "null", '{"shapes": {"a": [24]}, "left_out": 3}']
)
def test_a_file_with_a_broken_description_is_an_error(tmp_path: Path, text: str) -> None:
    save_file({"a": torch.zeros(3, dtype=torch.uint8)}, tmp_path / "odd", {"activeprune.masks/1": text})
    with pytest.raises(ap.InputError, match=r"odd is not a readable masks file"):
        ap.Masks.load(tmp_path / "odd")


def test_the_same_masks_are_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    program = (
        "import sys, torch, activeprune as ap\n"
        "model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(9)])\n"
        "ap.Masks.dense(model, exclude=['1', '5', '7']).save(sys.argv[1])\n"
    )
    for seed in ("1", "2", "3"):
        command = [sys.executable, "-c", program, str(tmp_path / seed)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
    assert len({(tmp_path / seed).read_bytes() for seed in ("1", "2", "3")}) == 1


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.safetensors"
    masks = ap.Masks({"a": torch.tensor([True, False])})
    masks.save(path)

    def full(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="disk full"):
        ap.Masks({"a": torch.tensor([True, True])}).save(path)
    assert ap.Masks.load(path) == masks
    assert list(tmp_path.iterdir()) == [path]


def test_masks_move_between_devices_as_values() -> None:
    masks = ap.Masks.dense(SmallNet())
    moved = masks.to("meta")
    assert moved["fc.weight"].device.type == "meta"
    assert masks["fc.weight"].device.type == "cpu"


@given(layers())
def test_applying_masks_twice_is_applying_them_once(drawn: tuple) -> None:
    tensors, masks = drawn
    model = holder(tensors)
    masks.apply_(model)
    once = snapshot(model)
    masks.apply_(model)
    assert same_state(model, once)
    assert ap.prune_lowest(masks, tensors, 0) == masks
