"""A counter that begins again answers as a new one does, whatever it counted before."""

import torch
from torch import nn

import activeprune as ap
from activeprune.neurons.again import Removed, RepeatedCounter
from tests.helpers import Net, random_masks
from tests.neurons.makers import linear, looked_at


def test_it_begins_again_with_other_weights_masks_and_images() -> None:
    *models, other = (ap.build("resnet8") for _ in range(4))
    counter = RepeatedCounter(other)
    pruned = [dict(random_masks(model, 0.5)) for model in models]
    for mask in pruned[0].values():
        mask[::2] = False
    removed = [Removed(ap.Masks(pruned[0])), Removed(ap.Masks(pruned[1])), Removed(None)]
    for size in (4, 4, 6):
        for model, masks in zip(models, removed, strict=True):
            looked_at(counter, model, masks, [torch.randn(size, 3, 8, 8), torch.randn(3, 3, 8, 8)])
    assert removed[0].unfed is not removed[1].unfed


def test_buffers_are_those_of_the_state() -> None:
    model = nn.Sequential(linear([[1, -1]]), nn.BatchNorm1d(1), nn.ReLU())
    counter = RepeatedCounter(model)
    images = [torch.tensor([[2.0, 1.0], [1.0, 2.0]])]
    for mean, dead in ((0.0, 1), (9.0, 2), (-9.0, 0)):
        state = {**model.state_dict(), "1.running_mean": torch.tensor([mean])}
        counter.again(state, Removed(None))
        counter.add(images[0])
        assert counter.result().unit.dead == dead


def test_it_begins_again_after_maps_of_other_sizes_and_passes_of_other_orders() -> None:
    """Where units come and go, or passes differ, nothing is kept from one look to the next."""

    def forward(net, x):
        y = net.a(x).relu()
        return net.b(y).relu() if float(x.sum()) > 0 else y

    model = Net(forward, a=linear([[1, -1], [1, 1]]), b=linear([[1, 0]]))
    counter = RepeatedCounter(model)
    more, less = torch.ones(3, 2), -torch.ones(3, 2)
    for batches in ([more], [more, less], [less], [more]):
        looked_at(counter, model, Removed(None), batches)
    convolution = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU())
    counter = RepeatedCounter(convolution)
    for sides in ((4,), (4, 6), (4,)):
        looked_at(counter, convolution, Removed(None), [torch.randn(2, 1, side, side) for side in sides])
