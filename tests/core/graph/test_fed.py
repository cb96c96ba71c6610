"""Which neurons live weights feed."""

import pytest
import torch
from torch import Tensor, nn

import activeprune as ap
from activeprune.core.graph import fed_neurons
from tests.core.graph.makers import IMAGE, VECTOR, depthwise_net, linear_net
from tests.helpers import Net, conv


def unfed(net: Net, example: Tensor, **pruned: list[int]) -> dict[str, list[bool]]:
    """By activation: which neurons no live weight feeds, with these outputs of these layers pruned."""
    masks = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in net.named_parameters() if "w" in name}
    for name, outputs in pruned.items():
        masks[f"{name}.weight"][outputs] = False
    graph = ap.trace(net, example)
    found = fed_neurons(graph, masks)
    return {activation.name: found.unfed(activation.neurons).flatten().tolist() for activation in graph.activations}


def test_a_neuron_is_unfed_when_its_own_row_is_pruned() -> None:
    found = unfed(depthwise_net(), IMAGE, wide=[0, 1], deep=[5], grouped=[3])
    assert found == {
        "relu6": [True, True, False, False, False, False],
        "relu6#2": [False] * 5 + [True],  # weights that read nothing but zeros are alive
        "relu": [False, False, False, True],
    }


def test_a_transposed_convolutions_outputs_are_found_in_its_groups() -> None:
    net = Net(lambda net, x: net.up(net.a(x)).relu(), a=conv(2, 4), up=nn.ConvTranspose2d(4, 6, 3, groups=2))
    mask = torch.ones_like(net.up.weight, dtype=torch.bool)
    mask[2:, 1] = False  # of the second group's two inputs, the second of three outputs
    graph = ap.trace(net, IMAGE)
    found = fed_neurons(graph, {"up.weight": mask}).unfed(graph.activations[0].neurons)
    assert found.flatten().tolist() == [False, False, False, False, True, False]


def test_a_shared_weight_leaves_its_neurons_unfed_wherever_it_is_used() -> None:
    net = linear_net(lambda net, x: net.a(net.a(x).relu()).relu(), "a")
    assert unfed(net, VECTOR, a=[2]) == {"relu": [False, False, True, False], "relu#2": [False, False, True, False]}


def test_all_that_is_added_feeds_a_sum() -> None:
    net = linear_net(lambda net, x: (net.c(net.a(x).relu()) + net.b(x) + net.a(x)).relu(), "a", "b", "c")
    assert unfed(net, VECTOR, a=[0, 1], b=[1, 2], c=[1, 2])["relu#2"] == [False, True, False, False]
    assert unfed(linear_net(lambda net, x: (net.a(x) + x).relu(), "a"), VECTOR, a=[0])["relu"] == [False] * 4


def test_constants_feed_nothing() -> None:
    net = Net(lambda net, x: nn.functional.pad(net.a(x), (0, 0, 0, 0, 1, 0)).relu(), a=conv(2, 2))
    assert unfed(net, IMAGE, a=[1])["relu"] == [True, False, True]


def test_behind_a_barrier_only_live_weights_are_known() -> None:
    net = linear_net(lambda net, x: (net.a(x).cumsum(1) + net.b(x)).relu(), "a", "b")
    graph = ap.trace(net, VECTOR)
    mask = torch.ones(4, 4, dtype=torch.bool)
    neurons = graph.activations[0].neurons
    assert fed_neurons(graph, {"b.weight": mask}).hidden_by(neurons) is None
    mask[1] = False
    found = fed_neurons(graph, {"b.weight": mask})
    assert found.hidden_by(neurons) == graph.barriers[0]
    assert not found.unfed(neurons).any()


def test_masks_of_another_model_are_refused() -> None:
    graph = ap.trace(linear_net(lambda net, x: net.a(x), "a"), VECTOR)
    with pytest.raises(ap.InputError, match="graph is of another model"):
        fed_neurons(graph, {"a.weight": torch.ones(3, 4, dtype=torch.bool)})
