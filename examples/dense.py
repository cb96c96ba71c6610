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
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean, stdev

import torch

from activeprune.core.errors import InputError
from activeprune.data import Dataset, Shelf
from activeprune.experiment.plan.reading import read_study
from activeprune.machine import described
from activeprune.training import Case, Training
from activeprune.training.captured import Captured
from activeprune.training.choosing import Engines
from activeprune.training.engine import Eager, Engine
from activeprune.training.loop import train_together
from activeprune.training.result import Epoch, Result
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
    engines = Engines(device, tell=_say)
    choose: dict[str, Callable[[], Engine]] = {
        "best": lambda: engines.engine(training, dataset, options.seeds),
        "captured": lambda: Captured(training, Shelf(dataset, device), device),
        "eager": lambda: Eager(training, device),
    }
    seeds = range(options.first, options.first + options.seeds)
    while True:
        engine = choose[options.engine]()
        began = time.perf_counter()
        try:
            results = train_together(training, _cases(training, dataset, engine, seeds), engine)
            break
        except EngineUnavailable as error:  # seen only when it was tried
            if options.engine != "best":
                raise
            engines.refuse(training, type(engine), str(error))
    seconds = time.perf_counter() - began
    ended = _told(seeds, results)
    shown = sum(result.epochs[-1].step for result in ended) * training.batch
    print(f"{type(engine).__name__}, {described(device)}: {seconds:.0f} s, {shown / seconds:,.0f} images/s in all")
    if len(ended) < len(results):
        sys.exit(1)


def _told(seeds: Sequence[int], results: Sequence[Result]) -> list[Result]:
    """Those that came to their end, once all that is known of them has been printed."""
    ended = []
    for seed, result in zip(seeds, results, strict=True):
        if result.failure is not None:
            _say(f"seed {seed} failed: {result.failure}")
            continue
        ended.append(result)
        last = result.epochs[-1].test_accuracy
        print(json.dumps({"seed": seed, "early_stop": result.accuracy, "last": last, "best": result.best.epoch}))
    if not ended:
        raise InputError("no training came to its end")
    for what, found in (
        ("early-stop", [result.accuracy for result in ended]),
        ("last epoch", [result.epochs[-1].test_accuracy for result in ended]),
    ):
        spread = f" ± {100 * stdev(found):.2f}" if len(found) > 1 else ""
        print(f"{what}: {100 * fmean(found):.2f}{spread} %")
    return ended


def _cases(training: Training, dataset: Dataset, engine: Engine, seeds: Sequence[int]) -> list[Case]:
    where = str(engine.device) if isinstance(engine, Eager) else "cpu"
    cases = []
    for seed in seeds:
        start = training.build(len(dataset.classes), dataset.channels, seed).state_dict()
        feed = training.feed(seed, where, dataset=dataset)
        cases.append(Case(feed, start, after_epoch=partial(_progress, seed, time.perf_counter())))
    return cases


def _progress(seed: int, began: float, epoch: Epoch, _: object) -> None:
    if (epoch.epoch + 1) % 10 == 0:
        accuracy = f"{100 * epoch.validation_accuracy:.1f} % of the validation images"
        seconds = time.perf_counter() - began
        _say(f"seed {seed}: {epoch.epoch + 1} epochs, {accuracy}, {seconds:.0f} s")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
