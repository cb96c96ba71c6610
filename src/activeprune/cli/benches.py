"""`activeprune bench`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .. import machine
from ..bench import prune as bench_prune
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
    repeats: Annotated[int, typer.Option(min=1, help="Timed repetitions; the median counts.")] = 5,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, ...")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Time one global pruning step (score, select, new masks) against torch.nn.utils.prune."""
    place, rows = machine.device(device), []
    for row in bench_prune.run(network or list(bench_prune.SIZES), place, repeats):
        rows.append(row)
        print(f"{row.network}: {row.step} {row.seconds:.3f} s", file=sys.stderr, flush=True)
    if as_json:
        print_json({"machine": machine.described(place), "rows": [row.as_dict() for row in rows]})
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
