"""Dead neurons where a model or its batches are unusual: still counted right, or told why not."""

import pytest
import torch
from torch import Tensor, nn

import activeprune as ap
from activeprune.neurons import DeadNeuronCounter
from tests.helpers import Net
from tests.neurons.test_dead import TWO, counts, linear, measured


def test_an_empty_batch_adds_nothing() -> None:
    model = nn.Sequential(linear([[1, 1], [1, -1]]), nn.ReLU())
    counter = DeadNeuronCounter(model)
    for batch in (TWO[:0], TWO, TWO[:0]):
        counter.add(batch)
    assert counter.result() == ap.dead_neurons(model, None, [TWO])


def test_only_empty_batches_are_none() -> None:
    with pytest.raises(ap.InputError, match="dead neurons are counted on batches"):
        ap.dead_neurons(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), None, [TWO[:0]])


def test_counts_without_samples_add_up_over_batches() -> None:
    """Of the four tokens that are left of a batch, x - y is positive for the first and the last, or for the others."""
    model = Net(lambda net, x: torch.relu(net.a(x.flatten(0, 1)[:4])), a=linear([[1, 1], [1, -1]]))
    one, other = torch.stack([TWO, TWO.flip(0), TWO]), torch.stack([TWO.flip(0), TWO, TWO])
    together = ap.dead_neurons(model, None, [one, other, -one])
    alone = [ap.dead_neurons(model, None, [batch]) for batch in (one, other, -one)]
    assert counts(alone[0].unit) == counts(alone[1].unit) == (0, 2, 8)
    assert counts(alone[2].unit) == (0, 6, 8)
    assert counts(together.unit) == (0, 10, 24)


def test_what_has_no_samples_has_no_sparsity_of_a_sample() -> None:
    model = Net(
        lambda net, x: torch.relu(net.b(torch.relu(net.a(x)).flatten(0, 1)[:4])),
        a=linear([[1, 1], [1, -1]]),
        b=linear([[1, 0]]),
    )
    found = measured(model, torch.stack([TWO, TWO, TWO]), companions=True)
    assert set(found.unit.layers) == {"relu", "relu#2"}
    assert set(found.companions.activations) == {"relu"}
    assert found.companions.activations["relu"].sparsity == pytest.approx(1 / 4)  # x - y of one of two tokens


def test_outputs_that_are_not_finite_have_no_sparsity() -> None:
    model = nn.Sequential(linear([[1, 0]]), nn.ReLU())
    with pytest.raises(ap.InputError, match="the outputs of '1' are not all finite: their sparsity cannot be measured"):
        ap.dead_neurons(model, None, [torch.tensor([[torch.inf, 0.0]])], companions=True)


def test_a_graph_of_a_layer_with_other_channels_is_not_used() -> None:
    """Of a model that has changed since it was traced, neurons that no weight feeds are not told from others."""
    model = Net(lambda net, x: torch.relu((net.b if net.wide else net.a)(x)), a=nn.Linear(2, 2), b=nn.Linear(2, 3))
    model.wide = False
    graph = ap.trace(model, TWO)
    model.wide = True
    found = measured(model, TWO, {"b": [0, 1, 2]}, graph=graph)
    assert [(layer.layer, layer.why) for layer in found.unattributed] == [("relu", "it was traced with another shape")]
    assert found.as_dict()["unattributed"] == [{"layer": "relu", "why": "it was traced with another shape"}]
    assert found.unit.dead_static == 0


def test_a_model_with_a_call_of_its_own_gives_its_functions_their_plain_names() -> None:
    class Direct(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = linear([[1, 1], [1, -1]])

        def __call__(self, x: Tensor) -> Tensor:
            return torch.relu(nn.functional.linear(x, self.a.weight))

    found = ap.dead_neurons(Direct(), None, [TWO])
    assert {name: counts(layer) for name, layer in found.unit.layers.items()} == {"relu": (0, 1, 4)}
