"""Which of the paper's tables a study is to be compared with, and how far it is the same experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import log
from typing import Any

from ..experiment.findings import Spread
from ..experiment.plan.reading import read_study
from ..experiment.plan.study import Study
from .paper import published

SHARE = 0.20  # that the paper removes in each cycle
PAPER_NETWORKS = {"vgg19_139m": "vgg19", "vit_b16": "vit_b16_384"}  # ours: the paper's
PAPER_DATA = {"imagefolder": "imagenet"}
SWEEP = "q_sweep"
OF_THE_RUN = {"path", "content"}  # of data: where they are
COMPARED = ("which_chain", "q", "rule", "scope", "retrain", "from_epoch", "movement_from", "include", "exclude")


@dataclass(frozen=True)
class Value:
    """A printed number: a fraction, its standard deviation where there is one, and λ as printed, in per cent."""

    mean: float
    std: float | None
    printed: float


@dataclass(frozen=True)
class Published:
    """A table of the paper by variant and cycle; `runs` seeds are behind each number, `notes` what to know of it.

    `borrowed` are variants whose numbers stand in another table: by variant that table's name.
    """

    name: str
    rows: Mapping[str, Mapping[int, Value]]
    runs: int
    notes: tuple[str, ...]
    borrowed: Mapping[str, str] = field(default_factory=dict)

    def table_of(self, variant: str) -> str:
        """The table that a variant's numbers stand in."""
        return self.borrowed.get(variant, self.name)

    def value(self, variant: str, cycle: int) -> Value | None:
        """A printed number, or None where the paper has none."""
        return self.rows.get(variant, {}).get(cycle)

    def spread(self, variant: str, cycle: int) -> Spread | None:
        """The same with the number of seeds."""
        value = self.value(variant, cycle)
        return None if value is None else Spread(value.mean, value.std, self.runs)


def cycle_of(percent: float) -> int:
    """The cycle that leaves so many per cent of the weights, the nearest power of 0.8.

    >>> [cycle_of(percent) for percent in (100, 64.0, 40.9, 8.59, 5.72)]
    [0, 2, 4, 11, 13]
    """
    return round(log(percent / 100) / log(1 - SHARE))


def experiment_of(study: Study) -> tuple[str, str, str]:
    """Network, data and method of a study in the paper's words."""
    network, data = study.training.network.name, study.training.data.name
    return PAPER_NETWORKS.get(network, network), PAPER_DATA.get(data, data), study.method.name


def accuracies(study: Study) -> Published | None:
    """The paper's accuracies for this network, data and method; None where it has none.

    A study with an ablation's variants is compared with the ablation's table, if that has more of its cells than the
    one of tables 1-6; one of plain and AP-Lite with the q sweep, if it has a q of the sweep that is not the usual one,
    or reports no other cycles; any other with tables 1-6, and its variants that only the ablation has with that.
    """
    named = _tables(study)
    chosen = _chosen(study, named)
    if chosen is None or study.p != SHARE:
        return None
    table = named[chosen]
    rows = _sweep_rows(table, study.q) if chosen.startswith(SWEEP) else _rows(table)
    found = _published(study, chosen, table, rows)
    ablation = _first(named, "ablation")
    if ablation is None or not chosen.startswith("table"):
        return found
    return _beside(found, study, ablation, _rows(named[ablation]))


def dead_rates(study: Study) -> Published | None:
    """The paper's dynamic dead-neuron rates for this network, data and method; None where it has none."""
    for name, table in published().items():
        if name.startswith("dynamic_dnr") and _same(study, table, next(iter(table["rows"]))) and study.p == SHARE:
            rows = {
                _variant(row, study.method.name): {
                    cycle_of(float(printed)): Value(_fraction(rate), None, float(printed))
                    for printed, rate in rates.items()
                }
                for row, rates in table["rows"].items()
            }
            return _published(study, name, table, rows)
    return None


def differences(study: Study, table: str) -> tuple[str, ...]:
    """The settings in which a study is not the paper's experiment as its own study has it: "lr 0.1 instead of 0.03"."""
    theirs = _own_study(table)
    here, there = (_flat(one.training.model_dump(mode="json")) for one in (study, theirs))
    keys = [key for key in here | there if here.get(key) != there.get(key)]
    of_training = [f"{key} {_text(here.get(key))} instead of {_text(there.get(key))}" for key in keys]
    of_study = [
        f"{_NAMES.get(key, key)} {_text(getattr(study, key))} instead of {_text(getattr(theirs, key))}"
        for key in COMPARED
        if getattr(study, key) != getattr(theirs, key)
    ]
    return (*of_training, *of_study)


_NAMES = {"which_chain": "chain", "from_epoch": "rewind_epoch"}


def _tables(study: Study) -> dict[str, dict[str, Any]]:
    """The paper's tables of accuracies for the network, data and method of a study."""
    found = ((name, table) for name, table in published().items() if isinstance(table, dict) and "method" in table)
    return {name: table for name, table in found if _same(study, table, table["method"])}


def _same(study: Study, table: Mapping[str, Any], method: str) -> bool:
    return experiment_of(study) == (table["network"], table["dataset"], method)


def _chosen(study: Study, named: Mapping[str, Mapping[str, Any]]) -> str | None:
    ablation, main = _first(named, "ablation"), _first(named, "table")
    if ablation is not None and {"solo", "no_rewind"} & set(study.variants):
        return max((main, ablation), key=lambda name: 0 if name is None else _shared(study, named[name]))
    sweep = _first(named, SWEEP)
    if sweep is not None and "ap_lite" in study.variants and set(study.variants) <= {"plain", "ap_lite"}:
        cells = _sweep_rows(named[sweep], study.q)[named[sweep]["variant"]]
        if cells and (study.q != _own_study(named[sweep]["training_of"]).q or set(study.reported) <= cells.keys()):
            return sweep
    return main


def _first(named: Iterable[str], kind: str) -> str | None:
    return next((name for name in named if name.startswith(kind)), None)


def _shared(study: Study, table: Mapping[str, Any]) -> int:
    """How many cells of a table a study reports."""
    return sum(len(cells.keys() & set(study.reported)) for row, cells in _rows(table).items() if row in study.variants)


def _beside(found: Published, study: Study, ablation: str, rows: Mapping[str, Mapping[int, Value]]) -> Published:
    """The same with the ablation's numbers of those variants that only it has."""
    asked = set[str](study.variants) - found.rows.keys()
    more = {row: cells for row, cells in rows.items() if row in asked}
    if not more:
        return found
    note = f"the paper's numbers of {', '.join(more)} are from its ablation, whose AP-Lite is not that of {found.name}"
    borrowed = dict.fromkeys(more, ablation)
    return replace(found, rows={**found.rows, **more}, notes=(*found.notes, note), borrowed=borrowed)


def _rows(table: Mapping[str, Any]) -> dict[str, dict[int, Value]]:
    return {
        _variant(row): {cycle_of(cell["lambda"]): _value(cell, float(cell["lambda"])) for cell in cells}
        for row, cells in table["rows"].items()
    }


def _sweep_rows(table: Mapping[str, Any], q: float) -> dict[str, dict[int, Value]]:
    printed = {float(row.removeprefix("lambda_")): cells for row, cells in table["rows"].items()}
    own = {
        cycle_of(percent): _value(cell, percent)
        for percent, cells in printed.items()
        for cell in cells
        if abs(cell["q"] / 100 - q) < 1e-9
    }
    return {table["variant"]: own}


def _value(cell: Mapping[str, Any], printed: float) -> Value:
    return Value(_fraction(cell["mean"]), _fraction(cell["std"]), printed)


def _fraction(percent: float) -> float:
    return round(percent / 100, 6)


def _variant(row: str, method: str = "") -> str:
    names: dict[str, str] = published()["names"]
    return "plain" if row == method else names.get(row, row)


def _published(study: Study, name: str, table: Mapping[str, Any], rows: Mapping[str, Mapping[int, Value]]) -> Published:
    runs = published()[table.get("training_of", name)]["runs"]
    return Published(name, rows, runs, tuple(_notes(study, name, table, rows)))


def _notes(study: Study, name: str, table: Mapping[str, Any], rows: Mapping[str, Mapping[int, Value]]) -> list[str]:
    notes = []
    other = differences(study, table.get("training_of", name))
    if name.startswith(SWEEP):
        other = tuple(one for one in other if not one.startswith("q "))
    if other:
        notes.append(f"not the paper's settings: {'; '.join(other)}")
    if 13 in study.reported and any(13 in cells for cells in rows.values()):
        notes.append("the paper's λ = 5.72 % is taken for cycle 13, which leaves 0.8^13 = 5.50 %")
    if (said := published()["main_text_differs"].get(name)) is not None:
        notes.append(f"in the paper {said}".replace("+-", "±"))
    if table["network"] == "vgg19":
        notes.append("the paper prints 139M parameters for VGG-19; that of the recipe it cites has 20M")
    if "training_of" in table and "metric" not in table:
        notes.append(f"the paper's AP-Lite numbers here are not those of its {table['training_of']}")
    if table["dataset"] == "imagenet":
        notes.append("the folder of images is taken for ImageNet")
    return notes


@cache
def _own_study(table: str) -> Study:
    """This library's study of one of tables 1-6."""
    return read_study(table)


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of `network` and `data` as "data.limit" and so on."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": own for inner, own in value.items() if inner not in OF_THE_RUN}
        else:
            flat[key] = value
    return flat


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_text(one) for one in value) + "]"
    return "none" if value is None else str(value)
