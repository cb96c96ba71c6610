"""Dense networks of one training, many seeds at once: how well does it do before anything is pruned?

    python examples/dense.py resnet20-standard --seeds 8 --path DIR

Any study that `activeprune run` takes will do, for the training in it. On a GPU the networks are trained side by side;
`--engine` chooses how. The plain loop trains one after the other; with `--first`, several processes share the seeds.
Every tenth epoch is told on standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from statistics import fmean, stdev

import torch

from activeprune.core.errors import InputError
from activeprune.data import Shelf
from activeprune.experiment.plan.reading import read_study
from activeprune.machine import described
from activeprune.training import Case
from activeprune.training.captured import Captured
from activeprune.training.choosing import Engines
from activeprune.training.engine import Eager, Engine
from activeprune.training.loop import train_together
from activeprune.training.result import Epoch
from activeprune.training.unavailable import EngineUnavailable


def main() -> None:
    """Trains, and prints one line of JSON a seed and a summary."""
    parser = _parser()
    options = parser.parse_args()
    if options.seeds < 1 or options.first < 0:
        parser.error("--seeds begins at 1, --first at 0")
    try:
        trained(options)
    except (InputError, EngineUnavailable) as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="resnet20-standard, resnet20-paper, table1, smoke, ... or a YAML file")
    parser.add_argument("--seeds", type=int, default=8, help="how many [8]")
    parser.add_argument("--first", type=int, default=0, help="the first of them [0]")
    parser.add_argument("--path", "--data", dest="path", help="the folder where the data are")
    parser.add_argument("--epochs", help="instead of the training's own: 20, 20ep or 500it, at one learning rate")
    parser.add_argument("--engine", choices=["best", "captured", "eager"], default="best")
    return parser


def trained(options: argparse.Namespace) -> None:
    """All seeds of a training."""
    changes = {"data.path": options.path} if options.path else {}
    changes |= {"epochs": options.epochs, "warmup": "0ep", "drops": []} if options.epochs else {}
    training = read_study(options.study, changes).training
    dataset = training.dataset()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    engine: Engine = Eager(training, device)
    if options.engine == "captured":
        engine = Captured(training, Shelf(dataset, device), device)
    elif options.engine == "best":
        engine = Engines(device, tell=print).engine(training, dataset, options.seeds)
    where = str(device) if isinstance(engine, Eager) else "cpu"

    began = time.perf_counter()
    cases = []
    seeds = range(options.first, options.first + options.seeds)
    for seed in seeds:
        start = training.build(len(dataset.classes), dataset.channels, seed).state_dict()
        feed = training.feed(seed, where, dataset=dataset)
        cases.append(Case(feed, start, after_epoch=partial(_progress, seed, began)))
    results = train_together(training, cases, engine)
    seconds = time.perf_counter() - began

    for seed, result in zip(seeds, results, strict=True):
        last = result.epochs[-1].test_accuracy
        print(json.dumps({"seed": seed, "early_stop": result.accuracy, "last": last, "best": result.best.epoch}))
    for what, found in (
        ("early-stop", [result.accuracy for result in results]),
        ("last epoch", [result.epochs[-1].test_accuracy for result in results]),
    ):
        spread = f" ± {100 * stdev(found):.2f}" if len(found) > 1 else ""
        print(f"{what}: {100 * fmean(found):.2f}{spread} %")
    shown = sum(result.epochs[-1].step for result in results) * training.batch
    print(f"{type(engine).__name__}, {described(device)}: {seconds:.0f} s, {shown / seconds:,.0f} images/s in all")


def _progress(seed: int, began: float, epoch: Epoch, _: object) -> None:
    if (epoch.epoch + 1) % 10 == 0:
        accuracy = f"{100 * epoch.validation_accuracy:.1f} % of the validation images"
        seconds = time.perf_counter() - began
        print(f"seed {seed}: {epoch.epoch + 1} epochs, {accuracy}, {seconds:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
