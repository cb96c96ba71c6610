"""The kernels' arguments: each structure mirrors the one of the same name in `kernels/`, field for field."""

from __future__ import annotations

import ctypes
from typing import Any

_POINTER, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_float


def _fields(**groups: Any) -> list[tuple[str, Any]]:
    """Fields in order: a type's name, with anything behind an underscore, and the names of its fields."""
    types = {
        "pointers": _POINTER,
        "ints": _INT,
        "floats": _FLOAT,
        "longs": ctypes.c_longlong,
        "norms": Norm,
        "cuts": Cut,
    }
    return [(name, types[kind.split("_")[0]]) for kind, names in groups.items() for name in names.split()]


class Norm(ctypes.Structure):
    """A batch norm as its reader sees it."""

    _fields_ = [
        ("sums", _POINTER),
        ("moments", _POINTER),
        ("gamma", _POINTER),
        ("beta", _POINTER),
        ("blocks", _INT),
        ("inverse", _FLOAT),
    ]


class Cut(ctypes.Structure):
    """How the tiles of all networks are dealt out: tiles and units of one network, tiles of a unit, networks, and how
    many units a block takes at least.
    """

    _fields_ = [("tiles", _INT), ("per_unit", _INT), ("units", _INT), ("networks", _INT), ("run", _INT)]


class Gather(ctypes.Structure):
    """Images to a batch of each network."""

    _fields_ = _fields(pointers="images labels codes step scale shift output targets", ints="steps batch")


class StemForward(ctypes.Structure):
    """The first convolution."""

    _fields_ = _fields(pointers="input weights output sums", ints="weight_pitch images tiles per_block")


class StemBackward(ctypes.Structure):
    """Its weight gradient."""

    _fields_ = _fields(
        pointers="gradient output input sums moments gamma weight_sums",
        floats="inverse",
        ints="sum_blocks parameters channels images tiles per_block",
    )


class Forward(ctypes.Structure):
    """A 3x3 convolution, and the 1x1 one beside it where there is one."""

    _fields_ = _fields(
        pointers="input shortcut joined weights project_weights output projected sums projected_sums",
        norms="norm shortcut_norm",
        cuts="cut",
        ints="kind weight_pitch parameters channels images",
    )


class Link(ctypes.Structure):
    """One of the convolutions of a series: where its weights and its norm are."""

    _fields_ = _fields(ints="weights norm")


class Series(ctypes.Structure):
    """The 3x3 convolutions of one width behind each other, with running statistics."""

    _fields_ = _fields(
        pointers="input shortcut links weights affine output",
        ints="kind count input_norm shortcut_norm weight_pitch channels images networks",
    )


class Affine(ctypes.Structure):
    """All norms with running statistics as lines."""

    _fields_ = _fields(pointers="parameters running places affine", ints="count channels")


class Backward(ctypes.Structure):
    """A 3x3 convolution's two gradients."""

    _fields_ = _fields(
        pointers_1="gradient output input raw residual weights input_gradient sums input_sums weight_sums",
        pointers_2="moments gamma input_moments input_gamma input_beta",
        cuts="cut",
        floats="inverse",
        ints="residual_pitch residual_offset sum_blocks weight_pitch parameters channels images",
    )


class ShortcutSums(ctypes.Structure):
    """The sums that a projection's norm needs to go backward."""

    _fields_ = _fields(pointers="gradient output moments sums", ints="channels chunks per_block")


class ProjectBackward(ctypes.Structure):
    """A 1x1 convolution's two gradients."""

    _fields_ = _fields(
        pointers="gradient output input weights input_gradient sums moments gamma weight_sums",
        floats="inverse",
        ints="sum_blocks weight_pitch parameters channels images tiles per_block",
    )


class Head(ctypes.Structure):
    """Pooling, linear layer, loss and their gradients."""

    _fields_ = _fields(
        pointers_1="output shortcut gradient",
        norms="norm shortcut_norm",
        pointers_2="weight bias targets sums weight_sums bias_sums losses",
        floats="smoothing",
        ints="kind classes parameters channels images",
    )


class Segment(ctypes.Structure):
    """Where a parameter's gradient is: `count` rows of sums, `pitch` floats apart, each `run` added up first."""

    _fields_ = _fields(pointers="rows", longs="network_pitch", ints="count pitch start length run")


class Update(ctypes.Structure):
    """The optimiser's step."""

    _fields_ = _fields(
        pointers_1="parameters velocity mask active forward backward forward_slot backward_slot",
        pointers_2="segments segment_of rates step",
        floats="momentum decay",
        ints="nesterov steps count packed",
    )


class Finish(ctypes.Structure):
    """Running statistics and results of a step."""

    _fields_ = _fields(
        pointers="moments running correction active losses table step", ints="training channels blocks parts steps"
    )
