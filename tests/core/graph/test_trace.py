"""What a model may do while it is traced: followed, or a barrier that is listed."""

import pytest
import torch
from torch import Tensor, nn

import activeprune as ap
from tests.core.graph.makers import IMAGE, NONE, VECTOR, depthwise_net, linear_net, names, neighbours
from tests.helpers import Net, SmallNet, conv, same_state, snapshot


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


def test_an_operator_in_place_changes_what_its_argument_is() -> None:
    def forward(net, x):
        h = net.a(x)
        h.add_(net.b(x))  # the result is not assigned
        return net.c(h)

    assert ap.trace(linear_net(forward, "a", "b", "c"), VECTOR).feeding("c.weight") >= names("b")


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


@pytest.mark.parametrize("context", [torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_parts_under_no_grad_or_autocast_are_followed(context) -> None:
    def forward(net, x):
        with context():
            h = net.a(x).relu()
        return net.b(h.float())

    graph = ap.trace(linear_net(forward, "a", "b"), VECTOR)
    assert graph.barriers == ()
    assert graph.feeding("b.weight") == names("a")


def test_an_image_without_a_batch_axis_keeps_its_channels() -> None:
    net = Net(lambda net, x: net.b(net.a(x).relu()), a=conv(2, 5), b=conv(5, 3))
    graph = ap.trace(net, IMAGE[0])
    assert graph.feeding("b.weight") == names("a")
    assert sorted(graph.layers["b.weight"].reads[:, 1].tolist()) == list(range(5))
    ap.score("lookahead", net, ap.Masks.dense(net), graph=graph)


def test_a_weight_under_two_names_is_known_by_its_first() -> None:
    net = linear_net(lambda net, x: net.c(net.b(net.a(x))), "a", "b", "c")
    net.c.weight = net.b.weight
    graph = ap.trace(net, VECTOR)
    assert set(graph.layers) == {"a.weight", "b.weight"}
    assert graph.feeding("b.weight") == names("a", "b")
    ap.score("lookahead", net, ap.Masks.dense(net, exclude=["b", "c"]), graph=graph)


def test_arguments_that_are_no_tensors_are_no_neurons() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(2, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor, times: int) -> Tensor:
            return self.b(times * self.a(x).relu())

    graph = ap.trace(Scaled(), {"x": torch.zeros(2, 2), "times": 3})
    assert (graph.barriers, graph.reading("a.weight")) == ((), frozenset({"b.weight"}))


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
