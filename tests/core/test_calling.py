"""A model is called with any kind of batch, and stays as it was."""

import pytest
import torch

import activeprune as ap
from activeprune.core.calling import call, eval_mode, samples_of
from tests.helpers import SmallNet, same_state, snapshot


def test_samples_of_every_kind_of_batch() -> None:
    x, y = torch.arange(6.0).view(3, 2), torch.arange(3)
    assert [sample.tolist() for sample in samples_of(x)] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert [(a.tolist(), b.tolist()) for a, b in samples_of((x, y))][1] == ([[2, 3]], [1])
    batch = {"x": x, "labels": y, "scale": torch.tensor(2.0), "flag": True, "table": torch.zeros(7, 2)}
    second = samples_of(batch)[1]
    assert (second["x"].tolist(), second["labels"].tolist()) == ([[2, 3]], [1])
    assert (second["scale"], second["flag"], len(second["table"])) == (2.0, True, 7)  # not by sample: passed on whole
    broadcast = {"pos": torch.zeros(1, 2), "x": x, "labels": y}
    assert [len(sample["pos"]) for sample in samples_of(broadcast)] == [1, 1, 1]
    for targets in (None, torch.arange(2)):
        with pytest.raises(ap.InputError, match="one target an input is needed"):
            samples_of((x, targets))
    with pytest.raises(ap.InputError, match="at least one tensor with a sample dimension"):
        samples_of({"scale": torch.tensor(2.0)})


def test_a_call_replaces_tensors_and_updates_no_buffer() -> None:
    model = SmallNet().train()
    before = snapshot(model)
    x = torch.randn(4, 2, 6, 6)
    output = call(model, {"fc.weight": torch.zeros(3, 6), "fc.bias": torch.tensor([1.0, 2.0, 3.0])}, x)
    assert output.tolist() == [[1.0, 2.0, 3.0]] * 4
    assert same_state(model, before)


def test_eval_mode_comes_and_goes_even_when_the_body_fails() -> None:
    model = SmallNet()
    model.bn2.eval()
    modes = [module.training for module in model.modules()]
    with eval_mode(model):
        assert not any(module.training for module in model.modules())
    with pytest.raises(ZeroDivisionError), eval_mode(model):
        _ = 1 / 0
    assert [module.training for module in model.modules()] == modes
    with eval_mode(model, batch_statistics=True):
        assert [m.training for m in (model.bn1, model.bn2, model.dropout, model)] == [True, True, False, False]
