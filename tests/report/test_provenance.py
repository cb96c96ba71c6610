"""Every number of the page leads to the keys of what it was computed from: followed there, it is computed again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean, stdev

import pytest
from scipy.stats import ttest_rel

from activeprune.cli import main
from activeprune.experiment.plan.steps import Step, Train
from activeprune.experiment.runs import Run
from activeprune.experiment.store.records import measure_record, train_record
from activeprune.report.gathering import Gathered, gathered
from activeprune.report.trainings import Reported

from . import synthetic
from .pages import Element, Read, Row, page_of, provenance_rows
from .synthetic import run, undone

NUMBER = re.compile(r"[(<]? ?[+−]?\d|counted: \d")
OF_THE_PAPER = {"paper", "paper, dynamic"}  # heads of columns
VARIANTS = ["plain", "plain_rewind", "ap_lite", "ap_pro"]
CYCLES = [1, 2, 7, 13]  # that claims of the paper are about
SMALL = {"cycles": 13, "report_cycles": CYCLES, "seeds": 3, "variants": VARIANTS}
TABLES = {"accuracy", "paper", "paired", "paired_rates", "relative", "dead", "start", "effort", "sweep", "claims"}
MOVED = {"low": 0.0, "high": -0.03}  # accuracies of two runs, which differ in q alone


@dataclass
class Number:
    """A number of a table of the page, what stands beside it, and the places that its links lead to."""

    table: str
    head: str
    row: dict[str, str]
    text: str
    links: list[str]

    @property
    def is_the_papers(self) -> bool:
        return self.head in OF_THE_PAPER or self.row.get("variant", "").endswith(", paper")


def numbers(shown: Read) -> Iterator[Number]:
    """All that tables show, but for that of the provenance itself."""
    for table in shown.all("table"):
        if is_in_provenance(table):
            continue
        (head,) = table.all("thead")
        heads = [one.text for one in head.all("th")]
        for tr in table.all("tr")[1:]:
            cells = dict(zip(heads, tr.all("th", "td"), strict=True))
            row = {name: cell.text.replace("›", "") for name, cell in cells.items()}
            for name, cell in cells.items():
                if NUMBER.match(cell.text):
                    links = [one.attributes["href"].removeprefix("#") for one in cell.all("a")]
                    yield Number(table.attributes["class"], name, row, row[name], links)


def is_in_provenance(one: Element) -> bool:
    return any(parent.attributes.get("class") == "provenance" for parent in one.around)


def stored(name: str, by: float) -> Callable[[Reported], Reported]:
    """Keys that say whose they are, and accuracies that are those of no other run."""

    def change(one: Reported) -> Reported:
        key = f"{name}/{one.key}"
        keys = {of: f"{of}/{key}" for of in ("masks", "before", "after")}
        return replace(one, key=key, keys=keys, accuracy=one.accuracy + by * (1 + one.seed / 10))

    return change


@pytest.fixture(scope="module")
def runs() -> list[Gathered]:
    qs = {"low": 0.02, "high": 0.05}
    return [replace(run("table1", stored(name, by), q=qs[name], **SMALL), title=name) for name, by in MOVED.items()]


@pytest.fixture(scope="module")
def shown(runs: list[Gathered]) -> Read:
    return page_of(*runs, images=False)


def test_every_number_of_every_table_has_a_link_but_the_papers_own(shown: Read) -> None:
    found = list(numbers(shown))
    assert {one.table for one in found} == TABLES
    for one in found:
        assert bool(one.links) != one.is_the_papers, one


def test_every_link_leads_into_the_provenance_of_its_run(shown: Read) -> None:
    places = {one.attributes["id"]: one for one in shown.having("id")}
    for name in {name for one in numbers(shown) for name in one.links}:
        assert is_in_provenance(places[name])
        section = next(parent for parent in places[name].around if parent.tag == "section")
        assert section.attributes["id"] == re.sub(r"^r(\d+).*", r"run-\1", name)


def test_followed_to_its_keys_a_number_is_computed_again(shown: Read) -> None:
    """From the keys alone: in these runs a key says what was found under it."""
    places = {one.attributes["id"]: one for one in shown.having("id")}
    known: dict[str, list[Row]] = {}
    checked = set()
    for one in numbers(shown):
        if one.is_the_papers or one.table == "effort" or one.text.startswith("counted"):
            continue
        for name in one.links:
            known.setdefault(name, provenance_rows(shown, places[name]))
        assert one.text.startswith(computed(one, [known[name] for name in one.links])), one
        checked.add(one.table)
    assert checked == TABLES - {"effort"}


def computed(one: Number, sides: list[list[Row]]) -> str:
    """What a number should be, or begin with, given the trainings that it leads to."""
    kind = of_rate(one)
    when = "before" if one.table == "start" else "after"
    first, against = ([value(row, kind, when) for row in side] for side in (sides[0], sides[-1]))
    difference = fmean(first) - fmean(against)
    if one.head == "λ":
        density = 0.8 ** cell_of(sides[0][0].key)[2]
        return f"{100 * density:.{1 if density > 0.1 else 2}f} %"
    if one.head in ("difference", "unit dynamic − paper"):
        (printed,) = (one.row[head] for head in OF_THE_PAPER & one.row.keys())
        return signed(fmean(first) - float(printed.split(" ")[0]) / 100)
    if one.head == "seeds":
        return str(len({row.seed for row in sides[0]} & {row.seed for row in sides[-1]}))
    if one.table == "relative":
        text = signed(difference / fmean(against), 1)
        return text if one.text[0] != "(" else f"({text})"
    if one.table == "claims":
        return f"{signed(difference)} points over 3 seeds"
    if one.head == "95 % interval":
        return " to ".join(map(signed, ttest_rel(first, against).confidence_interval(0.95)))
    if one.head == "p (t)":
        return probability(ttest_rel(first, against).pvalue)
    if one.head == "p (signs)":
        return probability(signs([a - b for a, b in zip(first, against, strict=True)]))
    if one.head == "p (Holm)":
        return ""  # other comparisons have their part in it; those that it leads to are its own
    return (
        signed(difference) if one.table.startswith("paired") else f"{100 * fmean(first):.2f} ± {100 * stdev(first):.2f}"
    )


def of_rate(one: Number) -> tuple[str, str] | None:
    """The rate of dead neurons that a number is about, if it is."""
    if one.table == "paired_rates":
        return "unit", "dynamic"
    if (said := re.search(r"dynamic rate by (unit|channel)", one.row.get("statement", ""))) is not None:
        return said[1], "dynamic"
    found = re.match(r"(unit|channel) (static|dynamic)", one.head)
    return None if found is None else (found[1], found[2])


def value(row: Row, kind: tuple[str, str] | None, when: str) -> float:
    if kind is None:
        title, *cell = cell_of(row.key)
        return synthetic.accuracy(*cell) + MOVED[title] * (1 + cell[-1] / 10)
    of, what = kind
    measured, _, key = row.others[f"dead {when}"].partition("/")
    assert measured == when
    return synthetic.rates(*cell_of(key)[1:], at_start=when == "before")[of][what]


def cell_of(key: str) -> tuple[str, str, int, int]:
    """The run, variant, cycle and seed that a key of these runs says."""
    title, rest = key.split("/")
    variant, cycle, seed = rest.split("-")
    return title, variant, int(cycle), int(seed)


def signed(fraction: float, digits: int = 2) -> str:
    text = f"{100 * fraction:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]


def probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def signs(differences: list[float]) -> float:
    sums = [abs(sum(map(float.__mul__, differences, flips))) for flips in product((1.0, -1.0), repeat=3)]
    return fmean(total >= abs(sum(differences)) - 1e-12 for total in sums)


def test_effort_leads_to_all_trainings_that_are_counted() -> None:
    """Done or not, of the variant alone or of all of them."""
    half = run("table1", lambda one: one if one.cycle < 7 else undone(one), **SMALL)
    shown = page_of(half, images=False)
    lines = {}
    for one in numbers(shown):
        if one.table == "effort":
            (name,) = one.links
            variant, place = one.row["variant"], shown.named(name)
            pres = [place] if place.tag == "pre" else place.all("pre")
            listed = {line for pre in pres for line in pre.text.splitlines()}
            done = [line for line in listed if line.endswith("60.0 s")]
            assert one.row["trainings"] == str(len(listed))
            assert one.row["done"] == str(len(done)) == one.row["device time"].removesuffix(".0 min")
            assert len(listed) - len(done) == sum(line.endswith(" missing") for line in listed)
            lines[variant] = {line.split(" ")[0] for line in listed}
    for variant in VARIANTS:
        own = {f"{variant}-{cycle}-{seed}" for cycle, seed in product((0, *CYCLES), range(3))}
        assert lines[variant] == {"behind-all", *own}
    assert lines["all together"] == set().union(*(lines[variant] for variant in VARIANTS))


def test_a_density_that_nothing_was_found_of_leads_nowhere() -> None:
    """It is what it will be but for rounding; what is missing leads to the key that it will have."""
    shown = page_of(run("table1", undone, **SMALL), images=False)
    for one in numbers(shown):
        assert bool(one.links) == (one.table == "effort" or one.head in ("seeds", "evidence")), one
    missing = [one for one in shown.all("td") if one.text == "missing" and not is_in_provenance(one)]
    assert missing
    assert all(one.all("a") for one in missing)


def test_facts_and_figures_and_failures_lead_to_the_provenance(shown: Read) -> None:
    facts = {dd.around[-1].all("dt")[0].text: dd.all("a") for dd in shown.all("dd")}
    assert [link.attributes["href"] for link in facts["device time"]] == ["#r2"]
    assert facts["machines"]
    for caption in shown.all("figcaption"):
        assert "The trainings" in [one.text for one in caption.all("a")]
    broken = run("table1", lambda one: synthetic.failed(one) if one.seed == 1 else one, **SMALL)
    (gaps,) = (one for one in page_of(broken, images=False).all("ul") if one.attributes.get("class") == "gaps")
    links = {link.text.partition(": loss")[0]: link.attributes["href"] for link in gaps.all("a")}
    assert links["failed: ap_pro cycle 13 seed 1"] == "#r1-ap_pro-13"
    assert len(links) == len(VARIANTS) * (1 + len(CYCLES))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "smoke"
    changes = ["cycles=2", "report_cycles=[2]", "seeds=2", "measure=[dnr]", "variants=[plain,ap_pro]"]
    sets = [part for change in changes for part in ("--set", change)]
    assert main(["run", "smoke", "--out", str(out), "--processes", "1", "--quiet", *sets]) == 0
    return Run.opened(out)


def test_the_keys_of_a_real_run_are_those_of_its_store(real: Run) -> None:
    shown = page_of(gathered(real), images=False)
    for one in numbers(shown):
        variant = one.row.get("variant")
        if one.table == "effort" and variant in real.study.variants:
            expected = behind(cell.training for cell in real.plan.cells if cell.variant == variant)
            listed = [line.split(" ")[0] for line in shown.named(one.links[0]).text.splitlines()]
            assert sorted(listed) == sorted(expected)
            seconds = sum(real.store.provenance(key)["seconds"] for key in expected)
            assert one.row["device time"] == f"{seconds:.1f} s"
        elif one.table in ("accuracy", "dead", "start"):
            rows = provenance_rows(shown, shown.named(one.links[0]))
            records = [train_record(real.store, row.key) for row in rows]
            assert {row.seed for row in rows} == {0, 1}
            if one.table == "accuracy":
                assert one.text.startswith(f"{100 * fmean(record.accuracy for record in records):.2f} ± ")
            elif (kind := of_rate(one)) is not None:
                when = "dead before" if one.table == "start" else "dead after"
                rates = [measure_record(real.store, row.others[when])[kind[0]][kind[1]] for row in rows]
                assert one.text.startswith(f"{100 * fmean(rates):.2f} ± ")
    unreported = {step.key for step in real.plan.trainings} - {cell.training.key for cell in real.plan.cells}
    assert unreported
    assert unreported <= {line.split(" ")[0] for pre in shown.all("pre") for line in pre.text.splitlines()}


def behind(steps: Iterator[Step]) -> set[str]:
    """Whole trainings among steps and all that these read."""
    found: set[str] = set()
    for step in steps:
        if isinstance(step, Train) and step.last is None:
            found.add(step.key)
        found |= behind(iter(step.inputs.values()))
    return found
