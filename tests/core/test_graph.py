"""The weight graph against networks worked out by hand, and against what a change of one neuron really reaches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import activeprune as ap
from activeprune.core.graph import fed_neurons
from activeprune.core.graph.operators import RULE_OF
from activeprune.core.graph.signals import collapsed, combinations, reshaped
from tests.helpers import Net, SmallNet, conv, same_state, snapshot
from tests.replay import changed_by_graph, changed_by_replay, randomised, weighted_modules

NONE: frozenset[str] = frozenset()


def skip_net() -> Net:
    def forward(net, x):
        x = net.a(x).relu()
        x = (net.b(x) + x).relu()
        return net.fc(x.mean((2, 3)))

    return Net(forward, a=conv(2, 4), b=conv(4, 4), fc=nn.Linear(4, 3))


def projection_net() -> Net:
    def forward(net, x):
        x = net.a(x).relu()
        x = (net.norm(net.b(x)) + net.shortcut(x)).relu()
        return net.fc(x.mean((2, 3)))

    shortcut = nn.Conv2d(4, 5, 1)
    return Net(forward, a=conv(2, 4), b=conv(4, 5), norm=nn.BatchNorm2d(5), shortcut=shortcut, fc=nn.Linear(5, 3))


def concat_net() -> Net:
    def forward(net, x):
        x = net.a(x)
        x = torch.cat([x, net.b(net.norm(x).relu())], 1)
        return net.fc(x.relu().flatten(1))

    return Net(forward, a=conv(2, 3), norm=nn.BatchNorm2d(3), b=conv(3, 2), fc=nn.Linear(5 * 9, 3))


def depthwise_net() -> Net:
    def forward(net, x):
        x = nn.functional.relu6(net.wide(x))
        x = nn.functional.relu6(net.deep(x))
        x = net.grouped(x).relu_()
        return net.fc(net.narrow(x).mean((2, 3)))

    return Net(
        forward, wide=conv(2, 6), deep=conv(6, 6, groups=6), grouped=conv(6, 4, groups=2), narrow=conv(4, 3),
        fc=nn.Linear(3, 3),
    )  # fmt: skip


NETS = {"skip": skip_net, "projection": projection_net, "concat": concat_net, "depthwise": depthwise_net}
IMAGE = torch.randn(2, 2, 3, 3, generator=torch.Generator().manual_seed(3))


def neighbours(graph: ap.WeightGraph) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    return {name.removesuffix(".weight"): (graph.feeding(name), graph.reading(name)) for name in graph.layers}


def names(*weights: str) -> frozenset[str]:
    return frozenset(weight if weight == "identity" else f"{weight}.weight" for weight in weights)


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


def test_an_unknown_operator_is_listed_and_never_guessed() -> None:
    net = Net(lambda net, x: net.b(net.a(x).cumsum(1)), a=conv(2, 4), b=conv(4, 3))
    graph = ap.trace(net, IMAGE)
    assert [(barrier.operator, barrier.why) for barrier in graph.barriers] == [
        ("aten.cumsum.default", "no rule for this operator")
    ]
    assert neighbours(graph) == {"a": (NONE, NONE), "b": (NONE, NONE)}
    assert graph.exposed[graph.layers["a.weight"].feeds[:, 0]].all()
    assert graph.outside[graph.layers["b.weight"].reads[:, 0]].all()


def test_a_barrier_names_the_module_that_it_is_in() -> None:
    gate = Net(lambda net, x: x * net.c(x).sigmoid(), c=conv(4, 4))
    graph = ap.trace(Net(lambda net, x: net.b(net.gate(net.a(x))), a=conv(2, 4), gate=gate, b=conv(4, 3)), IMAGE)
    assert [(barrier.where, barrier.why) for barrier in graph.barriers] == [
        ("gate", "neurons are multiplied with each other")
    ]


def test_a_weight_that_is_computed_is_a_barrier() -> None:
    net = Net(lambda net, x: nn.functional.conv2d(x, net.a.weight * 2), a=conv(2, 4))
    graph = ap.trace(net, IMAGE)
    assert "its weight" in graph.barriers[0].why
    assert not graph.layers


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


def test_channels_of_zeros_have_no_neighbour() -> None:
    net = Net(lambda net, x: net.b(nn.functional.pad(net.a(x), (0, 0, 0, 0, 1, 2))), a=conv(2, 3), b=conv(6, 1))
    graph = ap.trace(net, IMAGE)
    assert sorted(graph.layers["b.weight"].reads[:, 1].tolist()) == [1, 2, 3]


def test_in_place_and_out_of_place_operators_give_the_same_graph() -> None:
    def graph_of(inplace: bool) -> ap.WeightGraph:
        relu = nn.ReLU(inplace=inplace)

        def forward(net, x):
            x = net.relu(net.a(x))
            y = net.b(x)
            y = y.add_(x) if inplace else y + x
            return net.fc(net.relu(y).mean((2, 3)))

        return ap.trace(Net(forward, a=conv(2, 4), b=conv(4, 4), fc=nn.Linear(4, 3), relu=relu), IMAGE)

    assert neighbours(graph_of(True)) == neighbours(graph_of(False))


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


def test_tracing_leaves_the_model_as_it_was() -> None:
    model = SmallNet().train()
    before = snapshot(model)
    ap.trace(model, torch.randn(3, 2, 6, 6))
    assert model.training
    assert same_state(model, before)
    assert next(model.parameters()).grad is None


def test_a_model_that_cannot_be_traced_is_one_line() -> None:
    net = Net(lambda net, x: net.a(x) if x.sum() > 0 else x, a=conv(2, 2))
    with pytest.raises(ap.InputError, match=r"^torch.export cannot trace Net: .+") as caught:
        ap.trace(net, IMAGE)
    assert "\n" not in str(caught.value)


def test_an_unknown_weight_names_its_neighbour() -> None:
    with pytest.raises(ap.InputError, match=r"did you mean 'a\.weight'"):
        ap.trace(skip_net(), IMAGE).feeding("a.wight")


def test_every_rule_is_for_an_operator_that_exists() -> None:
    assert [name for name in RULE_OF if not hasattr(torch.ops.aten, name)] == []


@given(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4), st.data())
def test_reshaping_numbers_is_reshaping_the_tensor(shape: list[int], data: st.DataObject) -> None:
    """Against the numbers written out at every position."""
    short = [data.draw(st.sampled_from([1, size])) for size in shape]
    ids = np.arange(int(np.prod(short)), dtype=np.int64).reshape(short)
    full = np.broadcast_to(ids, shape)
    factors = [f for size in shape for f in ([2, 2] if size == 4 and data.draw(st.booleans()) else [size])]
    cut = data.draw(st.lists(st.booleans(), min_size=len(factors), max_size=len(factors)))
    after: list[int] = []
    for factor, merge in zip(factors, cut, strict=True):
        if merge and after:
            after[-1] *= factor
        else:
            after.append(factor)
    found = reshaped(ids, shape, after)
    assert found.ndim == len(after)
    assert np.array_equal(np.broadcast_to(found, after), full.reshape(after))
    assert np.array_equal(np.broadcast_to(collapsed(full), shape), full)


def test_combinations_are_those_that_meet() -> None:
    left, right = np.array([[5, 6, 5]]), np.array([[1], [2]])
    found, row = combinations(left, right)
    assert {tuple(pair) for pair in found.tolist()} == {(5, 1), (6, 1), (5, 2), (6, 2)}
    assert found[row[1, 2]].tolist() == [5, 2]


# What a stranger's model may do.

VECTOR = torch.randn(2, 4, generator=torch.Generator().manual_seed(8))


def linear_net(forward, *layers: str) -> Net:
    return Net(forward, **{name: nn.Linear(4, 4) for name in layers})


def test_writing_through_a_view_loses_track_of_all_that_shares_its_memory() -> None:
    def forward(net, x):
        h = net.a(x)
        h.view(2, 2, 2).add_(net.b(x).view(2, 2, 2))
        return net.c(h)

    graph = ap.trace(linear_net(forward, "a", "b", "c"), VECTOR)
    assert [barrier.operator for barrier in graph.barriers] == ["aten.add_.Tensor"]
    assert graph.feeding("c.weight") == NONE
    assert graph.outside[graph.layers["c.weight"].reads[:, 0]].all()


def test_a_tensor_that_is_filled_in_place_is_no_constant() -> None:
    def forward(net, x):
        out = torch.zeros(2, 4)
        out[:, :2] = net.a(x)[:, :2].relu()
        return net.c(out)

    graph = ap.trace(linear_net(forward, "a", "c"), VECTOR)
    assert graph.outside[graph.layers["c.weight"].reads[:, 0]].all()
    assert len(graph.layers["c.weight"].reads) == 4
    assert graph.exposed[graph.layers["a.weight"].feeds[:, 0]].any()


def test_an_operator_in_place_changes_what_its_argument_is() -> None:
    def forward(net, x):
        h = net.a(x)
        h.add_(net.b(x))  # the result is not assigned
        return net.c(h)

    assert ap.trace(linear_net(forward, "a", "b", "c"), VECTOR).feeding("c.weight") >= names("b")


@pytest.mark.parametrize("context", [torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_parts_under_no_grad_or_autocast_are_followed(context) -> None:
    def forward(net, x):
        with context():
            h = net.a(x).relu()
        return net.b(h.float())

    graph = ap.trace(linear_net(forward, "a", "b"), VECTOR)
    assert graph.barriers == ()
    assert graph.feeding("b.weight") == names("a")


def test_an_image_without_a_batch_axis() -> None:
    net = Net(lambda net, x: net.b(net.a(x).relu()), a=conv(2, 5), b=conv(5, 3))
    graph = ap.trace(net, IMAGE[0])
    assert graph.feeding("b.weight") == names("a")
    assert sorted(graph.layers["b.weight"].reads[:, 1].tolist()) == list(range(5))
    ap.score("lookahead", net, ap.Masks.dense(net), graph=graph)


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


def test_a_weight_under_two_names_is_known_by_its_first() -> None:
    net = linear_net(lambda net, x: net.c(net.b(net.a(x))), "a", "b", "c")
    net.c.weight = net.b.weight
    graph = ap.trace(net, VECTOR)
    assert set(graph.layers) == {"a.weight", "b.weight"}
    assert graph.feeding("b.weight") == names("a", "b")
    ap.score("lookahead", net, ap.Masks.dense(net, exclude=["b", "c"]), graph=graph)


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


@pytest.mark.parametrize("how", [{"scale_factor": 2}, {"size": (6, 6)}, {"scale_factor": 2, "mode": "bilinear"}])
def test_scaled_images_keep_their_channels(how: dict) -> None:
    net = Net(lambda net, x: net.b(nn.functional.interpolate(net.a(x), **how)), a=conv(2, 3), b=conv(3, 1))
    graph = ap.trace(net, IMAGE)
    assert graph.barriers == ()
    assert graph.feeding("b.weight") == names("a")


# Activations, and what feeds their neurons.


def unfed(net: Net, example: Tensor, **pruned: list[int]) -> dict[str, list[bool]]:
    """By activation: which neurons no live weight feeds, with these outputs of these layers pruned."""
    masks = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in net.named_parameters() if "w" in name}
    for name, outputs in pruned.items():
        masks[f"{name}.weight"][outputs] = False
    graph = ap.trace(net, example)
    found = fed_neurons(graph, masks)
    return {activation.name: found.unfed(activation.neurons).flatten().tolist() for activation in graph.activations}


def test_activations_are_noted_with_their_neurons() -> None:
    graph = ap.trace(depthwise_net(), IMAGE)
    assert [(a.name, a.kind, a.shape) for a in graph.activations] == [
        ("relu6", "relu6", (2, 6, 3, 3)), ("relu6#2", "relu6", (2, 6, 3, 3)), ("relu", "relu", (2, 4, 3, 3)),
    ]  # fmt: skip
    fed_by = {name: layer.feeds[:, 0].tolist() for name, layer in graph.layers.items()}
    assert [a.neurons.flatten().tolist() for a in graph.activations] == [
        fed_by["wide.weight"], fed_by["deep.weight"], fed_by["grouped.weight"],
    ]  # fmt: skip
    assert graph.activations[0].neurons.shape == (1, 6, 1, 1)


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
