"""Which of the paper's tables a study is compared with."""

from math import isclose

import pytest

from activeprune.experiment.plan.reading import read_grid, read_study, study_names
from activeprune.report.paper import published, tables
from activeprune.report.published import Published, accuracies, cycle_of, dead_rates

MATCHES = {  # a study that is not named here has no table in the paper
    **{f"table{number}": f"table{number}" for number in range(1, 7)},
    "resnet20-standard": "table1", "figure1": "table1", "figure2": "table2", "dnr-resnet20": "table1",
    "dnr-vgg19": "table2", "ablation-resnet20": "ablation_resnet20", "ablation-vgg19": "ablation_vgg19",
    "q-sweep-resnet20": "q_sweep_resnet20", "q-sweep-vgg19": "q_sweep_vgg19", "grid-search": "q_sweep_resnet20",
}  # fmt: skip


def name_of(found: Published | None) -> str | None:
    return None if found is None else found.name


@pytest.mark.parametrize("name", study_names())
def test_every_study_of_the_library_finds_its_table(name: str) -> None:
    assert {name_of(accuracies(study)) for study in read_grid(name).values()} == {MATCHES.get(name)}


@pytest.mark.parametrize("name", tables())
def test_every_printed_lambda_is_a_cycle(name: str) -> None:
    for row, cells in published()[name]["rows"].items():
        printed = [float(row.removeprefix("lambda_"))] if row.startswith("lambda") else list(cells)
        for one in printed:
            percent = float(one["lambda"] if isinstance(one, dict) else one)
            power = 100 * 0.8 ** cycle_of(percent)
            assert abs(power - percent) < 0.1 or percent == 5.72


@pytest.mark.parametrize("name", [f"table{number}" for number in range(1, 7)])
def test_a_table_has_a_number_for_every_reported_cycle(name: str) -> None:
    study, found = read_study(name), accuracies(read_study(name))
    assert found is not None
    assert found.runs == 5
    assert {variant: set(cells) for variant, cells in found.rows.items()} == {
        variant: {0, *study.reported} for variant in ("plain", "ap_lite", "ap_pro")
    }


def test_numbers_are_the_printed_ones_as_fractions() -> None:
    found = accuracies(read_study("table1"))
    assert found is not None
    value = found.value("ap_pro", 13)
    assert value is not None
    assert (value.mean, value.std, value.printed) == (0.841, 0.011, 5.72)
    assert found.value("plain_rewind", 13) is None
    swept = accuracies(read_grid("q-sweep-vgg19")["q=0.05"])
    assert swept is not None
    assert isclose(swept.rows["ap_lite"][6].mean, 0.871)


def test_dead_neuron_rates_are_found_by_network_data_and_method() -> None:
    found = dead_rates(read_study("dnr-vgg19"))
    assert found is not None
    assert found.rows["plain"][1].mean == 0.098
    assert found.rows["ap_lite"][7].mean == 0.044
    assert dead_rates(read_study("dnr-vgg19", {"method": "lamp"})) is None
    assert dead_rates(read_study("table3")) is None


def test_other_settings_are_named() -> None:
    found = accuracies(read_study("table1", {"epochs": "3ep", "warmup": "0ep", "drops": [], "data.limit": 500}))
    assert found is not None
    (note,) = [note for note in found.notes if "not the paper's settings" in note]
    for part in ("epochs 3ep instead of 100ep", "data.limit 500 instead of none", "warmup 0ep instead of 55ep"):
        assert part in note
    same = accuracies(read_study("table1", {"data.path": "/somewhere", "seeds": 2}))
    assert same is not None
    assert not [note for note in same.notes if "settings" in note]


def test_odd_points_of_the_paper_are_said() -> None:
    found = accuracies(read_study("table1"))
    assert found is not None
    assert any("5.72" in note and "5.50" in note for note in found.notes)
    assert any("main text" in note for note in found.notes)
    few = accuracies(read_study("table1", {"cycles": 2, "report_cycles": [2]}))
    assert few is not None
    assert not any("5.50" in note for note in few.notes)


@pytest.mark.parametrize("changes", [{"p": 0.3}, {"method": "lamp"}, {"network": "resnet8"}, {"data": "cifar100"}])
def test_another_experiment_has_no_table(changes: dict) -> None:
    assert accuracies(read_study("table1", changes)) is None


def test_of_an_ablations_variants_in_a_main_table_only_they_are_compared_with_the_ablation() -> None:
    study = read_study("table1", {"variants": ["plain", "ap_lite", "ap_pro", "no_rewind"]})
    found, main, ablation = accuracies(study), accuracies(read_study("table1")), read_study("ablation-resnet20")
    other = accuracies(ablation)
    assert found is not None
    assert main is not None
    assert other is not None
    assert found.name == "table1"
    assert found.rows == {**main.rows, "no_rewind": other.rows["no_rewind"]}
    assert any("no_rewind are from its ablation" in note for note in found.notes)
    assert [found.table_of(variant) for variant in study.variants] == [*["table1"] * 3, "ablation_resnet20"]
