"""Records are the bytes that they always were, and what only looks like one is told by its entry."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import activeprune as ap
from activeprune.cli import main
from activeprune.core.pruning import Pruned
from activeprune.experiment.plan.steps import Measure, Prune, Train
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.experiment.store import FolderStore
from activeprune.experiment.store.artifacts import RECORD, probe_part
from activeprune.experiment.store.records import (
    PruneRecord,
    TrainRecord,
    looks,
    measure_record,
    probe_bytes,
    probed,
    prune_record,
    train_record,
)
from activeprune.training import Epoch, Result
from activeprune.training.duration import Duration
from activeprune.training.result import Failure
from tests.experiment.makers import contents, copied
from tests.experiment.store.makers import KEY
from tests.helpers import take_out

EPOCHS = (Epoch(0, 9, 0.1, 1.5, 0.25, 1.25, 0.5, 0.75), Epoch(1, 18, 0.1, 1.0, 0.5, 1.0, 0.25, 0.5))
EVERY = Duration(1)
TRAINED = (
    b'{"accuracy": 0.75, "best_epoch": 0, "density": 0.5, "early_stop": "best_validation", "epochs": ['
    b'{"epoch": 0, "lr": 0.1, "step": 9, "test_accuracy": 0.75, "train_accuracy": 0.25, "train_loss": 1.5, '
    b'"validation_accuracy": 0.5, "validation_loss": 1.25}, '
    b'{"epoch": 1, "lr": 0.1, "step": 18, "test_accuracy": 0.5, "train_accuracy": 0.5, "train_loss": 1.0, '
    b'"validation_accuracy": 0.25, "validation_loss": 1.0}], "failure": null}\n'
)
FAILED = (
    b'{"accuracy": null, "best_epoch": null, "density": 1.0, "early_stop": "best_validation", "epochs": [], '
    b'"failure": {"epoch": 0, "loss": "nan", "lr": 0.1, "step": 3}}\n'
)
PRUNED = b'{"alive": 3, "by_method": 2, "by_rule": 1, "density": 0.75, "shortfall": 0, "total": 4}\n'
RATES = {"static": 0.125, "dynamic": 0.25, "total": 0.375, "layers": {"conv": {"static": 0.0, "dynamic": 1}}}
MEASURED = {"samples": 10, "unit": RATES, "channel": RATES, "unattributed": [], "companions": None}
SEEN = [{"step": 0, "unit": RATES, "channel": RATES}, {"step": 9, "why": "there are no activations"}]


def put(store: FolderStore, record: bytes, part: str = RECORD) -> None:
    take_out(store, KEY)
    store.put(KEY, {part: record}, {})


# What is written


def test_records_are_these_bytes() -> None:
    assert TrainRecord.of(Result({}, EPOCHS), 0.5).as_bytes() == TRAINED
    assert TrainRecord.of(Result({}, (), failure=Failure(3, 0, 0.1, math.nan)), 1.0).as_bytes() == FAILED
    masks = ap.Masks({"weight": torch.tensor([True, True, True, False])})
    assert PruneRecord.of(Pruned(masks, by_method=2, by_rule=1, shortfall=0)).as_bytes() == PRUNED
    assert probe_bytes(EVERY, 5, ({"step": 0},)) == b'{"every": "1ep", "images": 5, "probed": [{"step": 0}]}\n'


def test_a_record_that_is_read_is_the_same_bytes_again(store: FolderStore) -> None:
    for data in (TRAINED, FAILED):
        put(store, data)
        assert train_record(store, KEY).as_bytes() == data
    put(store, PRUNED)
    assert prune_record(store, KEY).as_bytes() == PRUNED


# What is read


def test_a_training_is_what_was_written(store: FolderStore) -> None:
    put(store, TRAINED)
    record = train_record(store, KEY)
    assert (record.accuracy, record.validation_accuracy, record.failed) == (0.75, 0.5, None)
    assert [*record.lines] == json.loads(TRAINED)["epochs"]
    assert [list(line) for line in record.lines] == [list(line) for line in json.loads(TRAINED)["epochs"]]
    put(store, FAILED)
    record = train_record(store, KEY)
    assert (record.accuracy, record.validation_accuracy) == (None, None)
    assert record.failed == json.loads(FAILED)["failure"]
    assert math.isnan(record.failure.loss)


def test_of_a_measurement_nothing_is_left_out(store: FolderStore) -> None:
    put(store, json.dumps(MEASURED).encode())
    assert measure_record(store, KEY) == MEASURED


def test_a_look_that_saw_nothing_is_a_look_without_rates(store: FolderStore) -> None:
    put(store, probe_bytes(EVERY, 5, tuple(SEEN)), probe_part(EVERY))
    assert probed(store, KEY, EVERY) == tuple(SEEN)
    assert looks(store, KEY, EVERY) == (SEEN[0],)
    assert probed(store, KEY, None) == probed(store, KEY, Duration(2)) == ()


def test_what_is_not_there_is_none(store: FolderStore) -> None:
    store.put(KEY, {"masks.safetensors": b""}, {})
    for key in (KEY, "cd" * 16):
        assert train_record(store, key) is prune_record(store, key) is measure_record(store, key) is None


def test_what_a_later_version_adds_is_no_harm(store: FolderStore) -> None:
    put(store, json.dumps({**json.loads(TRAINED), "weather": "fine"}).encode())
    assert train_record(store, KEY).as_bytes() == TRAINED


# What is no record, though its checksum is right


def changed(of: bytes, **changes: object) -> bytes:
    return json.dumps({**json.loads(of), **changes}).encode()


ODD = [b"", b"{", b"\xff", b"null", b"[]", b"3", b'"text"', b"{}", b"[" * 100_000]


@pytest.mark.parametrize("data", ODD, ids=lambda data: repr(data[:9]))
@pytest.mark.parametrize("read", [train_record, prune_record, measure_record])
def test_what_is_no_record_at_all(store: FolderStore, read, data: bytes) -> None:
    put(store, data)
    with pytest.raises(ap.InputError, match=rf"^entry {KEY}: record\.json is no record of such a step \("):
        read(store, KEY)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"failure": "nan"}, "failure"),
        ({"failure": {"step": 3}}, r"failure\.epoch: Field required"),
        ({"accuracy": "high"}, "accuracy: Input should be a valid number"),
        ({"accuracy": math.nan}, "Out of range float values"),
        ({"density": 10**400}, "density|too large"),
        ({"density": None}, "density: Input should be a valid number"),
        ({"early_stop": "sometimes"}, "early_stop"),
        ({"epochs": None}, "epochs"),
        ({"epochs": [3]}, r"epochs\.0"),
        ({"epochs": [{**asdict(EPOCHS[0]), "step": [9]}]}, r"epochs\.0\.step"),
    ],
)
def test_a_training_of_another_shape_is_told_by_its_entry(store: FolderStore, changes: dict, said: str) -> None:
    put(store, changed(TRAINED, **changes))
    with pytest.raises(ap.InputError, match=rf"^entry {KEY}: record\.json .*({said})") as told:
        train_record(store, KEY)
    assert "\n" not in str(told.value)
    assert f"objects/{KEY[:2]}/{KEY}" in str(told.value)


def test_a_pruning_and_a_measurement_of_another_shape(store: FolderStore) -> None:
    put(store, changed(PRUNED, alive=[3]))
    with pytest.raises(ap.InputError, match=rf"^entry {KEY}: .*alive"):
        prune_record(store, KEY)
    for changes, said in (
        ({"unit": None}, "unit"),
        ({"unit": {**RATES, "dynamic": "0.5"}}, r"unit\.dynamic"),  # text is shown as it is, and is no number
        ({"channel": {**RATES, "layers": {"conv": 3}}}, r"channel\.layers\.conv"),
    ):
        put(store, json.dumps({**MEASURED, **changes}).encode())
        with pytest.raises(ap.InputError, match=rf"^entry {KEY}: .*{said}"):
            measure_record(store, KEY)


@pytest.mark.parametrize("seen", [None, 3, [3], [{"unit": RATES}], [{"step": 0, "unit": 3, "channel": RATES}]])
def test_looks_of_another_shape(store: FolderStore, seen: object) -> None:
    put(store, json.dumps({"every": "1ep", "images": 5, "probed": seen}).encode(), probe_part(EVERY))
    with pytest.raises(ap.InputError, match=rf"^entry {KEY}: probe_1ep\.json is no record"):
        looks(store, KEY, EVERY)


# What a run and a report make of it


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    changes = {"variants": "plain", "cycles": 1, "measure": ["dnr"], "probe_every": "1ep"}
    started("smoke", folder / "run", changes=changes).go()
    return folder


@pytest.mark.parametrize("kind", [Train, Prune, Measure])
def test_a_report_of_an_odd_record_is_one_line_and_without_it_all_is_well_again(
    measured: Path, tmp_path: Path, kind: type, capsys: pytest.CaptureFixture
) -> None:
    run = Run.opened(copied(measured, tmp_path) / "run")
    before = contents(run.store.root)
    step = next(step for step in reversed(run.plan.steps.values()) if isinstance(step, kind))
    (entry,) = (entry for entry in run.store.list() if entry.key == step.key)
    parts = {name: run.store.get(step.key, name) for name in entry.parts}
    take_out(run.store, step.key)
    run.store.put(step.key, {**parts, RECORD: b'{"accuracy": 1}\n'}, {})
    assert main(["report", str(run.out)]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert f"entry {step.key}: record.json is no record of such a step" in said
    take_out(run.store, step.key)
    run.go()
    assert main(["report", str(run.out), "--no-figures"]) == 0
    if kind is not Prune:  # of which the masks are no longer needed: what they led to is there
        assert contents(run.store.root) == before
