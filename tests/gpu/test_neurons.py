"""Dead neurons are the same on a GPU, and counting them never waits for it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import activeprune as ap
from activeprune.neurons import DeadNeuronCounter
from activeprune.neurons.again import Removed, RepeatedCounter
from activeprune.neurons.bytes import summed
from tests.helpers import Net, random_masks
from tests.neurons.makers import looked_at

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that this torch can use"),
]


def network() -> nn.Module:
    """With small whole numbers for weights, so that every device computes the same."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, eps=0.5), nn.ReLU(inplace=True), nn.Conv2d(8, 6, 3),
        nn.ReLU6(), nn.Flatten(), nn.Linear(6 * 36, 10), nn.ReLU(),
    )  # fmt: skip
    for parameter in model.parameters():
        parameter.data = torch.randint(-3, 4, parameter.shape).float()
    model[1].running_var.fill_(0.5)  # and eps: together 1
    return model


def images() -> list[torch.Tensor]:
    return [torch.randint(-3, 4, (count, 3, 8, 8)).float() for count in (16, 16, 5)]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_counts_are_those_of_the_cpu(memory_format: torch.memory_format) -> None:
    model, batches = network(), images()
    tensors = dict(random_masks(model, 0.5))
    for mask in tensors.values():
        mask[::3] = False
    masks = ap.Masks(tensors)
    here = ap.dead_neurons(model, masks, batches, companions=True)
    assert here.unit.dead_static > 0
    model = model.cuda().to(memory_format=memory_format)
    there = ap.dead_neurons(model, masks, [x.cuda().to(memory_format=memory_format) for x in batches])
    assert (there.unit, there.channel, there.unattributed) == (here.unit, here.channel, ())


def test_adding_a_batch_never_waits_for_the_device(waiting_is_an_error) -> None:
    model = network().cuda()
    batches = [x.cuda() for x in images()]
    counter = DeadNeuronCounter(model, ap.Masks.dense(model), ap.trace(model, batches[0]))
    counter.add(batches[0])
    torch.cuda.synchronize()
    waiting_is_an_error()
    for batch in batches:
        counter.add(batch)
    torch.cuda.set_sync_debug_mode("default")
    assert counter.result().samples == 53


def test_the_gpus_random_state_is_left_alone() -> None:
    model = Net(lambda net, x: F.dropout(net.inner(x), 0.5, training=True), inner=network()).cuda()
    before = torch.cuda.get_rng_state()
    ap.dead_neurons(model, None, [x.cuda() for x in images()])
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_a_pass_that_is_replayed_counts_what_one_that_runs_does() -> None:
    """Other weights, masks and images in every look; the last batch is smaller than the others."""
    counter, models = RepeatedCounter(network().cuda()), [network().cuda() for _ in range(2)]
    removed = [Removed(ap.Masks(dict(random_masks(model, 0.4))).to("cuda")) for model in models]
    for _ in range(3):
        for model, masks in zip(models, removed, strict=True):
            looked_at(counter, model, masks, [x.cuda() for x in images()])
    assert len(counter._records) == 2


def test_a_model_that_waits_for_the_device_is_run_each_time() -> None:
    class Waiting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) if float(x.sum()) > -1e9 else x

    model = Waiting().cuda()
    counter = RepeatedCounter(model)
    for _ in range(3):
        looked_at(counter, model, Removed(None), [x.cuda() for x in images()])
    assert not counter._records
    torch.rand(1, device="cuda")  # the generator is whole


@pytest.mark.parametrize("shape", [(1, 4096, 64), (3, 3240, 16), (5, 1024, 1), (2, 1021, 8), (4, 49, 3), (7, 1, 8)])
def test_sums_of_bytes(shape: tuple[int, int, int]) -> None:
    ones = (torch.rand(shape, device="cuda") < 0.9).view(torch.uint8)
    assert torch.equal(summed(ones), ones.int().sum(1, dtype=torch.int32))
