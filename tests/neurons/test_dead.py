"""Dead neurons of networks small enough to count by hand."""

import pytest
import torch
from torch import nn

import activeprune as ap
from activeprune.neurons import DeadNeuronCounter
from tests.helpers import SmallNet, random_masks
from tests.neurons.makers import TWO, counts, linear, measured, pointwise


def test_a_linear_layers_neurons_are_its_units_and_its_channels() -> None:
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


def test_a_convolution_has_a_unit_at_every_pixel_and_a_channel_for_every_map() -> None:
    """Channel 0 is the image, dead where it is negative; channel 1 its negative; channel 2 pruned."""
    image = torch.tensor([[[[1.0, -1.0], [-1.0, -1.0]]], [[[-1.0, -1.0], [-1.0, -1.0]]]])
    model = nn.Sequential(pointwise([[1], [-1], [5]]), nn.ReLU())
    found = measured(model, image, {"0": [2]})
    assert counts(found.unit) == (8, 3 + 1 + 4, 24)
    assert counts(found.channel) == (2, 1, 6)
    assert (found.unit.neurons, found.channel.neurons) == (12, 3)
    assert found.unit.never_active == 3
    assert found.channel.histogram == (1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)


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


def test_an_empty_batch_adds_nothing() -> None:
    model = nn.Sequential(linear([[1, 1], [1, -1]]), nn.ReLU())
    counter = DeadNeuronCounter(model)
    for batch in (TWO[:0], TWO, TWO[:0]):
        counter.add(batch)
    assert counter.result() == ap.dead_neurons(model, None, [TWO])


def test_empty_batches_alone_are_refused() -> None:
    with pytest.raises(ap.InputError, match="dead neurons are counted on batches"):
        ap.dead_neurons(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), None, [TWO[:0]])


def test_a_loader_may_give_inputs_alone() -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(6, 4)), batch_size=4)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    assert ap.dead_neurons(model, None, loader).samples == 6


def test_batch_statistics_stand_in_for_running_ones() -> None:
    """A network that has seen no data: outputs around 10 are all alive until they are centred."""
    model = nn.Sequential(linear([[1.0]], bias=[10.0]), nn.BatchNorm1d(1), nn.ReLU())
    samples = torch.tensor([[-1.0], [1.0], [-2.0], [2.0]])
    assert counts(measured(model, samples).unit) == (0, 0, 4)
    assert counts(measured(model, samples, batch_statistics=True).unit) == (0, 2, 4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_half_and_double_precision_are_counted_alike(dtype: torch.dtype) -> None:
    model = nn.Sequential(linear([[1, 1], [1, -1]]), nn.ReLU(), nn.Linear(2, 3), nn.GELU()).to(dtype)
    found = measured(model, TWO.to(dtype), {"0": [0]})
    assert counts(found.unit.layers["1"]) == (2, 1, 4)
    assert found.unit.layers["3"].neurons == 3


def test_wrapped_models_are_measured_inside() -> None:
    model = nn.Sequential(linear([[1, 1], [1, -1]]), nn.ReLU())
    assert measured(nn.DataParallel(model), TWO) == measured(model, TWO)


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
