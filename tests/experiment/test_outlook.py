"""What a dry run foretells: time from measured speeds, and disk by what is kept."""

import json
from pathlib import Path
from statistics import median

import pytest
import torch

import activeprune as ap
from activeprune.cli import main
from activeprune.experiment.outlook import outlook, unmeasured
from activeprune.experiment.plan import Plan
from activeprune.experiment.plan.reading import read_study
from activeprune.experiment.search import started
from activeprune.experiment.store import FolderStore
from activeprune.experiment.work import speed
from activeprune.experiment.work.speed import Speed, alike
from activeprune.machine import CPU, described, one_thread
from activeprune.training import Training
from activeprune.training.choosing import Engines

STATE_BYTES = sum(t.numel() * t.element_size() for t in ap.build("resnet20").state_dict().values())
MASK_BYTES = sum(m.numel() for m in ap.Masks.dense(ap.build("resnet20")).values()) // 8


def plan_of(**changes) -> Plan:
    return Plan(
        read_study(
            "table1", {"seeds": 1, "epochs": "10ep", "drops": [], "warmup": "0ep", "report_cycles": None, **changes}
        )
    )


def seconds(plan: Plan, processes: int, per_step: float = 2.0) -> float | None:
    training = plan.trainings[0].training
    speeds = {alike(training): Speed(per_step, 351)}
    return outlook(plan, FolderStore("/nowhere"), speeds, processes).seconds


def test_time_is_the_work_of_all_but_no_less_than_the_longest_chain() -> None:
    one = 10 * 351 * 2.0
    sequence = plan_of(variants=["plain"], cycles=3)  # T1 T2 T3 one after the other, and R1 R2 R3
    assert seconds(sequence, 1) == pytest.approx(6 * one)
    assert seconds(sequence, 2) == pytest.approx(4 * one)  # T1 T2 T3 R3
    several = plan_of(variants=["plain"], cycles=1, seeds=4)
    assert seconds(several, 4) == pytest.approx(2 * one)
    assert seconds(several, 2) == pytest.approx(4 * one)


def test_a_training_in_a_pack_takes_as_long_as_the_pack() -> None:
    """Eight at once take 1.2 s a step where one takes 0.5: a share of 0.15, but nobody is done sooner."""
    steps = 10 * 351

    def foretold(plan: Plan, processes: int = 1) -> float | None:
        speeds = {alike(plan.trainings[0].training): Speed(0.15, 351, {1: 0.5, 8: 1.2})}
        return outlook(plan, FolderStore("/nowhere"), speeds, processes).seconds

    full = plan_of(variants=["plain"], cycles=1, seeds=8)  # eight T1, then eight R1
    assert foretold(full) == pytest.approx(2 * 1.2 * steps)
    assert foretold(full, 4) == pytest.approx(2 * 1.2 * steps)
    several = plan_of(variants=["plain"], cycles=1, seeds=17)  # two packs and one alone, twice
    assert foretold(several) == pytest.approx(2 * (1.2 + 1.2 + 0.5) * steps)
    narrow = plan_of(variants=["plain"], cycles=3)  # T1; T2 and R1; T3 and R2; R3
    assert foretold(narrow) == pytest.approx((0.5 + 0.6 + 0.6 + 0.5) * steps)


def test_a_training_that_goes_on_from_its_first_epochs_counts_them_once() -> None:
    late = plan_of(method="imp", chain="rewind", rewind_epoch=4, variants=["plain"], cycles=1)
    assert seconds(late, 1) == pytest.approx((10 + 6) * 351 * 2.0)  # 4 + 6 of the dense one, 6 of the retraining


def test_iterations_count_as_such() -> None:
    assert seconds(plan_of(epochs="500it", variants=["plain"], cycles=1), 1) == pytest.approx(2 * 500 * 2.0)


def test_without_a_measurement_nothing_is_claimed() -> None:
    plan = plan_of(variants=["plain"])
    assert outlook(plan, FolderStore("/nowhere"), {}).seconds is None
    ((training, count),) = unmeasured(plan, FolderStore("/nowhere"), {}).items()
    assert training == plan.studies[0].training
    assert count == len(plan.trainings)


def test_of_trainings_that_are_alike_the_most_frequent_one_is_measured() -> None:
    store = FolderStore("/nowhere")
    few, many = (plan_of(variants=["plain"], seeds=seeds, lr=lr).studies[0] for seeds, lr in ((1, 0.1), (3, 0.2)))
    plan = Plan(few, many)
    assert unmeasured(plan, store, {}) == {many.training: len(Plan(many).trainings)}
    assert unmeasured(plan, store, {alike(few.training): Speed(1.0, 1)}) == {}


def test_trainings_are_alike_in_what_takes_time() -> None:
    base = {"network": "resnet8", "data": "digits", "lr": 0.1, "epochs": "3ep", "batch": 64}
    one = alike(Training.read(base))
    assert one == alike(Training.read({**base, "lr": 0.3, "epochs": "9ep", "weight_decay": 0.1}))
    for change in (
        {"batch": 32},
        {"network": "resnet20"},
        {"precision": "bf16"},
        {"data": {"name": "digits", "limit": 9}},
    ):
        assert one != alike(Training.read({**base, **change}))


@pytest.mark.parametrize(
    ("changes", "states"),
    [
        ({"keep": "all"}, 3 + 3),
        ({"keep": "records"}, 2),  # a trunk's state while plain goes on from it, and the one that is being made
        ({"keep": "frontier", "chain": "continue"}, 2),
        ({"keep": "all", "chain": "continue"}, 4),
    ],
)
def test_disk_is_what_is_kept_at_a_time(changes: dict, states: int) -> None:
    plan = plan_of(variants=["plain"], cycles=3, measure=[], **changes)
    small = 3 * MASK_BYTES + len(plan.trainings) * 10 * 250
    assert outlook(plan, FolderStore("/nowhere"), {}).disk == pytest.approx(states * STATE_BYTES + small, rel=0.03)


@pytest.mark.parametrize("measure", [[], ["dnr"]])
def test_the_disk_that_was_foretold_is_the_disk_that_was_used(tmp_path: Path, measure: list) -> None:
    run = started("smoke", tmp_path / "run", changes={"measure": measure})
    foretold = outlook(run.plan, run.store, {}).disk
    run.go()
    used = sum(size for entry in run.store.list() for size in entry.parts.values())
    assert foretold == pytest.approx(used, rel=0.1)


def test_speeds_are_those_of_this_machine(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes={"variants": ["plain"], "cycles": 1})
    run.go()
    found = speed.known(run.store, CPU)
    assert list(found) == [alike(run.study.training)]
    told = [run.store.provenance(step.key)["speed"] for step in run.plan.trainings]
    assert found[alike(run.study.training)].steps == told[0]["steps_per_epoch"] == 108 // 32
    with one_thread(CPU):
        here = described(torch.device("cpu"))
    assert {run.store.provenance(step.key)["machine"] for step in run.plan.trainings} == {here}
    elsewhere = FolderStore(tmp_path / "elsewhere")
    for number, speed_told in enumerate(told):
        elsewhere.put(f"{number:032x}", {"record.json": b"{}"}, {"machine": "an abacus", "speed": speed_told})
    assert speed.known(elsewhere, CPU) == {}


def test_speeds_of_packs_are_told_apart_by_their_size(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes={"variants": ["plain"], "cycles": 1, "seeds": 5})
    run.go(pack=3)
    found = speed.known(run.store, CPU)[alike(run.study.training)]
    told = [run.store.provenance(step.key) for step in run.plan.trainings]
    assert sorted(found.packs) == sorted({provenance["pack"] for provenance in told})
    assert found.most == 3
    shares = [provenance["speed"]["seconds_per_step"] for provenance in told if provenance["pack"] == 3]
    assert found.together(3) == pytest.approx(3 * median(shares))


def test_a_few_steps_are_timed_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["run", "smoke", "--out", str(tmp_path / "run"), "--dry-run", "--json", "--processes", "1"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] is None
    timed: list[Speed] = []

    def noting(training: Training, engines: Engines, planned: int) -> Speed:
        assert planned == len(Plan(read_study("smoke")).trainings)
        timed.append(measured(training, engines, planned))
        return timed[-1]

    measured = speed.measured
    monkeypatch.setattr(speed, "measured", noting)
    assert main([*arguments, "--measure"]) == 0
    told = json.loads(capsys.readouterr().out)
    (one,) = timed
    study = read_study("smoke")
    plan = Plan(study)
    assert told["seconds"] == pytest.approx(one.seconds * len(plan.trainings) * one.steps_of(study.training))
    assert not (tmp_path / "run").exists()
