"""The weight graph against networks worked out by hand, and against what a change of one neuron really reaches."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import activeprune as ap
from tests.core.graph.makers import IMAGE, NONE, concat_net, depthwise_net, names, neighbours, projection_net, skip_net
from tests.helpers import Net, conv
from tests.replay import changed_by_graph, changed_by_replay, randomised, weighted_modules

NETS = {"skip": skip_net, "projection": projection_net, "concat": concat_net, "depthwise": depthwise_net}


def test_a_skip_connection_is_a_neighbour_on_both_sides() -> None:
    assert neighbours(ap.trace(skip_net(), IMAGE)) == {
        "a": (NONE, names("b", "identity")),
        "b": (names("a"), names("fc")),
        "fc": (names("b", "identity"), NONE),
    }


def test_a_projection_feeds_the_sum_like_any_weight() -> None:
    assert neighbours(ap.trace(projection_net(), IMAGE)) == {
        "a": (NONE, names("b", "shortcut")),
        "b": (names("a"), names("fc")),
        "shortcut": (names("a"), names("fc")),
        "fc": (names("b", "shortcut"), NONE),
    }


def test_concatenated_channels_keep_their_own_neighbours() -> None:
    graph = ap.trace(concat_net(), IMAGE)
    assert neighbours(graph) == {
        "a": (NONE, names("b", "fc")),
        "b": (names("a"), names("fc")),
        "fc": (names("a", "b"), NONE),
    }
    reads = graph.layers["fc.weight"].reads
    feeds = {name: graph.layers[f"{name}.weight"].feeds[:, 0].tolist() for name in "ab"}
    by_index = reads[np.argsort(reads[:, 1], kind="stable"), 0].tolist()
    assert by_index == [neuron for neuron in feeds["a"] + feeds["b"] for _ in range(9)]  # nine pixels a channel


def test_depthwise_and_grouped_convolutions_read_their_own_channels_alone() -> None:
    graph = ap.trace(depthwise_net(), IMAGE)
    deep, grouped = graph.layers["deep.weight"], graph.layers["grouped.weight"]
    assert deep.blocks(torch.empty(6, 1, 3, 3)).shape == (6, 1, 1, 9)
    assert grouped.blocks(torch.empty(4, 3, 3, 3)).shape == (2, 2, 3, 9)
    assert sorted(deep.reads[:, 1].tolist()) == list(range(6)) == sorted(grouped.reads[:, 1].tolist())


@pytest.mark.parametrize("name", NETS)
def test_the_graph_says_what_a_change_of_one_neuron_reaches(name: str) -> None:
    model = randomised(NETS[name]())
    graph = ap.trace(model, IMAGE)
    for layer, module in weighted_modules(model).items():
        for channel in range(module.weight.shape[0]):
            assert changed_by_graph(graph, layer, channel) == changed_by_replay(model, IMAGE, layer, channel)


def test_a_weight_used_twice_has_the_neighbours_of_both_uses() -> None:
    net = Net(
        lambda net, x: net.c(net.a(net.b(net.a(x).relu()).relu()).relu()), a=conv(2, 3), b=conv(3, 2), c=conv(3, 1)
    )
    graph = ap.trace(net, IMAGE)
    assert neighbours(graph)["a"] == (names("b"), names("b", "c"))
    assert len(graph.layers["a.weight"].feeds) == 6


def test_a_sum_that_is_at_once_added_to_another_is_no_neuron_of_its_own() -> None:
    net = Net(
        lambda net, x: net.d(net.a(x) + net.b(x) + net.c(x)), **{name: conv(2, 3) for name in "abc"}, d=conv(3, 1)
    )
    graph = ap.trace(net, IMAGE)
    assert graph.feeding("d.weight") == names("a", "b", "c")
    assert all(graph.reading(f"{name}.weight") == names("d") for name in "abc")


def test_transposed_convolutions_and_transformers_layers_hold_their_inputs_first() -> None:
    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.addmm(self.bias, x, self.weight)

    up = nn.ConvTranspose2d(4, 10, 3, groups=2)
    net = Net(lambda net, x: net.c(net.fc(net.up(net.a(x)).mean((2, 3)))), a=conv(2, 4), up=up,
              fc=nn.Linear(10, 5), c=Conv1D())  # fmt: skip
    graph = ap.trace(net, IMAGE)
    assert neighbours(graph)["up"] == (names("a"), names("fc"))
    assert neighbours(graph)["c"] == (names("fc"), NONE)
    blocks = graph.layers["up.weight"].blocks(up.weight)
    assert blocks.shape == (2, 5, 2, 9)  # groups, outputs, inputs, kernel
    assert torch.equal(blocks[1, 3, 0].view(3, 3), up.weight[2, 3])  # the third input is the first of group 1
    assert torch.equal(graph.layers["up.weight"].unblocked(blocks), up.weight)


def test_an_unknown_weight_names_its_neighbour() -> None:
    with pytest.raises(ap.InputError, match=r"did you mean 'a\.weight'"):
        ap.trace(skip_net(), IMAGE).feeding("a.wight")
