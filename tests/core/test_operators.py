"""Operators of the weight graph, one by one: followed as the tensors go, or a barrier with its reason."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import activeprune as ap
from activeprune.core.errors import whole
from tests.core.test_graph import IMAGE
from tests.helpers import Net, conv
from tests.replay import changed_by_graph, changed_by_replay, weighted_modules

FOLLOWED: dict[str, Callable[[Tensor], Tensor]] = {
    "a quotient by a number": lambda x: x / 3,
    "rows that change places": lambda x: x.flip(2),
    "columns that roll": lambda x: x.roll(1, 3),
    "a mean that keeps its axes": lambda x: x.mean((2, 3), keepdim=True),
    "copies along new pixels": lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 3, 3),
    "a softmax over pixels": lambda x: x.softmax(2),
    "a border of zeros": lambda x: nn.functional.pad(x, (1, 0, 0, 1)),
    "channels of zeros": lambda x: nn.functional.pad(x, (0, 0, 0, 0, 0, 1))[:, :4],
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_is_followed_is_what_a_change_of_one_neuron_reaches(name: str) -> None:
    net = Net(lambda net, x: net.b(FOLLOWED[name](net.a(x).relu())), a=conv(2, 4), b=conv(4, 3)).eval()
    graph = ap.trace(net, IMAGE)
    assert graph.barriers == ()
    for layer, module in weighted_modules(net).items():
        for channel in range(module.weight.shape[0]):
            assert changed_by_graph(graph, layer, channel) == changed_by_replay(net, IMAGE, layer, channel)


HIDDEN: dict[str, tuple[Callable[[Net, Tensor], Tensor], str]] = {
    "div": (lambda net, x: net.b(net.a(x) / (1 + x[:, :1].abs())), "it divides by a tensor"),
    "softmax": (lambda net, x: net.b(net.a(x).softmax(1)), "every neuron depends on all of them"),
    "flip": (lambda net, x: net.b(net.a(x).flip(1)), "different neurons change places"),
    "pad": (
        lambda net, x: net.b(
            nn.functional.pad(net.a(x).transpose(1, 3), (1, 1, 0, 0), mode="circular").transpose(1, 3)[:, :4]
        ),
        "neurons are repeated or cut off at the border",
    ),
    "masked_fill": (lambda net, x: net.b(net.a(x).masked_fill(net.a(x) > 0, 1.0)), "neurons meet in it"),
    "avg_pool2d": (
        lambda net, x: net.b(nn.functional.avg_pool2d(net.a(x).transpose(1, 2), 1).transpose(1, 2)),
        "different neurons at different pixels are averaged",
    ),
    "matmul": (
        lambda net, x: net.b((net.left @ net.a(x).flatten(2)).unflatten(2, (3, 3))),
        "a parameter is multiplied from the left",
    ),
    "scaled_dot_product_attention": (
        lambda net, x: net.b(
            nn.functional.scaled_dot_product_attention(*[net.a(x).flatten(2)] * 3).unflatten(2, (3, 3))
        ),
        "different neurons at different tokens are averaged",
    ),
}


@pytest.mark.parametrize("operator", HIDDEN)
def test_what_mixes_neurons_is_a_barrier_that_says_why(operator: str) -> None:
    forward, why = HIDDEN[operator]
    net = Net(forward, a=conv(2, 4), b=conv(4, 3))
    net.left = nn.Parameter(torch.randn(4, 4))
    graph = ap.trace(net, IMAGE)
    assert why in {barrier.why for barrier in graph.barriers}
    assert graph.exposed[graph.layers["a.weight"].feeds[:, 0]].all()


def test_a_mean_over_tokens_of_an_image_without_a_batch_axis_is_a_barrier() -> None:
    net = Net(lambda net, x: net.b(nn.functional.avg_pool2d(net.a(x), 1)), a=conv(2, 4), b=conv(4, 3))
    assert "it has no batch axis" in {barrier.why for barrier in ap.trace(net, IMAGE[0]).barriers}


def test_words_come_from_outside_as_an_input_does() -> None:
    layers = {"a": nn.Linear(4, 3), "b": nn.Linear(3, 2)}
    read = Net(lambda net, x: net.b(net.a(net.words(x)).relu()), words=nn.Embedding(5, 4), **layers)
    given = Net(lambda net, x: net.b(net.a(x).relu()), **layers)
    graphs = [ap.trace(read, torch.tensor([[0, 4], [1, 2]])), ap.trace(given, torch.zeros(2, 2, 4))]
    assert [graph.barriers for graph in graphs] == [(), ()]
    for weight in ("a.weight", "b.weight"):
        assert graphs[0].feeding(weight) == graphs[1].feeding(weight)
        assert graphs[0].reading(weight) == graphs[1].reading(weight)


def test_a_batch_norm_without_weights_scales_by_its_variance_alone() -> None:
    """As one with γ = 1 does."""
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2)).eval()
    net[1].running_var.copy_(torch.tensor([0.25, 1.0, 4.0]))
    plain = nn.Sequential(net[0], nn.BatchNorm1d(3), net[2]).eval()
    plain[1].running_var.copy_(net[1].running_var)
    found, expected = (
        ap.score("lookahead", model, ap.Masks.dense(model), graph=ap.trace(model, torch.zeros(2, 2)))
        for model in (net, plain)
    )
    for name, score in expected.items():
        torch.testing.assert_close(found[name], score)


def test_arguments_that_are_no_tensors_are_no_neurons() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(2, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor, times: int) -> Tensor:
            return self.b(times * self.a(x).relu())

    graph = ap.trace(Scaled(), {"x": torch.zeros(2, 2), "times": 3})
    assert (graph.barriers, graph.reading("a.weight")) == ((), frozenset({"b.weight"}))


def test_truth_is_no_number() -> None:
    with pytest.raises(ap.InputError, match="batch = True: a whole number is needed"):
        whole("batch", True, 0)
