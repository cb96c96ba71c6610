"""Dead neurons of networks small enough to count by hand."""

import json
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune as torchs_prune

import activeprune as ap
from activeprune.neurons import DeadNeuronCounter, DeadNeurons, Rates
from tests.helpers import Net, SmallNet, random_masks, same_state, snapshot

NOTHING: dict[str, list[int]] = {}


def linear(rows: list[list[float]], bias: list[float] | None = None) -> nn.Linear:
    layer = nn.Linear(len(rows[0]), len(rows), bias=bias is not None)
    layer.weight.data = torch.tensor(rows, dtype=torch.float32)
    if bias is not None:
        layer.bias.data = torch.tensor(bias)
    return layer


def pointwise(rows: list[list[float]]) -> nn.Conv2d:
    """A 1 × 1 convolution."""
    layer = nn.Conv2d(len(rows[0]), len(rows), 1, bias=False)
    layer.weight.data = torch.tensor(rows, dtype=torch.float32)[:, :, None, None]
    return layer


def pruned(model: nn.Module, rows: dict[str, list[int]]) -> ap.Masks:
    """Masks without these outputs of these layers."""
    masks = {name: mask.clone() for name, mask in ap.Masks.dense(model).items()}
    for layer, outputs in rows.items():
        masks[f"{layer}.weight"][outputs] = False
    return ap.Masks(masks)


def measured(model: nn.Module, x: Tensor, rows: dict[str, list[int]] = NOTHING, **options) -> DeadNeurons:
    return ap.dead_neurons(model, pruned(model, rows), [x], **options)


def counts(rates: Rates) -> tuple[int, int, int]:
    """Static, dynamic, and all that was counted."""
    return rates.dead_static, rates.dead - rates.dead_static, rates.counted


# Which neurons are dead.

TWO = torch.tensor([[2.0, 1.0], [1.0, 2.0]])


def test_a_linear_layer() -> None:
    """x + y is positive for both samples, x - y for the first; -x - y for none."""
    model = nn.Sequential(linear([[1, 1], [1, -1], [-1, -1], [1, 0]]), nn.ReLU(), nn.Linear(4, 2))
    found = measured(model, TWO, {"0": [3]})
    assert counts(found.unit) == (2, 3, 8)
    assert (found.unit.static, found.unit.dynamic, found.unit.total) == (2 / 8, 3 / 8, 5 / 8)
    assert found.unit.never_active == 1
    assert found.unit.histogram == (1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2)
    assert found.unit.peak == 1.0
    assert found.unit.layers == {"1": found.channel.layers["1"]}  # without maps a channel is a unit
    assert (found.samples, found.unattributed) == (2, ())


def test_maps_of_a_convolution() -> None:
    """Channel 0 is the image, dead where it is negative; channel 1 its negative; channel 2 pruned."""
    image = torch.tensor([[[[1.0, -1.0], [-1.0, -1.0]]], [[[-1.0, -1.0], [-1.0, -1.0]]]])
    model = nn.Sequential(pointwise([[1], [-1], [5]]), nn.ReLU())
    found = measured(model, image, {"0": [2]})
    assert counts(found.unit) == (8, 3 + 1 + 4, 24)
    assert counts(found.channel) == (2, 1, 6)
    assert (found.unit.neurons, found.channel.neurons) == (12, 3)
    assert found.unit.never_active == 3
    assert found.channel.histogram == (1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)


def test_part_of_a_map_may_be_enough() -> None:
    image = torch.tensor([[[[1.0, -1.0], [-1.0, -1.0]]]])
    model = nn.Sequential(pointwise([[1], [-1]]), nn.ReLU())
    assert [measured(model, image, share=share).channel.dead for share in (1.0, 0.76, 0.75, 0.25)] == [0, 0, 1, 2]


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


def test_pruned_weights_count_as_0_whatever_the_model_holds() -> None:
    model = nn.Sequential(linear([[1, 1], [1, -1]]), nn.ReLU())
    before = snapshot(model)
    assert counts(measured(model, TWO, {"0": [0]}).unit) == (2, 1, 4)
    assert same_state(model, before)


# Activations wherever they are.

FORMS = {
    "torch.relu": lambda x: torch.relu(x),
    "F.relu": lambda x: F.relu(x),
    "F.relu in place": lambda x: F.relu(x, inplace=True),
    "method": lambda x: x.relu(),
    "method in place": lambda x: x.relu_(),
    "not assigned": lambda x: (x.relu_(), x)[1],
    "on the fly": lambda x: nn.ReLU()(x),
    "relu6": lambda x: F.relu6(x),
    "hardtanh": lambda x: F.hardtanh(x, 0, 1),
    "hardtanh by name": lambda x: F.hardtanh(x, min_val=0.0, max_val=9.0, inplace=True),
    "clamp": lambda x: x.clamp(min=0),
    "clamp by place": lambda x: torch.clamp(x, 0, 9),
    "clamp_min": lambda x: x.clamp_min_(0),
    "clip": lambda x: x.clip(0.0),
    "threshold": lambda x: F.threshold(x, 0.0, 0.0),
    "operator": lambda x: torch.ops.aten.relu(x),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_relu_is_seen_and_attributed(form: str) -> None:
    model = Net(lambda net, x: net.b(FORMS[form](net.a(x))), a=linear([[1, -1], [1, 1]]), b=nn.Linear(2, 1))
    found = measured(model, TWO, {"a": [1]})
    assert counts(found.unit) == (2, 1, 4)
    assert (len(found.unit.layers), found.unattributed) == (1, ())


@pytest.mark.parametrize("module", [nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), nn.Hardtanh(0.0, 2.0)])
def test_modules_give_their_own_name(module: nn.Module) -> None:
    model = Net(lambda net, x: net.act(net.a(x)), a=linear([[1, -1], [1, 1]]), act=module)
    found = measured(model, TWO)
    assert {name: counts(layer) for name, layer in found.unit.layers.items()} == {"act": (0, 1, 4)}


@pytest.mark.parametrize(("kind", "exact"), [(F.gelu, 1), (F.silu, 0), (F.mish, 0), (F.hardswish, 1)])
def test_smooth_activations_are_dead_below_a_threshold(kind, exact: int) -> None:
    """Of -20 and 0.001 they make next to nothing, of -20 some make 0; what is no number is never dead."""
    inputs = torch.tensor([[-20.0, 0.001, 3.0, -0.5, float("nan")]])
    model = Net(lambda net, x: kind(x), a=nn.Linear(1, 1))
    dead = [measured(model, inputs, **options).unit.dead for options in ({}, {"threshold": 1e-9}, {"threshold": 10.0})]
    assert dead == [2, exact, 4]


def test_saturation_is_no_death_and_neither_is_what_is_no_number() -> None:
    values = torch.tensor([[7.0, 6.0, -1.0, float("nan"), float("inf"), -0.0]])
    model = Net(lambda net, x: F.relu6(x), a=nn.Linear(1, 1))
    assert measured(model, values).unit.dead == 2


@pytest.mark.parametrize("kind", [torch.tanh, torch.sigmoid, F.leaky_relu, F.elu, F.hardtanh, lambda x: x.clamp(-1, 1)])
def test_where_nothing_can_be_dead_nothing_is_counted(kind) -> None:
    model = Net(lambda net, x: torch.relu(net.b(kind(net.a(x)))), a=nn.Linear(2, 2), b=nn.Linear(2, 2))
    assert list(measured(model, TWO).unit.layers) == ["relu"]
    with pytest.raises(ap.InputError, match=r"^Net calls no activation function whose output can be dead$"):
        measured(Net(lambda net, x: kind(net.a(x)), a=nn.Linear(2, 2)), TWO)


def test_an_output_is_counted_before_it_is_changed_in_place() -> None:
    model = Net(
        lambda net, x: net.b(net.act(net.a(x)).add_(1)), a=linear([[1, -1]]), b=nn.Linear(1, 1), act=nn.ReLU(True)
    )
    assert counts(measured(model, TWO).unit) == (0, 1, 2)


def test_a_shared_module_is_a_layer_at_each_of_its_calls() -> None:
    def forward(net, x):
        return net.act(net.b(net.act(net.a(x))))

    model = Net(forward, a=linear([[1, 1], [1, -1]]), b=linear([[1, 0], [-1, 0], [-1, -1]]), act=nn.ReLU())
    model.again = model.act  # the first name counts
    found = measured(model, TWO, {"a": [0], "b": [2]})
    assert {name: counts(layer) for name, layer in found.unit.layers.items()} == {"act": (2, 1, 4), "act#2": (2, 4, 6)}
    assert found.unattributed == ()


def test_functions_are_named_after_the_module_that_calls_them() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def helper(self, x: Tensor) -> Tensor:
            return F.gelu(x)

        def forward(self, x: Tensor) -> Tensor:
            return self.helper(torch.relu(self.layer(x).relu()))

    def forward(net, x):
        with torch.no_grad():
            x = net.blocks(torch.relu(x))
        return F.relu(net.blocks[0](x))

    model = Net(forward, blocks=nn.Sequential(Block(), Block()))
    names = [
        "relu", "blocks.0:relu", "blocks.0:relu#2", "blocks.0:gelu", "blocks.1:relu", "blocks.1:relu#2",
        "blocks.1:gelu", "blocks.0:relu#3", "blocks.0:relu#4", "blocks.0:gelu#2", "relu#2",
    ]  # fmt: skip
    assert [activation.name for activation in ap.trace(model, TWO).activations] == names
    found = measured(model, TWO)
    assert list(found.unit.layers) == names
    assert [(layer.layer, layer.why) for layer in found.unattributed] == [("relu", "no weight feeds it")]


def test_torchs_own_transformer_is_seen_inside() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=6, batch_first=True, activation="gelu")
    model = nn.Sequential(nn.Linear(4, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    found = measured(model, torch.randn(3, 5, 4), {"1.layers.0.linear1": [1]})
    assert list(found.unit.layers) == ["1.layers.0:gelu", "1.layers.1:gelu"]
    assert (found.unit.neurons, found.channel.neurons, found.unattributed) == (60, 12, ())


# What cannot be traced, or only in part.


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
def test_branches_of_the_graph_itself() -> None:
    def forward(net, x):
        x = net.a(x).relu()
        x = torch.cond(x.sum() > 0, lambda y: net.b(y).relu(), lambda y: y.sin().relu(), (x,))
        return net.a(x)

    found = measured(Net(forward, a=nn.Linear(2, 2), b=nn.Linear(2, 2)), TWO)
    assert "relu" in found.unit.layers
    assert {layer.layer for layer in found.unattributed} >= {"relu", "relu#2", "relu#3"}  # seen or not, none is lost


def test_what_no_function_call_shows_is_listed() -> None:
    inner = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    model = Net(
        lambda net, x: net.inner(net.rnn(x[None].relu())[0]), rnn=nn.RNN(2, 2, nonlinearity="relu"), inner=inner
    )
    found = ap.dead_neurons(model, None, [TWO])
    assert [(layer.layer, layer.why) for layer in found.unattributed if layer.why.startswith("not counted")] == [
        ("rnn", "not counted: its activations are inside one operator"),
        ("inner", "not counted: torch.jit hides its activations"),
        ("inner.0", "not counted: torch.jit hides its activations"),
        ("inner.1", "not counted: torch.jit hides its activations"),
    ]
    with pytest.raises(ap.InputError, match=r"compiled by torch\.jit"):
        ap.dead_neurons(inner, None, [TWO])


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


def test_maps_that_change_their_size_are_counted_without_identity() -> None:
    model = nn.Sequential(pointwise([[1], [-1], [2]]), nn.ReLU())
    masks = pruned(model, {"0": [2]})
    batches = [torch.ones(2, 1, 2, 2), torch.ones(1, 1, 3, 1), -torch.ones(3, 1, 2, 2)]
    found = ap.dead_neurons(model, masks, batches)
    assert counts(found.unit) == (8 + 3 + 12, 8 + 3 + 12, 24 + 9 + 36)
    assert counts(found.channel) == (6, 6, 18)
    assert (found.unit.neurons, found.channel.neurons) == (12, 3)
    assert (sum(found.unit.histogram), found.unit.never_active, found.unit.peak) == (0, 0, None)
    assert found.channel.histogram == (0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1)


def test_another_number_of_channels_is_another_layer() -> None:
    def forward(net, x):
        return torch.relu(net.a(x) if x[0, 0] > 0 else net.b(x))

    model = Net(forward, a=linear([[-1, 0]]), b=linear([[1, 0], [0, 1], [0, 0]]))
    found = ap.dead_neurons(model, None, [TWO, -TWO, TWO])
    assert {name: counts(layer) for name, layer in found.unit.layers.items()} == {
        "relu": (0, 4, 4),
        "relu@3": (0, 6, 6),
    }


def test_samples_that_are_folded_into_the_first_axis_are_found_again() -> None:
    model = Net(lambda net, x: torch.relu(net.a(x.flatten(0, 1))), a=linear([[1, 1], [1, -1], [0, 1]]))
    tokens = torch.stack([TWO, TWO.flip(0), TWO])
    found = measured(model, tokens, {"a": [2]})
    assert (found.unit.neurons, found.channel.neurons, found.samples) == (6, 3, 3)
    assert counts(found.unit) == (6, 3, 18)
    assert counts(found.channel) == (3, 0, 9)


def test_what_has_no_axis_of_samples_is_counted_by_unit() -> None:
    """Of four tokens the first two have a positive difference."""
    model = Net(lambda net, x: torch.relu(net.a(x.flatten(0, 1)[:4])), a=linear([[1, 1], [1, -1]]))
    found = measured(model, torch.stack([TWO.flip(0), TWO, TWO]))
    assert counts(found.unit) == (0, 2, 8)
    assert found.channel.neurons == 0
    assert [layer.why for layer in found.unattributed] == ["its first axis is not that of the samples"]


def test_channels_are_found_at_the_end_after_linear_layers() -> None:
    """Also without a graph, and in front after convolutions."""

    def forward(net, x):
        x = torch.relu(net.conv(x))
        if x.sum() > -1:
            x = F.gelu(net.fc(x.permute(0, 2, 3, 1)))
        return x

    found = measured(Net(forward, conv=nn.Conv2d(2, 3, 1), fc=nn.Linear(3, 7)), torch.randn(2, 2, 4, 5))
    assert {name: layer.neurons for name, layer in found.channel.layers.items()} == {"relu": 3, "gelu": 7}
    assert len(found.unattributed) == 2


# Batches, options, and what is left alone.


def test_in_pieces_or_at_once_it_is_the_same() -> None:
    model, images = SmallNet(), torch.randn(10, 2, 6, 6)
    masks = random_masks(model, 0.3)
    whole = ap.dead_neurons(model, masks, [images])
    counter = DeadNeuronCounter(model, masks, ap.trace(model, images))
    for piece in torch.split(images, 3):
        counter.add((piece, torch.zeros(len(piece))))
        assert counter.result().samples == counter.samples
    assert (
        counter.result() == whole == ap.dead_neurons(model, masks, ({"x": piece} for piece in torch.split(images, 4)))
    )


def test_a_counter_holds_the_network_that_it_was_made_with() -> None:
    model = nn.Sequential(linear([[1, -1]]), nn.BatchNorm1d(1), nn.ReLU())
    counter = DeadNeuronCounter(model, ap.Masks.dense(model))
    counter.add(TWO)
    model[0].weight.data.neg_()
    model[1].bias.data.fill_(9.0)
    model[1].running_mean.fill_(9.0)
    counter.add(TWO)
    assert counts(counter.result().unit) == (0, 2, 4)


def test_layers_are_chosen_by_pattern() -> None:
    model, image = ap.build("resnet8"), torch.randn(2, 3, 8, 8)
    every = measured(model, image)
    inner = measured(model, image, exclude="*#2")
    assert list(inner.unit.layers) == ["relu", "blocks.0:relu", "blocks.1:relu", "blocks.2:relu"]
    assert all(inner.unit.layers[name] == every.unit.layers[name] for name in inner.unit.layers)
    assert list(measured(model, image, include=["blocks.1*", "relu"]).unit.layers) == [
        "relu",
        "blocks.1:relu",
        "blocks.1:relu#2",
    ]
    with pytest.raises(ap.InputError, match=r"unknown activation in include 'block\.1:relu': did you mean"):
        measured(model, image, include=["relu", "block.1:relu"])
    with pytest.raises(ap.InputError, match="include and exclude leave no activation"):
        measured(model, image, include="relu", exclude="relu")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: ap.dead_neurons(m, None, []), "dead neurons are counted on batches"),
        (lambda m: ap.dead_neurons(m, None, [3]), "a batch is a tensor, a pair"),
        (lambda m: ap.dead_neurons(m, None, TWO), "batches are several"),
        (lambda m: ap.dead_neurons(m, None, [TWO], threshold=0.0), "threshold = 0.0: a number above 0"),
        (lambda m: ap.dead_neurons(m, None, [TWO], share=0.0), "share = 0.0"),
        (lambda m: ap.dead_neurons(m, None, [TWO], share=1.5), "share = 1.5"),
        (lambda m: ap.dead_neurons(m, ap.Masks.dense(nn.Linear(2, 2)), [TWO]), "masks of another model"),
        (lambda m: ap.dead_neurons(m, None, [TWO], ap.trace(nn.Linear(2, 2), TWO)), "graph is of another model"),
    ],
)
def test_what_cannot_be_right_is_told(call, message: str) -> None:
    with pytest.raises(ap.InputError, match=message):
        call(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


def everything_about(model: nn.Module) -> list:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_state_dict_hooks")
    return [
        (name, module.training, [list(getattr(module, kind)) for kind in kinds], list(vars(module)))
        for name, module in model.named_modules()
    ] + [(name, id(p), p.requires_grad, p.grad, p._version) for name, p in model.named_parameters()]


@pytest.mark.parametrize("options", [{}, {"batch_statistics": True}])
def test_nothing_of_the_model_or_of_torch_is_changed(options: dict) -> None:
    """Nor of its buffers, though its batch-norm layers and a counter of its own write into them."""

    def forward(net, x):
        net.seen += 1
        return F.dropout(net.inner(x), 0.5, training=True)

    model = Net(forward, inner=SmallNet().train(), act=nn.ReLU())
    model.register_buffer("seen", torch.zeros(()))
    model.inner.conv1.eval()
    model.inner.conv1.weight.requires_grad_(False)
    model.inner.register_forward_hook(lambda *_: None)
    state, about = snapshot(model), everything_about(model)
    random, hooks = torch.get_rng_state(), len(nn.modules.module._global_forward_hooks)
    one = ap.dead_neurons(
        model, random_masks(model), [torch.randn(4, 2, 6, 6, generator=torch.Generator())] * 2, **options
    )
    assert same_state(model, state)
    assert everything_about(model) == about
    assert torch.equal(torch.get_rng_state(), random)
    assert len(nn.modules.module._global_forward_hooks) == hooks
    torch.manual_seed(1)
    again = ap.dead_neurons(
        model, random_masks(model), [torch.randn(4, 2, 6, 6, generator=torch.Generator())] * 2, **options
    )
    assert one == again


def test_batch_statistics_stand_in_for_running_ones() -> None:
    """A network that has seen no data: outputs around 10 are all alive until they are centred."""
    model = nn.Sequential(linear([[1.0]], bias=[10.0]), nn.BatchNorm1d(1), nn.ReLU())
    samples = torch.tensor([[-1.0], [1.0], [-2.0], [2.0]])
    assert counts(measured(model, samples).unit) == (0, 0, 4)
    assert counts(measured(model, samples, batch_statistics=True).unit) == (0, 2, 4)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_it_works_in_any_mode_of_autograd(context) -> None:
    model = nn.Sequential(linear([[1, 1], [1, -1]]), nn.ReLU(inplace=True), nn.Linear(2, 2), nn.ReLU())
    expected = measured(model, TWO, {"0": [0]})
    with context():
        inside = TWO.clone()
        counter = DeadNeuronCounter(model, pruned(model, {"0": [0]}))
        counter.add(inside)
    assert counter.result() == expected
    with torch.inference_mode():
        counter.add(inside)
        assert counter.result().unit.total == expected.unit.total


def test_a_forward_pass_in_inference_mode_is_counted_too() -> None:
    model = Net(torch.inference_mode()(lambda net, x: torch.relu(net.a(x))), a=linear([[1, 1], [1, -1]]))
    counter = DeadNeuronCounter(model)
    for _ in range(2):
        counter.add(TWO)
    assert counts(counter.result().unit) == (0, 2, 8)


def test_a_second_thread_is_not_counted() -> None:
    other = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    done = threading.Event()

    def elsewhere() -> None:
        other(TWO)
        model.act(TWO)
        done.set()

    def forward(net, x):
        x = net.act(net.a(x))
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return net.act(net.b(x))

    model = Net(forward, a=nn.Linear(2, 3), b=nn.Linear(3, 4), act=nn.ReLU())
    found = measured(model, TWO)
    assert done.is_set()
    assert {name: layer.counted for name, layer in found.unit.layers.items()} == {"act": 6, "act#2": 8}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_precisions(dtype: torch.dtype) -> None:
    model = nn.Sequential(linear([[1, 1], [1, -1]]), nn.ReLU(), nn.Linear(2, 3), nn.GELU()).to(dtype)
    found = measured(model, TWO.to(dtype), {"0": [0]})
    assert counts(found.unit.layers["1"]) == (2, 1, 4)
    assert found.unit.layers["3"].neurons == 3


def test_wrapped_models_are_measured_inside() -> None:
    model = nn.Sequential(linear([[1, 1], [1, -1]]), nn.ReLU())
    assert measured(nn.DataParallel(model), TWO, NOTHING) == measured(model, TWO)


def test_a_result_for_machines_is_the_same_bytes_each_time() -> None:
    model = SmallNet()
    masks, images = random_masks(model, 0.1), torch.randn(5, 2, 6, 6)
    one, two = (json.dumps(ap.dead_neurons(model, masks, [images], companions=True).as_dict()) for _ in range(2))
    assert one == two
    told = json.loads(one)
    assert list(told) == ["samples", "unit", "channel", "unattributed", "companions"]
    assert list(told["unit"]["layers"]) == ["relu", "relu#2"]
    assert told["unit"]["dead"] == sum(layer["dead"] for layer in told["unit"]["layers"].values())
    assert set(told["companions"]["layers"]) == {"conv1.weight", "conv2.weight", "fc.weight"}


def test_companions_of_weights_and_activations() -> None:
    model = nn.Sequential(linear([[1, 1], [1, -1], [3, 3]]), nn.ReLU())
    found = measured(model, TWO, {"0": [2]}, companions=True).companions
    assert found is not None
    assert (found.parameters, found.weights.sparsity) == (1 - 4 / 6, 1 - 4 / 6)
    assert found.layers["0.weight"] == found.weights
    rows = [torch.tensor([3.0, 1.0, 0.0]), torch.tensor([3.0, 0.0, 0.0])]
    by_row = [ap.neurons.measures(row) for row in rows]
    for measure in ("sparsity", "gini", "hoyer"):
        mean = sum(getattr(one, measure) for one in by_row) / 2
        assert getattr(found.activations["1"], measure) == pytest.approx(mean, abs=1e-12)
    assert measured(model, TWO).companions is None


# Laws.


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.floats(0.0, 0.6), st.integers(1, 4))
def test_static_and_dynamic_are_the_total_always(seed: int, alive: float, batch: int) -> None:
    model = SmallNet()
    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.normal_(generator=draw)
    images = torch.randn(5, 2, 6, 6, generator=draw)
    found = ap.dead_neurons(model, random_masks(model, alive, seed), torch.split(images, batch), graph=GRAPH)
    for granularity in (found.unit, found.channel):
        for rates in (granularity, *granularity.layers.values()):
            assert rates.static + rates.dynamic == rates.total
            assert 0 <= rates.dead_static <= rates.dead <= rates.counted == 5 * rates.neurons
            assert sum(rates.histogram) == rates.neurons
            assert rates.total <= 1


GRAPH = ap.trace(SmallNet(), torch.zeros(1, 2, 6, 6))


# ---- what a neuron depends on besides its own weights


def normalised(norm: nn.Module, pruned: list[int]) -> ap.neurons.DeadNeurons:
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


def test_samples_that_are_not_along_the_first_axis_are_not_taken_for_such() -> None:
    class TokensFirst(nn.Module):
        def __init__(self, swap: bool) -> None:
            super().__init__()
            self.swap, self.linear = swap, nn.Linear(5, 7)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.linear(x.transpose(0, 1) if self.swap else x))

    torch.manual_seed(1)
    one, other = TokensFirst(False), TokensFirst(True)
    other.load_state_dict(one.state_dict())
    for samples, tokens in ((4, 4), (4, 8), (4, 6)):
        x = torch.randn(samples, tokens, 5)
        right, found = (ap.dead_neurons(model, None, [x]) for model in (one, other))
        assert found.unit.dead == right.unit.dead
        assert [layer.why for layer in found.unattributed] == ["its first axis is not that of the samples"]
        assert right.unattributed == ()


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


def test_channels_after_a_matrix_product_are_at_the_last_axis() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.weight = nn.Conv2d(3, 6, 2, 2), nn.Parameter(torch.randn(6, 9))

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            if bool(x.sum() > 1e9):  # cannot be traced
                x = -x
            return torch.relu(x.flatten(2).transpose(1, 2) @ self.weight)

    found = ap.dead_neurons(Tokens(), None, [torch.randn(3, 3, 8, 8)])
    assert found.channel.neurons == 9


def test_hooks_of_torchs_own_pruning_leave_no_trace() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    torchs_prune.l1_unstructured(model[0], "weight", 0.5)
    before = model[0].weight
    ap.dead_neurons(model, None, [torch.randn(5, 4)])
    assert model[0].weight is before
    assert before.grad_fn is not None


def test_a_loader_of_inputs_alone() -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(6, 4)), batch_size=4)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    assert ap.dead_neurons(model, None, loader).samples == 6


def test_the_rates_are_what_was_counted() -> None:
    torch.manual_seed(2)
    for found in (normalised(nn.BatchNorm1d(4), [0]), normalised(nn.LayerNorm(4), [1, 2])):
        for rates in (found.unit, found.channel, *found.unit.layers.values()):
            assert rates.total == pytest.approx(rates.dead / rates.counted)
            assert 0 <= rates.dead_static <= rates.dead <= rates.counted


def test_a_model_that_cannot_be_traced_says_so_again_with_the_same_graph() -> None:
    class Choosing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x) if bool(x.sum() > 0) else torch.relu(-x)

    first = ap.neurons.DeadNeuronCounter(Choosing())
    first.add(torch.randn(4, 3))
    again = ap.neurons.DeadNeuronCounter(Choosing(), graph=first.graph)
    again.add(torch.randn(4, 3))
    assert first.result().unattributed == again.result().unattributed != ()
