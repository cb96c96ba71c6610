"""Do two sets of trainings come out alike? From what `dense.py` printed of each, say with two engines:

    python examples/dense.py resnet20-paper --path DIR > fused.txt
    python examples/dense.py resnet20-paper --path DIR --engine captured > captured.txt
    python examples/agree.py fused.txt captured.txt

Their difference with its interval, means by Welch's t-test and the Mann-Whitney test, spreads by an F-test of the
variances, and seeds that both have by a paired t-test. A difference is above 0 where the first set is better.
"""

from __future__ import annotations

import argparse
import json
from math import nan
from pathlib import Path
from statistics import fmean, stdev, variance

from scipy import stats

from activeprune.report.statistics import paired

ACCURACIES = {"early_stop": "early-stop", "last": "last epoch"}


def main() -> None:
    """Prints means, spreads and p-values."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("one", "other"):
        parser.add_argument(name, type=Path, help="a file with what dense.py printed, of one process or several")
    options = parser.parse_args()
    try:
        one, other = seeds_in(options.one), seeds_in(options.other)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    for key, name in ACCURACIES.items():
        print(f"{name}: {compared(accuracies(one, key), accuracies(other, key))}")


def seeds_in(path: Path) -> dict[int, dict[str, float]]:
    """What was printed of each seed; lines that are no JSON are for people."""
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.startswith("{")]
    try:
        found = {line["seed"]: {key: float(line[key]) for key in ACCURACIES} for line in map(json.loads, lines)}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: its lines are not those of dense.py") from error
    if len(found) < len(lines):
        raise ValueError(f"{path}: a seed stands there twice")
    if len(found) < 2:
        raise ValueError(f"{path}: at least two seeds as dense.py prints them are needed")
    return found


def accuracies(of: dict[int, dict[str, float]], key: str) -> dict[int, float]:
    """In per cent, by seed; rounded, so that equal ones are equal to the tests of ranks."""
    return {seed: round(100 * line[key], 6) for seed, line in of.items()}


def compared(one: dict[int, float], other: dict[int, float]) -> str:
    """Both, their difference, and what chance would make of it, in a line."""
    a, b = list(one.values()), list(other.values())
    welch = stats.ttest_ind(a, b, equal_var=False)
    low, high = welch.confidence_interval()
    below = stats.f.cdf(variance(a) / (variance(b) or nan), len(a) - 1, len(b) - 1)
    same_seeds = paired(one, other)
    chances = {
        "Welch": welch.pvalue,
        "Mann-Whitney": stats.mannwhitneyu(a, b).pvalue,
        "F-test": 2 * min(below, 1 - below),
        "paired": same_seeds.p,
    }
    both = " and ".join(f"{fmean(values):.2f} ± {stdev(values):.2f} ({len(values)} seeds)" for values in (a, b))
    tests = ", ".join(f"{test} p = {p:.2f}" for test, p in chances.items() if p is not None)
    shared = "" if same_seeds.p is None else f" ({same_seeds.seeds} seeds)"
    return f"{both}; {fmean(a) - fmean(b):+.2f}, 95 % between {low:+.2f} and {high:+.2f}; {tests}{shared}"


if __name__ == "__main__":
    main()
