"""What stands under results/ follows from the records there."""

import csv
import gzip
import json
import re
import runpy
import shutil
import subprocess
import sys
from collections import defaultdict
from itertools import product
from pathlib import Path
from statistics import mean, stdev

import pytest
from scipy import stats

from activeprune.cli import main

RESULTS = Path(__file__).parent.parent / "results"
FOLDERS = sorted(path.parent.name for path in RESULTS.glob("*/records.json.gz"))


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request: pytest.FixtureRequest) -> Path:
    return RESULTS / request.param


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def accuracies(folder: Path) -> dict[tuple[str, int], dict[int, float]]:
    """By variant and cycle, then by seed: of each training's epochs, the test accuracy where validation is best."""
    (run,) = json.loads(gzip.decompress((folder / "records.json.gz").read_bytes()))["runs"]
    found: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for variant, cycle, seed, place in run["cells"]:
        epochs = run["trainings"][place]["epochs"]
        if validation := epochs.get("validation_accuracy"):
            found[variant, cycle][seed] = epochs["test_accuracy"][validation.index(max(validation))]
    return found


def test_there_are_results() -> None:
    assert FOLDERS


def test_a_report_is_made_anew_from_its_records(folder: Path, tmp_path: Path) -> None:
    assert main(["report", str(folder), "--out", str(tmp_path), "--no-figures", "--no-page"]) == 0
    for name in ("tables.md", "tables.tex"):
        assert (tmp_path / name).read_text() == (folder / name).read_text()
    for name in ("tables.csv", "paired.csv", "dead_neurons.csv"):
        again, kept = rows_of(tmp_path / name), rows_of(folder / name)
        assert len(again) == len(kept) > 0
        assert all(same(one[column], other[column]) for one, other in zip(again, kept, strict=True) for column in one)


def same(one: str, other: str) -> bool:
    """But for the last digits of a number, which a machine may round otherwise."""
    if one == other:
        return True
    numbers = [[float(word.rpartition("=")[2]) for word in text.split()] for text in (one, other)]
    return numbers[0] == pytest.approx(numbers[1], rel=1e-9)


def test_means_and_deviations_are_those_of_the_epochs(folder: Path) -> None:
    found = accuracies(folder)
    for row in rows_of(folder / "tables.csv"):
        values = [*found.get((row["variant"], int(row["cycle"])), {}).values()]
        assert int(row["seeds"]) == len(values)
        if len(values) > 1:
            assert float(row["mean"]) == pytest.approx(mean(values))
            assert float(row["std"]) == pytest.approx(stdev(values))


def test_paired_differences_are_scipys(folder: Path) -> None:
    found = accuracies(folder)
    rows = rows_of(folder / "paired.csv")
    assert rows
    for row in rows:
        ours, theirs = (found[row[side], int(row["cycle"])] for side in ("variant", "against"))
        seeds = ours.keys() & theirs.keys()
        tested = stats.ttest_rel([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])
        low, high = tested.confidence_interval(0.95)
        wanted = [float(row[name]) for name in ("p", "low", "high")]
        assert wanted == pytest.approx([tested.pvalue, low, high])


def test_dead_neuron_rates_are_means_of_those_that_were_measured(folder: Path) -> None:
    (run,) = json.loads(gzip.decompress((folder / "records.json.gz").read_bytes()))["runs"]
    rows = {(row["variant"], int(row["cycle"])): row for row in rows_of(folder / "dead_neurons.csv")}
    assert rows.keys() == {(variant, cycle) for variant, cycle, *_ in run["cells"]}
    for cell, row in rows.items():
        own = [run["trainings"][place] for variant, cycle, _, place in run["cells"] if (variant, cycle) == cell]
        for when, prefix in (("after", ""), ("before", "start_")):
            for of, what in product(("unit", "channel"), ("static", "dynamic")):
                assert float(row[f"{prefix}{of}_{what}"]) == pytest.approx(mean(one[when][of][what] for one in own))


def fill(*arguments: str | Path) -> str:
    """What the tool complains of; nothing where all is well."""
    tool = RESULTS.parent / "tools" / "results.py"
    done = subprocess.run([sys.executable, tool, *arguments], capture_output=True, text=True)
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr


def test_the_tables_of_both_overviews_are_those_of_the_records() -> None:
    assert fill("--check", RESULTS.parent / "README.md", RESULTS / "README.md") == ""


def test_a_table_that_is_not_up_to_date_is_seen_and_filled_in(tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "table1", tmp_path / "table1")
    page = tmp_path / "README.md"
    text = "before\n<!-- table1 paired: ap_pro − plain -->\n| old |\n<!-- end -->\nafter\n"
    page.write_text(text, encoding="utf-8")
    assert "not those of the records" in fill("--check", page)
    assert page.read_text(encoding="utf-8") == text
    assert fill(page) == fill("--check", page) == ""
    first, *table, last, end = page.read_text(encoding="utf-8").splitlines()
    assert (first, last, end) == ("before", "<!-- end -->", "after")
    assert {line.split(" | ")[0] for line in table[3:]} == {"| ap_pro − plain"}


@pytest.mark.parametrize(
    ("marker", "complaint"),
    [
        ("table1 none", "the tables are accuracy, "),
        ("table1 paired: one − another", "there is no row one − another"),
        ("nowhere paired", "records.json.gz"),
    ],
)
def test_what_a_page_asks_for_in_vain_is_named(tmp_path: Path, marker: str, complaint: str) -> None:
    (tmp_path / "table1").symlink_to(RESULTS / "table1")
    (tmp_path / "README.md").write_text(f"<!-- {marker} -->\n<!-- end -->\n", encoding="utf-8")
    said = fill(tmp_path / "README.md")
    assert complaint in said
    assert len(said.splitlines()) == 1


def test_every_number_of_the_overview_stands_in_a_table() -> None:
    """Of those with a decimal point, which nobody writes without having measured them."""
    text = re.sub(r"^    .*$", "", (RESULTS / "README.md").read_text(), flags=re.M)
    tables = "\n".join((RESULTS / name / "tables.md").read_text() for name in FOLDERS)
    known = set(re.findall(r"[−+]?\d+\.\d+", tables))
    known |= {one.lstrip("−+") for one in known}
    found = set(re.findall(r"[−+]?\d+\.\d+", text))
    assert found
    assert found <= known


@pytest.mark.parametrize("key", ["early_stop", "last"])
def test_the_page_of_dense_networks_says_what_their_accuracies_give(key: str) -> None:
    """Every row of its tables, from the accuracies of each seed."""
    agree = runpy.run_path(str(RESULTS.parent / "examples" / "agree.py"))
    sets = {path.stem: agree["seeds_in"](path) for path in (RESULTS / "resnet20-dense").glob("*.txt")}

    def chosen(name: str, seeds: str) -> dict[int, float]:
        first, last = map(int, seeds.split(" to "))
        return {seed: of for seed, of in agree["accuracies"](sets[name], key).items() if first <= seed <= last}

    page = (RESULTS / "resnet20-dense.md").read_text()
    _, _, rest = page.partition(f"| {agree['ACCURACIES'][key]} | seeds |")
    rows = [line.strip("| ").split(" | ") for line in rest.partition("\n\n")[0].splitlines()[2:]]
    assert len(rows) == 6
    for names, seeds, *numbers in rows:
        one, other = (chosen(*of) for of in zip(names.split(" - "), seeds.split(", "), strict=True))
        found = agree["compared"](one, other)
        assert re.findall(r"[+-]?\d\.\d\d", found.partition("; ")[2]) == re.findall(r"[+-]?\d\.\d\d", " ".join(numbers))
        for name, of in zip(names.split(" - "), (one, other), strict=True):
            engine = "eager, the plain loop" if name == "eager" else name
            if len(of) in (8, 32) and 0 in of:
                shown = f"{mean(of.values()):.2f} ± {stdev(of.values()):.2f}"
                assert re.search(rf"\| {engine} \| {len(of)} \|.* {shown} \|", page)
