"""A dead neuron is static where no live weight feeds it, and listed where one cannot say."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import activeprune as ap
from activeprune.neurons import DeadNeuronCounter, DeadNeurons
from tests.helpers import Net
from tests.neurons.makers import TWO, counts, linear, measured, pointwise, pruned


@pytest.mark.parametrize(("shift", "static"), [(1.0, 0), (0.0, 4), (-1.0, 4)])
def test_a_pruned_filter_is_static_only_if_its_constant_is_dead(shift: float, static: int) -> None:
    """Batch-norm with running mean 0 and variance 1 makes β of it."""
    model = nn.Sequential(pointwise([[1], [1]]), nn.BatchNorm2d(2), nn.ReLU())
    model[1].bias.data[0] = shift
    found = measured(model, torch.ones(1, 1, 2, 2), {"0": [0]})
    assert counts(found.unit) == (static, 0, 8)
    assert found.channel.dead_static == static // 4


def test_a_pruned_row_leaves_its_bias() -> None:
    model = nn.Sequential(linear([[1, 1], [1, 1]], bias=[0.5, -0.5]), nn.ReLU())
    assert counts(measured(model, TWO, {"0": [0, 1]}).unit) == (2, 0, 4)


def residual(shortcut: nn.Module) -> Net:
    def forward(net, x):
        x = net.first(net.a(x))
        return net.second(net.b(x) + net.shortcut(x))

    layers = {"a": linear([[1, 0], [0, 1]]), "b": linear([[-9, -9], [-9, -9]]), "shortcut": shortcut}
    return Net(forward, first=nn.ReLU(), second=nn.ReLU(), **layers)


@pytest.mark.parametrize(
    ("rows", "static", "dynamic"),
    [
        ({}, 0, 4),  # b outweighs the shortcut
        ({"b": [0]}, 0, 2),  # the shortcut alone, which is positive
        ({"a": [0]}, 0, 4),  # b still feeds the sum
        ({"a": [0], "b": [0]}, 2, 2),
        ({"a": [0, 1], "b": [0, 1]}, 4, 0),
    ],
)
def test_an_identity_shortcut_is_a_live_weight_unless_its_source_is_unfed(
    rows: dict, static: int, dynamic: int
) -> None:
    found = measured(residual(nn.Identity()), TWO, rows)
    assert counts(found.unit.layers["second"]) == (static, dynamic, 4)
    assert found.unattributed == ()


@pytest.mark.parametrize(
    ("rows", "static", "dynamic"),
    [
        ({"b": [0, 1]}, 0, 2),
        ({"shortcut": [0, 1]}, 0, 4),
        ({"b": [0], "shortcut": [0]}, 2, 2),
        ({"b": [0, 1], "shortcut": [0]}, 2, 2),
        ({"a": [0, 1], "b": [1], "shortcut": [0]}, 0, 4),  # its weights are alive, though nothing comes through them
    ],
)
def test_a_projection_feeds_the_sum_as_the_other_branch_does(rows: dict, static: int, dynamic: int) -> None:
    """The projection brings x + y into the first neuron and -x - y into the second."""
    found = measured(residual(linear([[1, 1], [-1, -1]])), TWO, rows)
    assert counts(found.unit.layers["second"]) == (static, dynamic, 4)


def test_channels_of_zeros_are_no_live_weight() -> None:
    """Of three channels of the sum, the shortcut brings the middle one."""

    def forward(net, x):
        return torch.relu(net.b(x) + F.pad(net.a(x), (0, 0, 0, 0, 1, 1)))

    model = Net(forward, a=pointwise([[-1]]), b=pointwise([[1], [1], [1]]))
    found = measured(model, torch.ones(1, 1, 2, 2), {"b": [0, 1]})
    assert counts(found.unit) == (4, 4, 12)
    assert counts(found.channel) == (1, 1, 3)


def test_a_weight_is_alive_unless_a_mask_says_otherwise() -> None:
    """Whether it is 0, or has no mask."""
    model = nn.Sequential(linear([[0, 0], [1, 1]]), nn.ReLU(), nn.Linear(2, 2))
    assert counts(measured(model, TWO).unit) == (0, 2, 4)
    assert counts(ap.dead_neurons(model, ap.Masks.dense(model, exclude="0"), [TWO]).unit) == (0, 2, 4)
    assert counts(ap.dead_neurons(model, None, [TWO]).unit) == (0, 2, 4)


def normalised(norm: nn.Module, pruned: list[int]) -> DeadNeurons:
    model = nn.Sequential(nn.Linear(4, 4), norm, nn.ReLU())
    nn.init.zeros_(model[0].bias)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[pruned] = False
    return ap.dead_neurons(model, ap.Masks({"0.weight": mask}), [torch.randn(8, 4)])


@pytest.mark.parametrize(
    ("norm", "pruned", "static"),
    [
        (nn.LayerNorm(4), [0], False),  # its output moves with the others' mean
        (nn.LayerNorm(4), [0, 1, 2, 3], True),
        (nn.GroupNorm(2, 4), [0], False),
        (nn.GroupNorm(2, 4), [0, 1], True),  # a whole group
        (nn.BatchNorm1d(4), [0], True),
    ],
)
def test_a_neuron_is_fed_by_all_that_it_is_normalised_with(norm: nn.Module, pruned: list[int], static: bool) -> None:
    torch.manual_seed(0)
    assert (normalised(norm, pruned).unit.dead_static > 0) == static


# -- what cannot be traced, or only in part


def test_a_model_with_control_flow_is_counted_and_listed() -> None:
    def forward(net, x):
        x = torch.relu(net.a(x))
        return F.relu(net.b(x)) if x.sum() > 4 else x

    model = Net(forward, a=linear([[1, 1], [1, -1]]), b=linear([[-1, 1], [1, 1], [1, 0]]))
    masks = pruned(model, {"b": [2]})
    found = ap.dead_neurons(model, masks, [TWO, TWO[1:], TWO * 2])
    assert {name: counts(layer) for name, layer in found.unit.layers.items()} == {
        "relu": (0, 3, 10),  # of [3, 1], [3, 0]; [3, 0]; [6, 2], [6, 0]
        "relu#2": (0, 8, 12),  # in the first and the last batch
    }
    assert [layer.layer for layer in found.unattributed] == ["relu", "relu#2"]
    assert found.unattributed[0].why.startswith("torch.export cannot trace Net: ")
    assert found.unit.layers["relu#2"].never_active == 2
    assert found.samples == 5


def test_a_barrier_is_named_where_it_hides_the_weights() -> None:
    def forward(net, x):
        return torch.relu(net.b(F.relu(net.a(x).cumsum(1))) + net.a(x).cumsum(1))

    model = Net(forward, a=linear([[1, 1], [1, -1]]), b=linear([[1, 1], [1, 1]]))
    found = measured(model, TWO, {"b": [0]})
    assert [(layer.layer, layer.why) for layer in found.unattributed] == [
        ("relu", "aten.cumsum.default in the model: no rule for this operator"),
        ("relu#2", "aten.cumsum.default in the model: no rule for this operator"),
    ]
    live = measured(model, TWO)  # b feeds all of the sum: whatever the barrier hides, nothing there is static
    assert [layer.layer for layer in live.unattributed] == ["relu"]


@pytest.mark.filterwarnings("ignore")  # torch.cond's own
def test_activations_in_branches_of_the_graph_are_listed() -> None:
    def forward(net, x):
        x = net.a(x).relu()
        x = torch.cond(x.sum() > 0, lambda y: net.b(y).relu(), lambda y: y.sin().relu(), (x,))
        return net.a(x)

    found = measured(Net(forward, a=nn.Linear(2, 2), b=nn.Linear(2, 2)), TWO)
    assert "relu" in found.unit.layers
    assert {layer.layer for layer in found.unattributed} >= {"relu", "relu#2", "relu#3"}  # seen or not, none is lost


def test_more_calls_than_were_traced_are_not_attributed() -> None:
    model = Net(lambda net, x: [x := torch.relu(net.a(x)) for _ in range(net.times)][-1], a=linear([[1, 0], [0, 1]]))
    model.times = 2
    graph = ap.trace(model, TWO)
    model.times = 3
    found = measured(model, TWO, graph=graph)
    assert [layer.why for layer in found.unattributed][:2] == [
        "called 3 times in a pass, 2 times when it was traced"
    ] * 2
    assert found.unattributed[2].why == "it was not called when the model was traced"
    assert found.unit.counted == 12


def test_passes_that_call_other_activations_are_not_attributed() -> None:
    class BySize(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > 3:
                x = torch.relu(self.a(x))
            return torch.relu(self.b(x))

    model = BySize()
    masks = ap.Masks({"a.weight": torch.zeros(3, 3, dtype=torch.bool)})
    found = ap.dead_neurons(model, masks, [torch.randn(5, 3), torch.randn(2, 3)])
    assert found.unit.dead_static == 0
    assert {layer.layer for layer in found.unattributed} == {"relu", "relu#2"}


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


def test_a_model_that_cannot_be_traced_says_so_again_with_the_same_graph() -> None:
    class Choosing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x) if bool(x.sum() > 0) else torch.relu(-x)

    first = DeadNeuronCounter(Choosing())
    first.add(torch.randn(4, 3))
    again = DeadNeuronCounter(Choosing(), graph=first.graph)
    again.add(torch.randn(4, 3))
    assert first.result().unattributed == again.result().unattributed != ()
