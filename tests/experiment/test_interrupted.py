"""What is damaged, half done or killed is done again, and comes out the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import activeprune as ap
from activeprune.experiment.plan.steps import Prune, Step
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.experiment.store import FolderStore
from activeprune.experiment.store.artifacts import RECORD, STATE
from activeprune.experiment.work.observer import Observer
from tests.experiment.makers import TINY, Counting, contents, copied, go
from tests.helpers import take_out

ROOT = Path(__file__).parent.parent.parent


def test_what_is_damaged_is_computed_again_and_comes_out_the_same(finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    before = contents(folder / ".store")
    run = Run.opened(folder / "run")
    reported = [cell.training.key for cell in run.plan.cells if cell.cycle]
    for key, part in zip(reported, (STATE, RECORD), strict=True):
        path = next((folder / ".store" / "objects").rglob(f"{key}/{part}"))
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert len(run.store.verify()) == 2
    _, counting = go(folder)
    assert {step.key for step in counting.steps} == set(reported)
    assert contents(folder / ".store") == before


def test_damage_that_is_met_on_the_way_does_not_stop_a_run(finished: Path, tmp_path: Path) -> None:
    """A state whose record is fine, but which another step must read."""
    folder = copied(finished, tmp_path)
    before = contents(folder / ".store")
    run = Run.opened(folder / "run")
    pruning = next(step for step in run.plan.steps.values() if isinstance(step, Prune))
    take_out(run.store, pruning.key)
    for cell in run.plan.cells:
        if cell.cycle:
            take_out(run.store, cell.training.key)
    state = next((folder / ".store" / "objects").rglob(f"{pruning.trained.key}/{STATE}"))
    state.write_bytes(state.read_bytes()[:-1] + b"?")
    _, counting = go(folder)
    assert pruning.trained.key in {step.key for step in counting.steps}
    assert contents(folder / ".store") == before


def test_a_record_that_is_damaged_is_computed_again_without_being_looked_for(finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    before = contents(folder / ".store")
    reported = Run.opened(folder / "run").plan.cells[1].training.key
    path = next((folder / ".store" / "objects").rglob(f"{reported}/{RECORD}"))
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))  # of the same size
    assert Run.opened(folder / "run").rows()[1]["accuracy"] is None
    _, counting = go(folder)
    assert [step.key for step in counting.steps] == [reported]
    assert contents(folder / ".store") == before


@pytest.mark.usefixtures("a_checkpoint_after_every_epoch")
def test_a_checkpoint_outlives_an_error_in_the_middle(tmp_path: Path) -> None:
    """An image that cannot be read, say: once it is repaired, the training goes on where it was."""
    run = started("smoke", tmp_path / "run", changes={**TINY, "epochs": "4ep"})
    seen: list[int] = []

    class Stumbling(Observer):
        def epoch(self, step: Step, epoch, epochs: int) -> None:
            seen.append(epoch.epoch)
            if seen == [0, 1, 2]:
                raise ap.InputError("the disk was pulled out")

    with pytest.raises(ap.InputError, match="pulled out"):
        run.go(Stumbling())
    first = next(iter(run.plan.todo(run.store).ready))
    run.go(Stumbling())
    assert seen[:4] == [0, 1, 2, 3]
    assert run.store.has(first.key)


def test_a_state_that_is_made_again_does_not_replace_what_was_reported(finished: Path, tmp_path: Path) -> None:
    """On another machine bits may differ: the first record is what others have built on."""
    folder = copied(finished, tmp_path)
    run = Run.opened(folder / "run")
    dense = run.plan.cells[0].training
    record = json.loads(run.store.get(dense.key, RECORD))
    take_out(run.store, dense.key)
    run.store.put(dense.key, {RECORD: json.dumps({**record, "accuracy": 0.123}).encode()}, {})
    troubles: list[str] = []

    class Listening(Observer):
        def trouble(self, line: str) -> None:
            troubles.append(line)

    started("smoke", folder / "run", changes={**TINY, "variants": ["plain", "ap_lite", "solo"]}).go(Listening())
    assert json.loads(run.store.get(dense.key, RECORD))["accuracy"] == 0.123
    assert run.store.has(dense.key, STATE)
    assert any("its first record is kept" in line for line in troubles)


@pytest.mark.usefixtures("a_checkpoint_after_every_epoch")
def test_a_damaged_checkpoint_is_told_of_and_not_used(finished: Path, tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes={**TINY, "epochs": "3ep"})

    class Stumbling(Observer):
        def epoch(self, step: Step, epoch, epochs: int) -> None:
            if epoch.epoch == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.go(Stumbling())
    (path,) = (tmp_path / ".store" / "checkpoints").glob("*.safetensors")
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)
    troubles: list[str] = []

    class Listening(Counting):
        def trouble(self, line: str) -> None:
            troubles.append(line)

    run.go(Listening())
    assert len(troubles) == 1
    assert "its bytes are not those that were written: the training starts anew" in troubles[0]
    reference, _ = go(tmp_path / "reference", epochs="3ep")
    assert contents(run.store.root) == contents(reference.store.root)


def test_a_damaged_record_is_told_of(finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = copied(finished, tmp_path)
    path = next((folder / ".store" / "objects").rglob(RECORD))
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    ap.results(folder / "run")
    Run.opened(folder / "run").plan.todo(FolderStore(folder / ".store"))
    assert "set aside" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("which", ["", "late"])
def test_killed_at_twenty_random_moments_it_ends_in_the_same_bytes(tmp_path: Path, which: str) -> None:
    """Once as it is, once with late rewinding, where weights go as soon as nothing needs them."""
    command = [sys.executable, "-m", "tests.experiment.killing", str(tmp_path), "7", "20", which]
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 20
    reference = contents(tmp_path / "reference" / ".store")
    assert len(reference) > 20
    finished = [path for path in tmp_path.glob("killed*") if len(contents(path / ".store")) >= len(reference)]
    assert finished
    for folder in finished:
        told = (folder / "finished.txt").read_text().split()
        assert len(told) == len(set(told))  # what was finished before a kill was found again
        assert contents(folder / ".store") == reference
        assert not list((folder / ".store" / "checkpoints").glob("*"))


@pytest.mark.usefixtures("a_checkpoint_after_every_epoch")
def test_half_a_checkpoint_of_a_killed_process_goes_with_its_training(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes={"cycles": 1, "variants": ["plain"]})
    key, folder = run.plan.trainings[0].key, tmp_path / ".store" / "checkpoints"
    folder.mkdir(parents=True)
    left, other = (folder / f".{name}.safetensors.{'0' * 32}.part" for name in (key, "0" * 32))
    left.write_text("half")
    other.write_text("somebody else's")
    run.go()
    assert not left.exists()
    assert other.exists()
