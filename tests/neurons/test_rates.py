"""Rates are shares of what was counted."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import activeprune as ap
from tests.helpers import SmallNet, random_masks

GRAPH = ap.trace(SmallNet(), torch.zeros(1, 2, 6, 6))


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
            assert rates.static + rates.dynamic == rates.total == pytest.approx(rates.dead / rates.counted)
            assert 0 <= rates.dead_static <= rates.dead <= rates.counted == 5 * rates.neurons
            assert sum(rates.histogram) == rates.neurons
            assert rates.total <= 1


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
