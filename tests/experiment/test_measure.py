"""Dead neurons as part of a study: measured before, during and after the trainings that are reported."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import activeprune as ap
from activeprune.cli import main
from activeprune.experiment.findings import rows_of
from activeprune.experiment.plan import Plan
from activeprune.experiment.plan.reading import read_study
from activeprune.experiment.plan.steps import Init, Measure, Prune, Train
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.experiment.store.artifacts import MASKS, RECORD, STATE, masks_of, probe_part, state_of
from activeprune.experiment.work.observer import Observer
from activeprune.training.duration import Duration
from tests.experiment.makers import Counting, contents

TINY = {"variants": ["plain", "ap_lite"], "cycles": 1, "epochs": "2ep"}
MEASURED = {**TINY, "measure": "dnr", "probe_every": "1ep"}


def run_of(folder: Path, **changes) -> Run:
    return started("smoke", folder / "run", changes={**MEASURED, **changes})


def gone(folder: Path, **changes) -> Run:
    run = run_of(folder, **changes)
    run.go()
    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return gone(tmp_path_factory.mktemp("finished"))


def plan(name: str, **changes) -> Plan:
    return Plan(read_study(name, changes))


def test_every_reported_network_is_measured_twice_and_nothing_else_changes() -> None:
    without, measured = plan("smoke", cycles=2), plan("smoke", cycles=2, measure="dnr")
    extra = {key: step for key, step in measured.steps.items() if isinstance(step, Measure)}
    assert measured.steps.keys() - extra.keys() == without.steps.keys()
    ends = {cell.training.key for cell in measured.cells}
    starts = {(cell.training.start.key, cell.masks and cell.masks.key) for cell in measured.cells}
    assert len(extra) == len(ends) + len(starts)
    for cell in measured.cells:
        assert cell.before is not None
        assert cell.after is not None
        assert (cell.before.network, cell.after.network) == (cell.training.start, cell.training)
        assert cell.before.masks == cell.after.masks == cell.masks == cell.training.masks


def test_a_measurement_is_named_by_the_network_and_its_images_alone() -> None:
    def key(**changes) -> str:
        cell = next(cell for cell in plan("smoke", measure="dnr", **changes).cells if cell.cycle)
        assert isinstance(cell.before, Measure)
        return Measure(cell.training.training, 0, Init(cell.training.training, 0, 1), None, cell.before.images).key

    assert key() == key(lr=0.3) == key(batch=16) == key(epochs="3ep") == key(probe_every="5it")
    assert (
        len({key(), key(measure_images=10), key(network="resnet20"), key(data={"name": "digits", "limit": 100})}) == 4
    )


def test_the_rates_are_those_of_the_network_under_its_masks(finished: Run) -> None:
    store = finished.store
    for cell in finished.plan.cells:
        training = cell.training
        feed = training.training.feed(cell.seed)
        model = training.training.build(len(feed.classes), feed.channels, cell.seed, 1)
        masks = ap.Masks.dense(model) if cell.masks is None else masks_of(store.get(cell.masks.key, MASKS))
        for step in cell.measured.values():
            if isinstance(step.network, Train):
                model.load_state_dict(state_of(store.get(step.network.key, STATE)))
            else:
                fresh = training.training.build(len(feed.classes), feed.channels, cell.seed, step.network.cycle)
                model.load_state_dict(fresh.state_dict())
            masks.apply_(model)
            wanted = ap.dead_neurons(model, masks, feed.evaluation("train", feed.size))
            found = json.loads(store.get(step.key, RECORD))
            assert found["samples"] == feed.size
            assert found["unit"]["dead"] == wanted.unit.dead
            assert found["unit"]["dead_static"] == wanted.unit.dead_static
            assert found["channel"]["dead"] == wanted.channel.dead


def test_rows_and_report_tell_of_them(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for row in rows_of(finished.plan, finished.store):
        for when in ("before", "after"):
            for of in ("unit", "channel"):
                static, dynamic, total = (row[f"dnr_{when}_{of}_{what}"] for what in ("static", "dynamic", "total"))
                assert 0 <= static <= total <= 1
                assert total == static + dynamic
    assert main(["report", str(finished.out)]) == 0
    assert "unit dynamic" in capsys.readouterr().out
    assert main(["report", str(finished.out), "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert all(cell["dnr"]["after_unit_dynamic"]["seeds"] == 1 for cell in cells)


def test_what_a_probe_saw_is_in_the_store_and_in_the_folder(finished: Run) -> None:
    lines = [json.loads(line) for line in (finished.out / "dead_neurons.jsonl").read_text().splitlines()]
    steps = finished.plan.cells[0].training.training.feed(0).steps
    by_cell = {(line["variant"], line["cycle"]): [] for line in lines}
    for line in lines:
        by_cell[line["variant"], line["cycle"]].append(line["step"])
    assert by_cell == {(cell.variant, cell.cycle): [0, steps, 2 * steps] for cell in finished.plan.cells}
    cell = finished.plan.cells[-1]
    kept = json.loads(finished.store.get(cell.training.key, probe_part(Duration(1))))
    assert kept["images"] == cell.training.training.feed(0).size  # fewer than it would look at
    assert cell.after is not None
    whole = json.loads(finished.store.get(cell.after.key, RECORD))
    assert kept["probed"][-1]["unit"]["dynamic"] == whole["unit"]["dynamic"]


def test_a_training_that_was_not_looked_at_is_trained_again_and_comes_out_the_same(tmp_path: Path) -> None:
    first = started("smoke", tmp_path / "run", changes=TINY)
    first.go()
    before = contents(first.store.root)
    counting = Counting()
    second = run_of(tmp_path)
    second.go(counting)
    again = [step.key for step in counting.steps if isinstance(step, Train)]
    assert sorted(again) == sorted({cell.training.key for cell in second.plan.cells})
    assert not any(isinstance(step, Prune) for step in counting.steps)
    after = contents(second.store.root)
    manifests = {name for name in before if name.endswith("manifest.json")}
    assert all(after[name] == before[name] for name in before.keys() - manifests)
    third = Counting()
    run_of(tmp_path).go(third)
    assert third.steps == []


def test_packs_measure_and_look_as_one_training_after_the_other_does(finished: Run, tmp_path: Path) -> None:
    run = run_of(tmp_path)
    run.go(pack=3)
    assert contents(run.store.root) == contents(finished.store.root)


@pytest.mark.usefixtures("a_checkpoint_after_every_epoch")
def test_an_interrupted_study_ends_in_the_same_bytes(finished: Run, tmp_path: Path) -> None:
    run, seen = run_of(tmp_path), []

    class Stumbling(Observer):
        def epoch(self, step, epoch, epochs: int) -> None:
            seen.append(epoch)
            if len(seen) in (1, 4):
                raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run.go(Stumbling())
    run.go()
    assert contents(run.store.root) == contents(finished.store.root)


@pytest.mark.parametrize("keep", ["frontier", "records"])
def test_weights_are_kept_until_they_are_measured(finished: Run, tmp_path: Path, keep: str) -> None:
    run = gone(tmp_path, keep=keep)
    for step in run.plan.steps.values():
        if isinstance(step, Measure):
            assert run.store.get(step.key, RECORD) == finished.store.get(step.key, RECORD)
    assert run.plan.todo(run.store).missing == ()


def test_late_rewinding_is_looked_at_from_where_it_starts(tmp_path: Path) -> None:
    run, epochs = run_of(tmp_path, chain="rewind", rewind_epoch=1, variants="plain"), []

    class Noting(Observer):
        def epoch(self, step, epoch, epochs_in_all: int) -> None:
            epochs.append((step.key, epoch.epoch))

    run.go(Noting())
    assert len(epochs) == 3  # the first one, the rest of the dense training, and that of the pruned one
    steps = run.plan.cells[0].training.training.feed(0).steps
    lines = [json.loads(line) for line in (run.out / "dead_neurons.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["cycle"] == 0] == [0, steps, 2 * steps]
    assert [line["step"] for line in lines if line["cycle"] == 1] == [steps, 2 * steps]


def test_a_training_that_fails_blocks_its_measurement_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, lr=1e20, cycles=1, variants="plain")
    outcome = run.go()
    assert outcome.failed == ()
    assert any(isinstance(step, Measure) for step in outcome.blocked)
    rows = rows_of(run.plan, run.store)
    assert rows[0]["dnr_before_unit_dynamic"] is not None
    assert rows[0]["dnr_after_unit_dynamic"] is None


def test_measuring_can_leave_the_training_alone(tmp_path: Path) -> None:
    run = gone(tmp_path, probe_every="0ep", measure_images=10)
    assert not (run.out / "dead_neurons.jsonl").exists()
    measures = [step for step in run.plan.steps.values() if isinstance(step, Measure)]
    assert {json.loads(run.store.get(step.key, RECORD))["samples"] for step in measures} == {10}


def silent(num_classes: int = 10, in_channels: int = 1) -> nn.Module:
    """No activation of it can be dead."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * in_channels, 16), nn.Tanh(), nn.Linear(16, num_classes))


def test_a_network_without_activations_is_trained_all_the_same(tmp_path: Path) -> None:
    run = run_of(tmp_path, network="tests.experiment.test_measure:silent", variants="plain")
    outcome = run.go()
    assert all("calls no activation function" in line for line in outcome.failed)
    assert len(outcome.failed) == sum(isinstance(step, Measure) for step in run.plan.steps.values())
    assert all(row["accuracy"] is not None for row in rows_of(run.plan, run.store))
    assert (run.out / "dead_neurons.jsonl").read_text() == ""


def test_studies_of_a_grid_look_equally_often(tmp_path: Path) -> None:
    with pytest.raises(ap.InputError, match="probe_every cannot differ"):
        ap.run("smoke", tmp_path / "grid", set={**TINY, "measure": "dnr"}, grid={"probe_every": ["1ep", "2ep"]})


def test_its_keys_belong_to_it() -> None:
    for key, value in (("measure_images", 10), ("probe_every", "1ep")):
        with pytest.raises(ap.InputError, match="belong to measure"):
            read_study("smoke", {key: value})
    with pytest.raises(ap.InputError, match="measure"):
        read_study("smoke", {"measure": "everything"})


@pytest.mark.parametrize("name", ["dnr-resnet20", "dnr-vgg19", "figure1", "figure2", "table1", "table2"])
def test_the_papers_studies_measure(name: str) -> None:
    found = plan(name, seeds=1)
    assert all(len(cell.measured) == 2 for cell in found.cells)
    assert found.probe_every.keys() == {cell.training.key for cell in found.cells}


@pytest.mark.parametrize("name", ["dnr-resnet20", "dnr-vgg19", "figure1", "figure2"])
def test_the_papers_studies_run(name: str, tmp_path: Path) -> None:
    small = {
        "network": "resnet8", "data": {"name": "digits", "limit": 200}, "precision": "fp32", "augment": "none",
        "epochs": "2ep", "warmup": "0ep", "drops": [], "batch": 32, "seeds": 1, "cycles": 2, "report_cycles": [1, 2],
        "probe_every": "1ep",
    }  # fmt: skip
    run = started(name, tmp_path / "run", changes=small)
    outcome = run.go()
    assert outcome.failed == outcome.blocked == ()
    assert all(0 < row["dnr_after_unit_total"] < 1 for row in rows_of(run.plan, run.store))


def test_measuring_changes_no_random_number(tmp_path: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    gone(tmp_path, variants="plain")
    assert torch.equal(torch.get_rng_state(), before)
