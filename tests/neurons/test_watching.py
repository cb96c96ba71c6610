"""Activations are seen wherever a model calls them, and their samples and channels wherever these are."""

import threading

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import activeprune as ap
from tests.helpers import Net
from tests.neurons.makers import TWO, counts, linear, measured, pointwise, pruned

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


def test_a_model_with_a_call_of_its_own_gives_its_functions_their_plain_names() -> None:
    class Direct(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = linear([[1, 1], [1, -1]])

        def __call__(self, x: Tensor) -> Tensor:
            return torch.relu(nn.functional.linear(x, self.a.weight))

    found = ap.dead_neurons(Direct(), None, [TWO])
    assert {name: counts(layer) for name, layer in found.unit.layers.items()} == {"relu": (0, 1, 4)}


def test_torchs_own_transformer_is_seen_inside() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=6, batch_first=True, activation="gelu")
    model = nn.Sequential(nn.Linear(4, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    found = measured(model, torch.randn(3, 5, 4), {"1.layers.0.linear1": [1]})
    assert list(found.unit.layers) == ["1.layers.0:gelu", "1.layers.1:gelu"]
    assert (found.unit.neurons, found.channel.neurons, found.unattributed) == (60, 12, ())


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


# -- samples and channels


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


def test_counts_without_samples_add_up_over_batches() -> None:
    """Of the four tokens that are left of a batch, x - y is positive for the first and the last, or for the others."""
    model = Net(lambda net, x: torch.relu(net.a(x.flatten(0, 1)[:4])), a=linear([[1, 1], [1, -1]]))
    one, other = torch.stack([TWO, TWO.flip(0), TWO]), torch.stack([TWO.flip(0), TWO, TWO])
    together = ap.dead_neurons(model, None, [one, other, -one])
    alone = [ap.dead_neurons(model, None, [batch]) for batch in (one, other, -one)]
    assert counts(alone[0].unit) == counts(alone[1].unit) == (0, 2, 8)
    assert counts(alone[2].unit) == (0, 6, 8)
    assert counts(together.unit) == (0, 10, 24)


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
