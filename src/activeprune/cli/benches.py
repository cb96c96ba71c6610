"""`activeprune bench`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from .. import machine
from ..bench import dnr as bench_dnr
from ..bench import prune as bench_prune
from ..bench import train as bench_train
from ..core.errors import InputError
from ..training.probe import EVERY
from .show import AsJson, print_json, print_table

app = typer.Typer(
    help="Measure speed and memory, as ratios within one run.",
    epilog="Example:  activeprune bench prune --network vgg19",
    rich_markup_mode=None,
)


@app.command("prune", epilog="Example:  activeprune bench prune --network vgg19 --repeats 5")
def prune(
    network: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="vgg19 (20M weights) or vit_b16 (86M); both without it.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Timed repetitions; the median counts.")] = 5,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, ...")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Time one global pruning step (score, select, new masks) against torch.nn.utils.prune."""
    place, rows = machine.device(device), []
    for row in bench_prune.run(network or list(bench_prune.SIZES), place, repeats):
        rows.append(row)
        print(f"{row.network}: {row.step} {row.seconds:.3f} s", file=sys.stderr, flush=True)
    if as_json:
        print_json({"machine": machine.described(place), "rows": [asdict(row) for row in rows]})
        return
    shown = [
        {
            "network": row.network,
            "weights": f"{row.weights:,}",
            "step": row.step,
            "seconds": f"{row.seconds:.3f}",
            "× faster": f"{row.times_faster_than_torch:.1f}",
            "× magnitude": "" if row.times_global_magnitude is None else f"{row.times_global_magnitude:.1f}",
            "memory": "not measured" if row.extra_memory is None else f"{row.extra_memory:.2f}",
        }
        for row in rows
    ]
    print_table(shown, title=f"one pruning step ({machine.described(place)})")
    print(
        "× faster: than torch.nn.utils.prune; × magnitude: cost against global_magnitude; memory: peak extra / weights"
    )


@app.command("train", epilog="Example, on a GPU:  activeprune bench train --network resnet20 --replicas 1,8,32")
def train(
    network: Annotated[str, typer.Option(metavar="NAME", help="A network for 32 × 32 images.")] = "resnet20",
    replicas: Annotated[str, typer.Option(metavar="A,B,C", help="How many networks to train at once.")] = "1,8,32",
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Images a step and network.")] = 128,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, ...")] = "cuda",
    as_json: AsJson = False,
) -> None:
    """Time the training of many networks at once against a plain loop: data, augmentation and evaluation included."""
    place, rows = machine.device(device), []
    tell = partial(print, file=sys.stderr, flush=True)
    with machine.one_thread(place):  # as a study trains
        here = machine.described(place)
        for row in bench_train.run(network, _counts(replicas), batch, place, tell):
            rows.append(row)
            tell(f"{row.engine} {row.precision} × {row.replicas}: {row.images_per_second:,.0f} images/s")
    if as_json:
        print_json({"machine": here, "rows": [asdict(row) for row in rows]})
        return
    shown = [
        {
            "engine": row.engine,
            "precision": row.precision,
            "replicas": str(row.replicas),
            "images/s": f"{row.images_per_second:,.0f}",
            "× eager fp32": "" if row.times_eager_fp32 is None else f"{row.times_eager_fp32:.1f}",
            "× eager bf16": "" if row.times_eager_bf16 is None else f"{row.times_eager_bf16:.1f}",
            "evaluation": f"{row.evaluation:.0%}",
            "GPU memory": "" if row.gibibytes is None else f"{row.gibibytes:.1f} GiB",
            "floor": "not estimated" if row.floor is None else f"{row.floor:,.0f}",
        }
        for row in rows
    ]
    print_table(shown, title=f"training {network}, batch {batch} ({here})")
    print(
        "images/s: of all networks, with data, augmentation, evaluation and records; × eager: against the plain loop; "
        "evaluation: its share of the time; floor: what the memory's speed would allow"
    )


@app.command("dnr", epilog="Example:  activeprune bench dnr --network resnet20")
def dnr(
    network: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="resnet20 or vit_b16 (224 × 224 pixels); both without it.")
    ] = None,
    batches: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Batches in a pass [4 on a CPU, 11 and 8 on a GPU].")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Images a batch [128 and 8 on a CPU, 4096 and 128 on a GPU].")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Timed passes of each kind; medians count.")] = 5,
    replicas: Annotated[
        str, typer.Option(metavar="K,...", help="Networks trained at once while dead neurons are looked at.")
    ] = "1",
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, ...")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Time a pass that measures dead neurons against a plain forward pass over the same images, and what looking at
    them adds to a training.
    """
    place, rows = machine.device(device), []
    for row in bench_dnr.run(network or list(bench_dnr.SUBJECTS), place, batches, batch, repeats):
        rows.append(row)
        print(f"{row.network}: × {row.ratio:.2f}", file=sys.stderr, flush=True)
    looks = (
        list(bench_dnr.looks("resnet20", _counts(replicas), place)) if "resnet20" in (network or ["resnet20"]) else []
    )
    if as_json:
        found = {"rows": [asdict(row) for row in rows], "probes": [asdict(row) for row in looks]}
        print_json({"machine": machine.described(place), **found})
        return
    shown = [
        {
            "network": row.network,
            "images": f"{row.images:,}",
            "batch": f"{row.batch:,}",
            "plain": f"{row.plain:.3f} s",
            "measuring": f"{row.measuring:.3f} s",
            "× plain": f"{row.ratio:.2f}",
            "tracing": f"{row.tracing:.1f} s",
        }
        for row in rows
    ]
    print_table(shown, title=f"one pass over the images ({machine.described(place)})")
    print("measuring: with copies of the weights and all rates; tracing: once for an architecture, not in measuring")
    shown = [
        {
            "network": row.network,
            "engine": row.engine,
            "at once": f"{row.replicas}",
            "images": f"{row.images:,}",
            "a look": f"{1000 * row.look:.1f} ms",
            "between": f"{row.between:.2f} s",
            "share": f"{row.share:.2%}",
        }
        for row in looks
    ]
    if shown:
        print_table(shown, title=f"dead neurons during a training, every {EVERY}")
        print("for one network; between: epochs of 45,000 images, batch 128, with evaluation, from steps timed here")


def _counts(text: str) -> list[int]:
    """Whole numbers from "1,8,32"."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise InputError(f"replicas = {text!r}: whole numbers such as 1,8,32 are needed")
    return found
