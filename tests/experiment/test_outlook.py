"""What a dry run foretells: time from measured speeds, and disk by what is kept."""

import json
from pathlib import Path
from statistics import median

import pytest
import torch

import activeprune as ap
from activeprune.cli import main
from activeprune.experiment.outlook import outlook
from activeprune.experiment.plan import Plan
from activeprune.experiment.plan.reading import read_study
from activeprune.experiment.search import started
from activeprune.experiment.store import FolderStore
from activeprune.experiment.work import speed
from activeprune.experiment.work.speed import Speed, Speeds
from activeprune.machine import CPU, described, one_thread
from activeprune.training import Training
from activeprune.training.choosing import Engines
from activeprune.training.duration import Duration
from activeprune.training.engine import Eager

STATE_BYTES = sum(t.numel() * t.element_size() for t in ap.build("resnet20").state_dict().values())
MASK_BYTES = sum(m.numel() for m in ap.Masks.dense(ap.build("resnet20")).values()) // 8


def plan_of(**changes) -> Plan:
    return Plan(
        read_study(
            "table1", {"seeds": 1, "epochs": "10ep", "drops": [], "warmup": "0ep", "report_cycles": None, **changes}
        )
    )


def seconds(plan: Plan, processes: int, per_step: float = 2.0) -> float | None:
    return outlook(plan, FolderStore("/nowhere"), speeds(plan, Speed(per_step, 351)), processes).seconds


def speeds(plan: Plan, speed: Speed) -> Speeds:
    """Of its first training, and so of all that are alike."""
    found = Speeds()
    found.add(plan.trainings[0].training, speed)
    return found


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
        known = speeds(plan, Speed(0.15, 351, {1: 0.5, 8: 1.2}))
        return outlook(plan, FolderStore("/nowhere"), known, processes).seconds

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
    assert outlook(plan_of(variants=["plain"]), FolderStore("/nowhere"), Speeds()).seconds is None


BASE = {"network": "resnet8", "data": "digits", "lr": 0.1, "epochs": "3ep", "batch": 64}


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ({"lr": 0.3, "epochs": "9ep", "weight_decay": 0.1}, True),
        ({"batch": 32}, False),
        ({"network": "resnet20"}, False),
        ({"precision": "bf16"}, False),
        ({"clip": 1.0}, False),
        ({"data": {"name": "digits", "limit": 9}}, False),
    ],
    ids=str,
)
def test_a_speed_is_that_of_trainings_whose_steps_take_the_same_time(change: dict, alike: bool) -> None:
    known = Speeds()
    known.add(Training.read(BASE), Speed(1.0, 20))
    assert (known.of(Training.read({**BASE, **change})) is not None) is alike


def test_packs_that_were_measured_apart_are_known_together() -> None:
    chosen, known = Training.read(BASE), Speeds()
    known.add(chosen, Speed(0.5, 20, {8: 4.0}))
    assert known.of(chosen).of_one is False
    known.add(chosen, Speed(0.6, 20, {1: 1.0, 2: 1.2}))
    assert known.of(chosen).packs == {1: 1.0, 2: 1.2, 8: 4.0}
    assert known.of(chosen).of_one
    assert Speed(1.0, 20).of_one


def test_a_training_that_is_long_enough_to_be_compiled_is_faster_than_a_short_one() -> None:
    short, long = (Training.read({**BASE, "precision": "bf16", "epochs": epochs}) for epochs in ("249ep", "250ep"))
    known = Speeds()
    known.add(short, Speed(2.0, 20))
    assert known.of(long) is None
    known.add(long, Speed(1.0, 20))
    assert [known.of(one).seconds for one in (short, long)] == [2.0, 1.0]
    assert known.of(short.model_copy(update={"epochs": Duration.read("4999it")})).seconds == 2.0


@pytest.mark.parametrize(
    ("engine", "lengths"), [("compiled", "250"), ("captured", "249"), ("fused", "249 250"), ("eager", "249 250")]
)
def test_speeds_in_a_store_are_those_of_an_engine(tmp_path: Path, engine: str, lengths: str) -> None:
    """Of the two that train any network, one is for long trainings and the other for short ones."""
    trainings = {n: Training.read({**BASE, "precision": "bf16", "epochs": f"{n}ep"}) for n in ("249", "250")}
    with one_thread(CPU):
        told = {"machine": described(CPU), "engine": engine, "pack": 4}
    told["speed"] = {"of": speed.alike(trainings["249"]), "seconds_per_step": 0.5, "steps_per_epoch": 20}
    store = FolderStore(tmp_path)
    store.put("0" * 32, {"record.json": b"{}"}, told)
    known = speed.known(store, CPU)
    found = {length: one for length, training in trainings.items() if (one := known.of(training)) is not None}
    assert list(found) == lengths.split()
    assert {tuple(one.packs) for one in found.values()} == {(1 if engine == "eager" else 4,)}


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
    foretold = outlook(plan, FolderStore("/nowhere"), Speeds())
    assert foretold.disk == pytest.approx(states * STATE_BYTES + small, rel=0.03)


@pytest.mark.parametrize("measure", [[], ["dnr"]])
def test_the_disk_that_was_foretold_is_the_disk_that_was_used(tmp_path: Path, measure: list) -> None:
    run = started("smoke", tmp_path / "run", changes={"measure": measure})
    foretold = outlook(run.plan, run.store, Speeds()).disk
    run.go()
    used = sum(size for entry in run.store.list() for size in entry.parts.values())
    assert foretold == pytest.approx(used, rel=0.1)


def test_speeds_are_those_of_this_machine(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes={"variants": ["plain"], "cycles": 1})
    run.go()
    found = speed.known(run.store, CPU).of(run.study.training)
    told = [run.store.provenance(step.key)["speed"] for step in run.plan.trainings]
    assert found is not None
    assert found.steps == told[0]["steps_per_epoch"] == 108 // 32
    with one_thread(CPU):
        here = described(torch.device("cpu"))
    assert {run.store.provenance(step.key)["machine"] for step in run.plan.trainings} == {here}
    elsewhere = FolderStore(tmp_path / "elsewhere")
    for number, speed_told in enumerate(told):
        elsewhere.put(f"{number:032x}", {"record.json": b"{}"}, {"machine": "an abacus", "speed": speed_told})
    assert speed.known(elsewhere, CPU).of(run.study.training) is None


class Beside(Eager):
    """As if its networks did not take turns."""


def of_packs(folder: Path, kind: type[Eager]) -> tuple[Speed | None, list[dict]]:
    """What is known after a run of five seeds, three at once with such an engine, and the provenance of each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engines, "engine", lambda engines, training, *_: kind(training, CPU))
        run = started("smoke", folder / "run", changes={"variants": ["plain"], "cycles": 1, "seeds": 5})
        run.go(pack=3)
    told = [run.store.provenance(step.key) for step in run.plan.trainings]
    return speed.known(run.store, CPU).of(run.study.training), told


def test_speeds_of_packs_are_told_apart_by_their_size(tmp_path: Path) -> None:
    found, told = of_packs(tmp_path, Beside)
    assert found is not None
    assert sorted(found.packs) == sorted({provenance["pack"] for provenance in told})
    assert found.most == 3
    shares = [provenance["speed"]["seconds_per_step"] for provenance in told if provenance["pack"] == 3]
    assert found.together(3) == pytest.approx(3 * median(shares))


def test_where_networks_take_turns_a_step_of_seven_takes_seven_times_as_long_as_one(tmp_path: Path) -> None:
    found, told = of_packs(tmp_path, Eager)
    assert found is not None
    one = median(provenance["speed"]["seconds_per_step"] for provenance in told)
    assert found.packs == {1: one}
    assert found.in_packs(7) == pytest.approx(7 * one)


def test_a_few_steps_are_timed_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["run", "smoke", "--out", str(tmp_path / "run"), "--dry-run", "--json", "--processes", "1"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] is None
    timed: list[Speed] = []

    def noting(training: Training, engines: Engines, planned: int) -> Speed:
        assert planned == max(Plan(read_study("smoke")).todo(FolderStore("/nowhere")).waves.values())
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


def test_trainings_that_are_alike_are_timed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a grid of learning rates."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(speed, "measured", lambda t, _, planned: asked.append((t.batch, planned)) or Speed(1.0, 3))
    grid = ["--grid", "lr=0.1,0.2", "--grid", "batch=16,32", "--set", "seeds=2", "--set", "variants=[plain]"]
    arguments = ["run", "smoke", "--out", str(tmp_path / "run"), "--dry-run", "--measure", "--json", *grid]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] > 0
    assert sorted(asked) == [(16, 4), (32, 4)]  # two seeds, retrained and in the next cycle
