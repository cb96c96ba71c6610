"""Runs that nobody computed, with numbers that can be worked out beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, sin
from typing import Any

from activeprune.experiment.plan.reading import read_study
from activeprune.report.gathering import Gathered
from activeprune.report.trainings import Reported, Work

WEIGHTS = (
    "conv.weight",
    *(f"blocks.{b}.conv{c}.weight" for b in range(9) for c in (1, 2)),
    "blocks.3.shortcut.0.weight",
    "blocks.6.shortcut.0.weight",
    "fc.weight",
)
RELUS = ("relu", *(f"blocks.{b}:relu{c}" for b in range(9) for c in ("", "#2")))
BETTER = {
    "plain": 0.0,
    "plain_rewind": 0.002,
    "ap_lite": 0.006,
    "ap_pro": 0.014,
    "ap_lite_literal": 0.008,
    "solo": -0.02,
    "no_rewind": -0.01,
}
SMALL = {"cycles": 2, "report_cycles": [1, 2], "seeds": 2, "variants": ["plain", "ap_pro"]}  # of a study, to be quick


def accuracy(variant: str, cycle: int, seed: int) -> float:
    lost = 0.10 * (1 - 0.8**cycle) ** 6
    return 0.917 - lost * (1 - 20 * BETTER[variant]) + 0.004 * (1 + cycle / 4) * sin(7 * seed + cycle + len(variant))


def rates(variant: str, cycle: int, seed: int, at_start: bool = False) -> dict[str, Any]:
    more = 1.3 if at_start else 1.0

    def of(scale: float) -> dict[str, Any]:
        layers = {
            name: {
                "static": scale * 0.002 * cycle**1.6 * place / len(RELUS),
                "dynamic": scale * (0.25 + 0.02 * place - 0.008 * cycle + 0.2 * BETTER[variant] * cycle),
            }
            for place, name in enumerate(RELUS)
        }
        jitter = 1 + 0.02 * sin(3 * seed + cycle)
        means = {what: jitter * sum(of[what] for of in layers.values()) / len(layers) for what in ("static", "dynamic")}
        return {**means, "total": sum(means.values()), "layers": layers}

    return {"samples": 100, "unit": of(more), "channel": of(0.05 * more), "unattributed": [], "companions": None}


def training(variant: str, cycle: int, seed: int, epochs: int = 100) -> Reported:
    density, final = 0.8**cycle, accuracy(variant, cycle, seed)
    after = rates(variant, cycle, seed)
    slope = [1 - exp(-6 * (epoch + 1) / epochs) for epoch in range(epochs)]
    return Reported(
        variant=variant,
        cycle=cycle,
        seed=seed,
        key=f"{variant}-{cycle}-{seed}",
        density=density,
        accuracy=final,
        best_epoch=epochs - 1,
        epochs=tuple(
            {
                "epoch": epoch,
                "step": 352 * (epoch + 1),
                "lr": 0.03,
                "train_loss": 2.3 - 2.1 * done * final,
                "train_accuracy": done * final,
                "validation_loss": 2.3 - 2 * done * final,
                "validation_accuracy": done * final + 0.004 * sin(9 * epoch + seed),
                "test_accuracy": done * final,
            }
            for epoch, done in enumerate(slope)
        ),
        before=rates(variant, cycle, seed, at_start=True),
        after=after,
        probes=tuple(
            {
                "step": 352 * epoch,
                **{of: {"static": 0.0, "dynamic": after[of]["dynamic"] * (1.3 - 0.3 * epoch / epochs), "layers": {}}
                   for of in ("unit", "channel")},
            }
            for epoch in range(0, epochs + 1, 2)
        ),
        layers={} if cycle == 0 else {n: density ** (0.4 + i / len(WEIGHTS)) for i, n in enumerate(WEIGHTS)},
    )  # fmt: skip


def run(study: str = "table1", change: Callable[[Reported], Reported] = lambda t: t, **changes: Any) -> Gathered:
    """A run of a study whose trainings are all there, unless `change` takes something away from them."""
    read = read_study(study, changes)
    cells = [(v, c, s) for s in read.seeds for v in read.variants for c in (0, *read.reported)]
    done = tuple(change(training(*cell)) for cell in cells)
    return Gathered(study, read, done, (*map(work, done), Work("behind-all", read.variants, 60.0)), ("a machine",))


def work(training: Reported) -> Work:
    return Work(training.key, (training.variant,), None if training.missing else 60.0)


def undone(training: Reported) -> Reported:
    return Reported(training.variant, training.cycle, training.seed, training.key)


def failed(training: Reported) -> Reported:
    return replace(training, accuracy=None, failure={"step": 3, "epoch": 0, "lr": 0.03, "loss": "nan"})
