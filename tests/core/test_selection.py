"""The k lowest, exactly, whatever the type, the layout and the ties."""

import math
import struct
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import activeprune as ap
from activeprune.core import selection
from activeprune.core.selection import DOUBLE, SINGLE, _by_sort, descending, lowest
from tests.helpers import layers, positions, slow_lowest


@given(layers(), st.integers(0, 40))
def test_lowest_is_what_sorting_python_tuples_gives(drawn: tuple, count: int) -> None:
    keys, among = drawn
    assert positions(lowest(keys, among, count, "keys")) == slow_lowest(keys, among, count)


@given(layers(tied=False), st.integers(0, 40), st.sampled_from([torch.float32, torch.float64]))
def test_also_for_floats_without_ties_in_both_widths(drawn: tuple, count: int, dtype: torch.dtype) -> None:
    keys, among = drawn
    keys = {name: key.to(dtype) for name, key in keys.items()}
    assert positions(lowest(keys, among, count, "keys")) == slow_lowest(keys, among, count)


@given(layers(), st.integers(0, 40))
def test_blocks_do_not_show(drawn: tuple, count: int) -> None:
    keys, among = drawn
    whole = positions(lowest(keys, among, count, "keys"))
    size, selection.BLOCK = selection.BLOCK, 2
    try:
        assert positions(lowest(keys, among, count, "keys")) == whole
    finally:
        selection.BLOCK = size


@pytest.mark.parametrize("block", [1, 2, 3])
def test_of_ties_in_several_blocks_the_first_are_taken(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "BLOCK", block)
    keys, among = {"a": torch.ones(4), "b": torch.ones(5)}, {"a": torch.tensor([True] * 3 + [False])}
    among["b"] = torch.tensor([True, False, True, True, True])
    for count in range(9):
        assert positions(lowest(keys, among, count, "keys")) == slow_lowest(keys, among, count)


def sorted_lowest(keys: dict, among: dict, count: int, what: str, form: object = None) -> dict:
    """`lowest` as GPUs compute it."""
    form = form or (DOUBLE if any(key.dtype == torch.float64 for key in keys.values()) else SINGLE)
    flat = {name: key.reshape(-1).to(form.float_type) for name, key in keys.items()}
    return _by_sort(flat, among, count, what, form)


both_ways = pytest.mark.parametrize("choose", [lowest, sorted_lowest])


@given(layers(), st.integers(0, 40), st.sampled_from([SINGLE, DOUBLE]))
def test_the_sort_that_gpus_use_chooses_the_same(drawn: tuple, count: int, form: object) -> None:
    keys, among = drawn
    assert positions(sorted_lowest(keys, among, count, "keys", form)) == slow_lowest(keys, among, count)


def test_float64_keys_are_told_apart_where_float32_cannot() -> None:
    keys = {"a": torch.tensor([1.0 + 1e-12, 1.0], dtype=torch.float64), "b": torch.tensor([1.0])}
    among = {name: torch.ones_like(key, dtype=torch.bool) for name, key in keys.items()}
    assert positions(lowest(keys, among, 2, "keys")) == {("a", 1), ("b", 0)}


@both_ways
def test_neighbouring_floats_are_told_apart(choose: Callable) -> None:
    bits = [0x3F800000, 0x3F800001, 0x3F80FFFF, 0x3F810000, 0x00000001, 0x80000001, 0xBF800001, 0xBF800000]
    values = [struct.unpack("<f", struct.pack("<I", b))[0] for b in bits]
    keys = {"w": torch.tensor(values)}
    among = {"w": torch.ones(len(values), dtype=torch.bool)}
    for count in range(len(values) + 1):
        assert positions(choose(keys, among, count, "keys")) == slow_lowest(keys, among, count)


@both_ways
def test_minus_zero_ties_with_zero(choose: Callable) -> None:
    keys = {"w": torch.tensor([0.0, -0.0, 0.0, -0.0])}
    among = {"w": torch.ones(4, dtype=torch.bool)}
    assert choose(keys, among, 2, "keys")["w"].tolist() == [True, True, False, False]


@both_ways
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_and_the_smallest_float_are_ordinary_keys(choose: Callable, dtype: torch.dtype) -> None:
    most, least = torch.finfo(dtype).max, torch.finfo(dtype).smallest_normal
    keys = {"w": torch.tensor([most, 0.0, -most, least, -least, most, -most], dtype=dtype)}
    among = {"w": torch.ones(7, dtype=torch.bool)}
    for count in range(9):
        assert positions(choose(keys, among, count, "keys")) == slow_lowest(keys, among, count)


def test_whole_numbers_are_told_apart_where_float32_cannot() -> None:
    keys = {"a": torch.tensor([2**24 + 1, 2**24]), "b": torch.tensor([2**24 + 2, -3], dtype=torch.int32)}
    among = {name: torch.ones(2, dtype=torch.bool) for name in keys}
    assert positions(lowest(keys, among, 2, "keys")) == {("b", 1), ("a", 1)}
    assert positions(lowest(keys, among, 3, "keys")) == {("b", 1), ("a", 1), ("a", 0)}


def test_a_choice_is_new_memory_also_where_everything_is_chosen() -> None:
    keys = {"w": torch.tensor([1.0, 2.0])}
    among = {"w": torch.tensor([True, True])}
    for count in (1, 2, 3):
        lowest(keys, among, count, "keys")["w"].fill_(False)
        assert among["w"].tolist() == [True, True]


def test_layout_does_not_matter() -> None:
    key = torch.randint(0, 5, (8, 4, 3, 3)).float()
    among = {"w": torch.rand(key.shape) < 0.7}
    plain = lowest({"w": key}, among, 100, "keys")["w"]
    channels_last = lowest({"w": key.to(memory_format=torch.channels_last)}, among, 100, "keys")["w"]
    mask_too = lowest({"w": key}, {"w": among["w"].to(memory_format=torch.channels_last)}, 100, "keys")["w"]
    assert torch.equal(plain, channels_last)
    assert torch.equal(plain, mask_too)


@both_ways
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_non_finite_keys_are_an_error_that_names_the_layer(choose: Callable, bad: float, dtype: torch.dtype) -> None:
    keys = {"conv1.weight": torch.ones(4, dtype=dtype), "fc.weight": torch.tensor([1.0, bad, 2.0], dtype=dtype)}
    among = {name: torch.ones_like(key, dtype=torch.bool) for name, key in keys.items()}
    with pytest.raises(ap.InputError, match=r"scores of layer 'fc.weight': 1 of them are NaN or infinite"):
        choose(keys, among, 1, "scores")
    among["fc.weight"][1] = False
    assert positions(choose(keys, among, 1, "scores")) == {("conv1.weight", 0)}


@given(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.5, 1e-30, 1e30]), min_size=1, max_size=40))
def test_descending_keeps_the_order_of_equal_keys(values: list[float]) -> None:
    for dtype in (torch.float32, torch.float64):
        keys = torch.tensor(values, dtype=dtype)
        sorted_keys, indices = descending(keys)
        assert indices.tolist() == sorted(range(len(values)), key=lambda i: (-float(keys[i]), i))
        assert torch.equal(sorted_keys, keys[indices])
