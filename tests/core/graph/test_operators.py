"""Operators of the weight graph, one by one: followed as the tensors go, or a barrier with its reason."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import activeprune as ap
from activeprune.core.graph.operators import RULE_OF
from tests.core.graph.makers import IMAGE, VECTOR, linear_net, names, neighbours
from tests.helpers import Net, conv
from tests.replay import changed_by_graph, changed_by_replay, weighted_modules


def test_every_rule_is_for_an_operator_that_exists() -> None:
    assert [name for name in RULE_OF if not hasattr(torch.ops.aten, name)] == []


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


def test_channels_of_zeros_have_no_neighbour() -> None:
    net = Net(lambda net, x: net.b(nn.functional.pad(net.a(x), (0, 0, 0, 0, 1, 2))), a=conv(2, 3), b=conv(6, 1))
    graph = ap.trace(net, IMAGE)
    assert sorted(graph.layers["b.weight"].reads[:, 1].tolist()) == [1, 2, 3]


@pytest.mark.parametrize("how", [{"scale_factor": 2}, {"size": (6, 6)}, {"scale_factor": 2, "mode": "bilinear"}])
def test_scaled_images_keep_their_channels(how: dict) -> None:
    net = Net(lambda net, x: net.b(nn.functional.interpolate(net.a(x), **how)), a=conv(2, 3), b=conv(3, 1))
    graph = ap.trace(net, IMAGE)
    assert graph.barriers == ()
    assert graph.feeding("b.weight") == names("a")


def test_stacked_and_sliced_tensors_keep_their_neurons() -> None:
    def forward(net, x):
        both = torch.stack([net.a(x), net.b(x)], 1)
        return net.c(both[:, 1]) + net.d(both.flatten(1)[:, 2:6])

    graph = ap.trace(linear_net(forward, "a", "b", "c", "d"), VECTOR)
    feeds = {name: graph.layers[f"{name}.weight"].feeds[:, 0].tolist() for name in "ab"}
    by_index = {n: [p[0] for p in sorted(graph.layers[f"{n}.weight"].reads.tolist(), key=lambda p: p[1])] for n in "cd"}
    assert by_index == {"c": feeds["b"], "d": feeds["a"][2:] + feeds["b"][:2]}


def test_a_matrix_product_with_a_transposed_parameter_is_a_layer() -> None:
    net = linear_net(lambda net, x: net.b(net.a(x).relu() @ net.c.weight.T), "a", "b", "c")
    assert ap.trace(net, VECTOR).feeding("b.weight") == names("c")


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


def attention_net() -> Net:
    def forward(net, x):
        x = x.flatten(2).transpose(1, 2)
        x = net.embed(x)
        x = x + net.attention(x, x, x, need_weights=False)[0]
        return net.fc(net.norm(x).mean(1))

    attention = nn.MultiheadAttention(6, 2, batch_first=True)
    return Net(forward, embed=nn.Linear(2, 6), attention=attention, norm=nn.LayerNorm(6), fc=nn.Linear(6, 3))


def test_torchs_own_attention_is_followed_through_its_packed_projection() -> None:
    graph = ap.trace(attention_net(), IMAGE)
    assert graph.barriers == ()
    packed = "attention.in_proj_weight"
    assert graph.feeding(packed) == names("embed")
    assert graph.reading(packed) == names("attention.out_proj")
    assert graph.feeding("attention.out_proj.weight") == {packed}
    assert graph.feeding("fc.weight") == names("attention.out_proj", "identity")
    feeds = graph.layers[packed].feeds
    values = feeds[feeds[:, 1] >= 12, 0]  # of the rows for queries, keys and values the last six
    assert graph.layers["attention.out_proj.weight"].reads[:, 0].tolist() == values.tolist()
    assert graph.exposed[feeds[feeds[:, 1] < 12, 0]].all()
    assert not graph.exposed[values].any()


def test_attention_written_out_gives_the_same_neighbours_as_the_fused_operator() -> None:
    def forward(net, x):
        x = net.embed(x.flatten(2).transpose(1, 2))
        q, k, v = net.qkv(x).reshape(2, 9, 3, 2, 3).permute(2, 0, 3, 1, 4).unbind(0)
        if net.fused:
            y = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            y = (q * 3**-0.5 @ k.transpose(-2, -1)).softmax(-1) @ v
        return net.proj(y.transpose(1, 2).reshape(2, 9, 6))

    found = []
    for fused in (True, False):
        net = Net(forward, embed=nn.Linear(2, 6), qkv=nn.Linear(6, 18), proj=nn.Linear(6, 4))
        net.fused = fused
        graph = ap.trace(net, IMAGE)
        assert graph.barriers == ()
        found.append((neighbours(graph), graph.layers["proj.weight"].reads.tolist()))
    assert found[0] == found[1]


# -- barriers


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


def test_a_weight_that_is_computed_is_a_barrier() -> None:
    net = Net(lambda net, x: nn.functional.conv2d(x, net.a.weight * 2), a=conv(2, 4))
    graph = ap.trace(net, IMAGE)
    assert "its weight" in graph.barriers[0].why
    assert not graph.layers


STRANGE = {
    "a sum of everything": lambda net, x: net.b(x) - net.a(x).sum(),
    "a number to the power of neurons": lambda net, x: net.b(2 ** net.a(x)),
    "a vector as a weight": lambda net, x: net.b(x) + (net.a(x) @ net.a.bias)[:, None],
    "a weight both ways": lambda net, x: nn.functional.linear(net.a(net.b(x)), net.b.weight.t()),
    "neurons added to a product": lambda net, x: torch.addmm(net.b(x), net.a(x), net.c.weight),
    "computed factors": lambda net, x: net.b(net.a(x) * nn.functional.softplus(net.a.bias)),
    "a division by neurons": lambda net, x: net.b(1 / net.a(x)),
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_no_rule_covers_is_a_barrier_and_never_a_crash(name: str) -> None:
    net = linear_net(STRANGE[name], "a", "b", "c")
    graph = ap.trace(net, VECTOR)
    assert graph.barriers
    assert graph.exposed[graph.layers["a.weight"].feeds[:, 0]].all()
    ap.score("lookahead", net, ap.Masks.dense(net), graph=graph)
