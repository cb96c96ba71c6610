"""What each ATen operator does to neurons: one rule an operator, under its name without overload and final `_`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeVar

import numpy as np

from .signals import NOBODY, Ids, joined, reshaped
from .structure import Scale
from .wiring import Opaque, Value, Weight, Wiring


@dataclass(frozen=True)
class Call:
    """An operator with its arguments by name, tensors as `Value`, and the shapes of what it returns."""

    arguments: dict[str, Any]
    shapes: list[tuple[int, ...]]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first or only output."""
        return self.shapes[0]

    @property
    def first(self) -> Value:
        """The first argument, where it is a tensor."""
        found = next(iter(self.arguments.values()))
        if not isinstance(found, Value):
            raise Opaque("its first argument is no tensor")
        return found

    def neurons(self) -> list[Value]:
        """The arguments that carry neurons."""
        flat = [x for a in self.arguments.values() for x in (a if isinstance(a, (list, tuple)) else [a])]
        return [x for x in flat if isinstance(x, Value) and x.ids is not None]


Result = Value | list[Value]
OperatorRule = Callable[[Wiring, Call], Result]
Function = TypeVar("Function", bound=OperatorRule)
RULE_OF: dict[str, OperatorRule] = {}


def rule(*operators: str) -> Callable[[Function], Function]:
    """Registers a rule for operators."""

    def register(function: Function) -> Function:
        RULE_OF.update(dict.fromkeys(operators, function))
        return function

    return register


# Operators that matter also where they only see constants: a transposed parameter is still that parameter, a layer that
# reads a learned constant is still a layer.
NEEDS_NO_NEURONS = {
    "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "t", "transpose", "swapaxes", "permute",
    "numpy_T", "mT", "linear", "addmm", "conv1d", "conv2d", "conv3d", "embedding",
}  # fmt: skip


# Element by element: every neuron stays where it is.


@rule("alias", "clone", "contiguous", "detach", "to", "type_as", "_to_copy", "neg", "rsub", "masked_fill")
@rule("alpha_dropout", "dropout", "feature_dropout", "feature_alpha_dropout")
def unchanged(wiring: Wiring, call: Call) -> Value:
    """The same up to a sign and a constant: copies, dropout in eval mode, filling with a constant."""
    if len(call.neurons()) > 1 or call.first.ids is None:
        raise Opaque("neurons meet in it")
    return replace(call.first, shape=call.shape)


@rule("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max", "clip", "threshold")
@rule("leaky_relu", "prelu", "rrelu", "elu", "celu", "selu")
@rule("gelu", "silu", "mish", "hardswish", "hardsigmoid", "sigmoid", "tanh", "softplus", "log_sigmoid")
@rule("abs", "exp", "pow", "sqrt", "square", "hardshrink", "softshrink", "erf")
def activation(wiring: Wiring, call: Call) -> Value:
    """A function of one number."""
    return replace(unchanged(wiring, call), alone=False)


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
@rule(
    "upsample_nearest1d", "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d", "_upsample_nearest_exact2d"
)
def averaged(wiring: Wiring, call: Call) -> Value:
    """Weighted means over neighbouring pixels."""
    ids = _ids(call.first)
    given = (call.arguments.get(name) for name in ("kernel_size", "output_size", "scale_factors"))
    if ids.ndim != 2 + len(next(sizes for sizes in given if sizes)):
        raise Opaque("it has no batch axis")
    if prod(ids.shape[2:]) != 1:
        raise Opaque("different neurons at different pixels are averaged")
    return replace(call.first, shape=call.shape)


@rule("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool2d", "max_pool2d_with_indices")
def maximum(wiring: Wiring, call: Call) -> Result:
    """The largest of neighbouring pixels; some of these operators also return where it was."""
    largest = replace(averaged(wiring, call), alone=False)
    return [largest, *(Value(shape) for shape in call.shapes[1:])] if len(call.shapes) > 1 else largest


# Sums and products.


@rule("add", "sub")
def add(wiring: Wiring, call: Call) -> Value:
    """A sum; a constant moves the neurons and leaves them what they are."""
    parts = [_aligned(value, len(call.shape)) for value in call.neurons()]
    if len(parts) == 1:
        return replace(parts[0], shape=call.shape)
    return wiring.summed(parts, call.shape)


@rule("mul")
def multiply(wiring: Wiring, call: Call) -> Value:
    """A product with a constant; one with a parameter scales every neuron by its own factor."""
    if len(call.neurons()) > 1:
        raise Opaque("neurons are multiplied with each other")
    value = _aligned(call.neurons()[0], len(call.shape))
    factor = call["other"] if call["self"].ids is not None else call["self"]
    if not isinstance(factor, Value) or (factor.name is None and prod(factor.shape) == 1):
        return replace(value, shape=call.shape)
    if factor.name is None:
        raise Opaque("the factors are computed, not a parameter")
    channel = np.arange(prod(factor.shape)).reshape([1] * (len(call.shape) - len(factor.shape)) + list(factor.shape))
    return replace(wiring.scaled(value, Scale("product", factor.name), channel), shape=call.shape)


@rule("div")
def divide(wiring: Wiring, call: Call) -> Value:
    """A quotient by a number."""
    if isinstance(call["other"], Value) and prod(call["other"].shape) != 1:
        raise Opaque("it divides by a tensor")
    return replace(unchanged(wiring, call), shape=call.shape)


@rule("batch_norm")
def batch_norm(wiring: Wiring, call: Call) -> Value:
    """(x - mean) / √(var + ε) · γ + β with running statistics."""
    value, weight, variance = call["input"], call["weight"], call["running_var"]
    running = None if call["training"] or variance is None else variance.name
    scale = Scale("batch_norm", weight and weight.name, running, float(call["eps"]))
    return wiring.scaled(value, scale, _counted(value.shape, 1))


@rule("group_norm", "instance_norm", "layer_norm", "rms_norm")
def sample_norm(wiring: Wiring, call: Call) -> Value:
    """A normalisation by statistics of the sample itself, then γ and β."""
    value, weight = call.first, call["weight"]
    if "normalized_shape" in call.arguments:
        own = list(call["normalized_shape"])
        channel = np.arange(prod(own)).reshape([1] * (len(value.shape) - len(own)) + own)
        together = prod(own) if "bias" in call.arguments else None  # an RMS norm keeps signs, and zeros 0
    else:
        channel = _counted(value.shape, 1)
        together = value.shape[1] // call["num_groups"] if "num_groups" in call.arguments else None
    scale = Scale("layer_norm", weight and weight.name)
    return replace(wiring.scaled(value, scale, channel, together), alone=False)


@rule("mean", "sum", "amax", "amin")
def reduced(wiring: Wiring, call: Call) -> Value:
    """Over pixels or tokens."""
    value, ids = call.first, _ids(call.first)
    axes = call.arguments.get("dim")
    axes = range(ids.ndim) if axes is None or axes == [] else [axes] if isinstance(axes, int) else axes
    gone = {axis % ids.ndim for axis in axes}
    if any(ids.shape[axis] != 1 for axis in gone):
        raise Opaque("different neurons are reduced to one number")
    kept = [1 if axis in gone else size for axis, size in enumerate(ids.shape)]
    if not call.arguments.get("keepdim"):
        kept = [size for axis, size in enumerate(ids.shape) if axis not in gone]
    return replace(value, shape=call.shape, ids=ids.reshape(kept))


@rule("softmax", "log_softmax", "_softmax", "_log_softmax")
def softmax(wiring: Wiring, call: Call) -> Value:
    """Over pixels or tokens."""
    if _ids(call.first).shape[call["dim"]] != 1:
        raise Opaque("every neuron depends on all of them")
    return replace(call.first, alone=False)


# Weights.


@rule("linear")
def linear(wiring: Wiring, call: Call) -> Value:
    """x Wᵀ + b, W [outputs, inputs]."""
    return wiring.layer(call["input"], -1, Weight.of(call["weight"]), call.shape)


@rule("conv1d", "conv2d", "conv3d")
def convolution(wiring: Wiring, call: Call) -> Value:
    """W [outputs, inputs / groups, kernel]."""
    channels = 1 - len(call["weight"].shape)  # counted from the end: there may be no batch axis
    return wiring.layer(call["input"], channels, Weight.of(call["weight"], call["groups"]), call.shape)


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed_convolution(wiring: Wiring, call: Call) -> Value:
    """W [inputs, outputs / groups, kernel]."""
    channels = 1 - len(call["weight"].shape)
    weight = Weight.of(call["weight"], call["groups"], inputs_first=True)
    return wiring.layer(call["input"], channels, weight, call.shape)


@rule("addmm")
def linear_of_columns(wiring: Wiring, call: Call) -> Value:
    """b + x W, W [inputs, outputs]."""
    if call["self"].ids is not None or len(call["mat2"].shape) != 2:
        raise Opaque("neurons are added to a product")
    return wiring.layer(call["mat1"], -1, Weight.of(call["mat2"], inputs_first=True), call.shape)


@rule("matmul", "mm", "bmm")
def matrix_product(wiring: Wiring, call: Call) -> Value:
    """x W with a parameter W [inputs, outputs], or attention written out: queries times keys, weights times values."""
    left, right = call["self"], call["other"] if "other" in call.arguments else call["mat2"]
    if right.ids is None and len(right.shape) != 2:
        raise Opaque("its weight is not a matrix")
    if right.ids is None:
        return wiring.layer(left, -1, Weight.of(right, inputs_first=True), call.shape)
    if left.ids is None:
        raise Opaque("a parameter is multiplied from the left")
    if left.ids.size == 1 and right.ids.shape[-2] == 1:  # a mean over tokens with weights that belong to no neuron
        wiring.expose(left)
        return Value(call.shape, _aligned(right, len(call.shape)).ids)
    wiring.expose([left, right])
    return wiring.source(call.shape)


@rule("scaled_dot_product_attention")
def attention(wiring: Wiring, call: Call) -> Value:
    """A mean of the values over tokens; queries and keys only decide its weights."""
    wiring.expose([call["query"], call["key"], call["attn_mask"]])
    value = call["value"]
    if value.ids is None or value.ids.shape[-2] != 1 or value.shape[:-2] != call.shape[:-2]:
        raise Opaque("different neurons at different tokens are averaged")
    return Value(call.shape, value.ids)


@rule("embedding")
def embedding(wiring: Wiring, call: Call) -> Value:
    """Rows of a table."""
    return wiring.source(call.shape)


# Places.


@rule("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze")
def reshape(wiring: Wiring, call: Call) -> Value:
    """The same numbers in the same order under another shape."""
    if call.first.ids is None:
        return Value(call.shape, name=call.first.name)
    return replace(call.first, shape=call.shape, ids=reshaped(_ids(call.first), call.first.shape, call.shape))


@rule("transpose", "swapaxes", "swapdims", "t", "numpy_T", "mT", "permute")
def permute(wiring: Wiring, call: Call) -> Value:
    """The axes in another order."""
    value, rank = call.first, len(call.shape)
    if "dims" in call.arguments:
        order = [axis % rank for axis in call["dims"]]
    else:
        one, other = [a for name, a in call.arguments.items() if name != "self"] or (-2, -1)
        order = list(range(rank))
        order[one % rank], order[other % rank] = order[other % rank], order[one % rank]
    if value.ids is None:
        weight = value.weight and order == [1, 0]
        return Value(call.shape, name=value.name if weight else None, weight=weight, swapped=not value.swapped)
    return replace(value, shape=call.shape, ids=value.ids.transpose(order))


@rule("slice", "narrow")
def slice_(wiring: Wiring, call: Call) -> Value:
    """A stretch of one axis."""
    value, axis = call.first, call["dim"]
    start, step = call["start"] or 0, call.arguments.get("step", 1)
    start = max(0, start + value.shape[axis] if start < 0 else start)
    index = range(start, value.shape[axis], step)[: call.shape[axis]]
    return replace(value, shape=call.shape, ids=_take(_ids(value), axis, index))


@rule("select")
def select(wiring: Wiring, call: Call) -> Value:
    """One position of one axis, which goes away."""
    value, axis = call.first, call["dim"]
    ids = _take(_ids(value), axis, [call["index"] % value.shape[axis]])
    return replace(value, shape=call.shape, ids=ids.squeeze(axis))


@rule("unbind", "chunk", "split", "split_with_sizes", "tensor_split")
def pieces(wiring: Wiring, call: Call) -> list[Value]:
    """One axis cut up."""
    value, axis = call.first, call["dim"]
    cut = []
    start = 0
    for shape in call.shapes:
        length = shape[axis] if len(shape) == len(value.shape) else 1  # unbind takes the axis away
        ids = _take(_ids(value), axis, range(start, start + length))
        cut.append(replace(value, shape=shape, ids=ids if len(shape) == ids.ndim else ids.squeeze(axis)))
        start += length
    return cut


@rule("expand", "expand_as", "broadcast_to")
def expand(wiring: Wiring, call: Call) -> Value:
    """Copies along new axes or along axes of length 1."""
    return replace(_aligned(call.first, len(call.shape)), shape=call.shape)


@rule("flip", "roll")
def moved(wiring: Wiring, call: Call) -> Value:
    """Pixels or tokens change places."""
    if any(_ids(call.first).shape[axis] != 1 for axis in call["dims"] or range(len(call.shape))):
        raise Opaque("different neurons change places")
    return call.first


@rule("pad", "constant_pad_nd")
def pad(wiring: Wiring, call: Call) -> Value:
    """Constants before and after; the amounts are listed from the last axis on."""
    value, ids, amounts = call.first, _ids(call.first), call["pad"]
    axes = [ids.ndim - 1 - i // 2 for i in range(0, len(amounts), 2)]
    for axis, before, after in zip(axes, amounts[::2], amounts[1::2], strict=True):
        if (before or after) and (ids.shape[axis] > 1 or value.shape[axis] == 1):
            if call.arguments.get("mode", "constant") != "constant" or min(before, after) < 0:
                raise Opaque("neurons are repeated or cut off at the border")
            widths = [(before, after) if a == axis else (0, 0) for a in range(ids.ndim)]
            ids = np.pad(ids, widths, constant_values=NOBODY)
    return replace(value, shape=call.shape, ids=ids)


@rule("cat", "concat", "concatenate")
def concatenate(wiring: Wiring, call: Call) -> Value:
    """One after the other along an axis."""
    parts = [part for part in call["tensors"] if prod(part.shape)]
    ids = [np.full([1] * len(call.shape), NOBODY) if part.ids is None else part.ids for part in parts]
    axis = call["dim"] % len(call.shape)
    everyone = joined(ids, [part.shape for part in parts], axis)
    return Value(call.shape, everyone, alone=all(part.alone for part in parts))


@rule("stack")
def stack(wiring: Wiring, call: Call) -> Value:
    """One after the other along a new axis."""
    axis = call["dim"] % len(call.shape)
    parts = [np.full([1] * len(call.shape[1:]), NOBODY) if p.ids is None else p.ids for p in call["tensors"]]
    shape = [1 if a == axis else size for a, size in enumerate(call.shape)]
    return Value(call.shape, joined([np.expand_dims(part, axis) for part in parts], [shape] * len(parts), axis))


def _ids(value: Value) -> Ids:
    assert value.ids is not None
    return value.ids


def _aligned(value: Value, rank: int) -> Value:
    """With axes of length 1 in front, as broadcasting adds them."""
    ids = _ids(value)
    return replace(value, ids=ids.reshape([1] * (rank - ids.ndim) + list(ids.shape)))


def _counted(shape: Sequence[int], axis: int) -> Ids:
    """The index along an axis, in the form of neuron numbers."""
    return np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])


def _take(ids: Ids, axis: int, index: Sequence[int]) -> Ids:
    return ids if ids.shape[axis] == 1 else ids.take(list(index), axis)
