"""`activeprune dnr`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import machine
from ..core.errors import InputError
from ..core.masks import Masks
from ..experiment.plan.reading import assignments
from ..neurons import DeadNeurons, Rates, dead_neurons, layer_bound
from ..neurons.bound import LEVELS
from ..neurons.counting import THRESHOLD
from ..training import Training
from .show import AsJson, print_json, print_table
from .weights import load_weights

ALL = "all"
NETWORK = "network"  # the last row of a table


def dnr(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A network by name, or package.module:builder.")],
    data: Annotated[str, typer.Option(metavar="NAME", help="A data set by name, or package.module:loader.")],
    path: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the data set is.")] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option of the network (repeatable).")
    ] = None,
    resolution: Annotated[int | None, typer.Option(min=1, metavar="N", help="Scale images to this size.")] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Weights, a safetensors or torch.save file; else the seed's."),
    ] = None,
    masks: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Masks of pruned weights; else none is pruned.")
    ] = None,
    samples: Annotated[str, typer.Option(metavar="N", help="Training images to look at, or all.")] = "2048",
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Images at a time.")] = 128,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of split, choice of images and first weights.")] = 0,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, ...")] = "cpu",
    threshold: Annotated[
        float, typer.Option(help="Outputs of GELU, SiLU, Mish and Hardswish below this size are dead.")
    ] = THRESHOLD,
    share: Annotated[float, typer.Option(help="The part of a map that must be dead for its channel to be.")] = 1.0,
    include: Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Only these activations.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Not these activations.")] = None,
    batch_statistics: Annotated[
        bool, typer.Option("--batch-statistics", help="Batch-norm as in training, by each batch's own statistics.")
    ] = False,
    companions: Annotated[
        bool, typer.Option("--companions", help="Also Gini index and Hoyer measure (slower).")
    ] = False,
    bound: Annotated[bool, typer.Option("--bound", help="Also the bound of Theorem 1 for each layer.")] = False,
    levels: Annotated[float, typer.Option(help="Values that an activation can take, for --bound.")] = LEVELS,
    as_json: AsJson = False,
) -> None:
    """Measure dead neurons on training images: static (all weights pruned), dynamic, and both together (DNR)."""
    wanted, place = _count(samples), machine.device(device)
    training = Training.read(
        {
            "network": {"name": model, **assignments(options or ())}, "resolution": resolution,
            "data": {"name": data, "path": path}, "batch": batch, "lr": 1.0, "epochs": 1,
        }
    )  # fmt: skip
    feed = training.feed(seed, str(place))
    network = training.build(len(feed.classes), feed.channels, seed)
    if state is not None:
        load_weights(network, state)
    pruned = Masks.dense(network) if masks is None else Masks.load(masks)
    found = dead_neurons(
        network.to(place),
        pruned.to(place),
        feed.unaugmented(wanted),
        threshold=threshold,
        share=share,
        include=include or None,
        exclude=exclude or None,
        batch_statistics=batch_statistics,
        companions=companions,
    )
    bounds = {name: layer_bound(layer, levels) for name, layer in found.unit.layers.items()} if bound else None
    if as_json:
        told: dict[str, Any] = {
            "network": model, "options": dict(training.network.options), "data": data, "density": pruned.density,
            "state": state and str(state), "masks": masks and str(masks), "seed": seed, "threshold": threshold,
             "share": share, "include": include, "exclude": exclude,
            "batch_statistics": batch_statistics, **found.as_dict(),
        }  # fmt: skip
        print_json(told if bounds is None else {**told, "bound": bounds})
        return
    weights = f"{state}" if state is not None else f"untrained weights of seed {seed}"
    print(f"{model} on {found.samples:,} training images of {data}: {weights}, density {pruned.density:.2%}")
    _print(found, bounds)


def _print(found: DeadNeurons, bounds: Mapping[str, float | None] | None) -> None:
    rows = chain(found.unit.layers.items(), [(NETWORK, found.unit)])
    channels = {**found.channel.layers, NETWORK: found.channel}
    print_table(_row(name, unit, channels.get(name), bounds) for name, unit in rows)
    print("static: all weights that feed the neuron are pruned; dynamic: all other dead neurons; DNR: both")
    if bounds is not None:
        print("bound: what the layer's units can tell of the input at most, in nats (Theorem 1)")
    if found.companions is not None:
        spreads = [("all weights", found.companions.weights), *found.companions.activations.items()]
        print_table(
            {"numbers": name, "zeros": f"{s.sparsity:.2%}", "Gini": f"{s.gini:.4f}", "Hoyer": f"{s.hoyer:.4f}"}
            for name, s in spreads
        )
    for layer in found.unattributed:
        print(f"unattributed, counted as dynamic: {layer.layer} ({layer.why})", file=sys.stderr)


def _row(name: str, unit: Rates, channel: Rates | None, bounds: Mapping[str, float | None] | None) -> dict[str, str]:
    row = {
        "layer": name,
        "units": f"{unit.neurons:,}",
        "static": f"{unit.static:.2%}",
        "dynamic": f"{unit.dynamic:.2%}",
        "DNR": f"{unit.total:.2%}",
        "never active": f"{unit.never_active:,}",
        "channels": "" if channel is None else f"{channel.neurons:,}",
        "ch. static": "" if channel is None else f"{channel.static:.2%}",
        "ch. dynamic": "" if channel is None else f"{channel.dynamic:.2%}",
        "ch. DNR": "" if channel is None else f"{channel.total:.2%}",
    }
    if bounds is not None:
        found = bounds.get(name)
        row["bound"] = "" if name == NETWORK else "not known" if found is None else f"{found:,.0f}"
    return row


def _count(samples: str) -> int | None:
    """A number of images, or None for all."""
    if samples == ALL:
        return None
    if not samples.isdecimal() or int(samples) < 1:
        raise InputError(f"samples = {samples!r}: a number of images of at least 1 is needed, or all")
    return int(samples)
