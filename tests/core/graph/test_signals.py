"""Arrays of neuron numbers follow what happens to the tensor."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from activeprune.core.graph.signals import collapsed, combinations, reshaped


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
