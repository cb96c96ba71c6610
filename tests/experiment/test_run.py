"""A study from beginning to end: the same results however often it is interrupted, and whoever works on it."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

import activeprune as ap
from activeprune.cli import main
from activeprune.core.methods import METHODS
from activeprune.experiment import files, leases, queue, store
from activeprune.experiment.collecting import collect, registered
from activeprune.experiment.findings import summaries
from activeprune.experiment.plan.steps import Prune, Step, Train
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.experiment.store import FolderStore
from activeprune.experiment.store.artifacts import RECORD, STATE
from activeprune.experiment.store.leases import Leases
from activeprune.experiment.work.helpers import Helpers
from activeprune.experiment.work.observer import Observer
from tests.helpers import take_out

TINY = {"variants": ["plain", "ap_lite"], "cycles": 1}
ROOT = Path(__file__).parent.parent.parent


def contents(store: Path) -> dict[str, bytes]:
    """Everything that is promised to the byte: all but provenance."""
    found = (path for path in (store / "objects").rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(store)): path.read_bytes() for path in found if path.name != "provenance.json"}


class Counting(Observer):
    """Notes what is computed."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def finished(self, step: Step, seconds: float) -> None:
        self.steps.append(step)


def go(folder: Path, **changes) -> tuple[Run, Counting]:
    run = started("smoke", folder / "run", changes={**TINY, **changes})
    counting = Counting()
    run.go(counting)
    return run, counting


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    go(folder)
    return folder


def copied(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "copy")


def test_a_run_fills_its_table(finished: Path) -> None:
    run = Run.opened(finished / "run")
    rows = run.rows()
    assert [(row["variant"], row["cycle"]) for row in rows] == [
        ("plain", 0), ("plain", 1), ("ap_lite", 0), ("ap_lite", 1),
    ]  # fmt: skip
    assert all(0 <= row["accuracy"] <= 1 for row in rows)
    assert rows[0]["accuracy"] == rows[2]["accuracy"]
    densities = {row["cycle"]: row["density"] for row in rows}
    total = sum(mask.numel() for mask in ap.Masks.dense(ap.build("resnet8", in_channels=1)).values())
    assert densities == {0: 1.0, 1: (total - int(0.2 * total + 0.5)) / total}
    assert not run.plan.todo(run.store).missing


def test_the_same_command_again_computes_nothing(finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    before = contents(folder / ".store")
    _, counting = go(folder)
    assert counting.steps == []
    assert contents(folder / ".store") == before


def test_more_seeds_compute_only_what_is_new(finished: Path, tmp_path: Path) -> None:
    run, counting = go(copied(finished, tmp_path), seeds=2)
    assert {step.seed for step in counting.steps} == {1}
    assert [cell.seeds for cell in summaries(run.rows())] == [2, 2, 2, 2]


def test_two_stores_hold_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    go(tmp_path)
    assert contents(tmp_path / ".store") == contents(finished / ".store")


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


def test_several_processes_share_the_work(finished: Path, tmp_path: Path) -> None:
    counting = Counting()
    run = started("smoke", tmp_path / "run", changes=TINY)
    run.go(counting, processes=2)
    told = [step.key for step in counting.steps]
    assert len(told) == len(set(told))  # nobody did what another had done
    assert set(told) <= set(run.plan.steps)
    assert contents(tmp_path / ".store") == contents(finished / ".store")


def test_a_helper_does_the_work_and_says_so(finished: Path, tmp_path: Path) -> None:
    """Alone, while this process only listens."""
    counting = Counting()
    run = started("smoke", tmp_path / "run", changes=TINY)
    run.write_study()
    with Helpers(run.out, 1, run.plan, counting) as helpers:
        helpers.wait()
    assert [step.kind for step in counting.steps].count("train") == 3
    assert contents(tmp_path / ".store") == contents(finished / ".store")


def test_a_helper_that_breaks_is_reported(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes=TINY)
    run.write_study()
    (tmp_path / "run" / "study.yaml").write_text("no: study")
    troubles: list[str] = []

    class Listening(Observer):
        def trouble(self, line: str) -> None:
            troubles.append(line)

    with Helpers(run.out, 1, run.plan, Listening()) as helpers:
        helpers.wait()
    assert len(troubles) == 2
    assert "must hold keys and values" in troubles[0]
    assert "a helper process ended with code 1" in troubles[1]


def test_a_step_that_another_process_holds_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process is this test: it computes the step while the run waits for it."""
    run = started("smoke", tmp_path / "run", changes=TINY)
    other = started("smoke", tmp_path / "run", changes=TINY)
    first = run.plan.todo(run.store).ready[0]
    lease = Leases(run.store.root, owner="somebody else").take(first.key)
    assert lease is not None
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        lease.release()
        other.go()

    monkeypatch.setattr(queue.time, "sleep", wait)
    counting = Counting()
    run.go(counting)
    assert len(waits) == 1
    assert counting.steps == []


def test_torchs_threads_are_given_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        go(tmp_path, variants=["plain"])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_failed_training_is_named_and_what_follows_is_blocked(tmp_path: Path) -> None:
    run, counting = go(tmp_path, lr=1e30)
    rows = run.rows()
    assert rows[0]["accuracy"] is None
    assert "loss" in rows[0]["failure"]
    cells = summaries(rows)
    assert (cells[0].mean, cells[0].failed, cells[0].seeds) == (None, [0], 0)
    todo = run.plan.todo(run.store)
    assert todo.ready == ()
    assert {step.kind for step in todo.blocked} == {"train", "prune"}
    assert len(counting.steps) == 1


def test_a_training_that_fails_before_the_rewind_epoch_ends_the_run(tmp_path: Path) -> None:
    run, counting = go(tmp_path, lr=1e30, chain="rewind", rewind_epoch=1, epochs="3ep", variants=["plain"])
    assert len(counting.steps) == 1
    assert run.plan.todo(run.store).ready == ()
    assert [row["accuracy"] for row in run.rows()] == [None, None]


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


def test_a_run_of_somebody_else_that_cannot_be_read_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / ".store" / "runs").mkdir(parents=True)
    (tmp_path / ".store" / "runs" / "0.json").write_text("{")
    run, _ = go(tmp_path, keep="records")
    assert all(row["accuracy"] is not None for row in run.rows())
    with pytest.raises(ap.InputError, match=r"0\.json cannot be read"):
        collect(run.store)


def test_a_helper_computes_with_methods_of_ones_own(tmp_path: Path) -> None:
    """The helper does all the work here: the process that started it only waits."""
    (tmp_path / "own_method.py").write_text(
        "import activeprune as ap\n\n\n@ap.method('own')\ndef own(weight):\n    return weight.abs()\n"
    )
    code = "import sys; from activeprune.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["--import", "own_method", "run", "smoke", "--out", "runs/own", "--set", "method=own",
                 "--set", "variants=plain", "--set", "cycles=1", "--processes", "1", "--quiet"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code, *arguments]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    shutil.rmtree(tmp_path / "runs" / ".store")
    helper = [sys.executable, "-m", "activeprune.experiment.helper", "runs/own", str(os.getpid())]
    subprocess.run(helper, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert len(list((tmp_path / "runs" / ".store" / "objects").rglob(RECORD))) == 3
    report = [sys.executable, "-c", code, "report", "runs/own"]
    assert "λ 80.0 %" in subprocess.run(
        report, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    ).stdout  # fmt: skip


def test_a_pruning_that_fails_is_named_and_the_other_seeds_go_on(tmp_path: Path) -> None:
    """All weights but a few are excluded, so that the second cycle finds nothing left to prune."""
    changes = {**TINY, "variants": ["plain"], "seeds": 2, "cycles": 2, "include": "conv", "p": 0.999, "q": 0.0}
    run = started("smoke", tmp_path / "run", changes=changes)
    outcome = run.go()
    assert len(outcome.failed) == 2
    assert all("cycle 2 prune" in line and "nothing left to prune" in line for line in outcome.failed)
    assert [row["accuracy"] is not None for row in run.rows()] == [True, True, False] * 2


@pytest.mark.parametrize("chain", ["rewind", "continue"])
def test_the_other_chains_run(tmp_path: Path, chain: str) -> None:
    variants = ["plain", "plain_rewind", "ap_lite", "ap_pro", "no_rewind", "solo", "ap_lite_literal"]
    more = {"rewind_epoch": 1} if chain == "rewind" else {"retrain": "finetune"}
    run, _ = go(tmp_path, chain=chain, variants=variants, epochs="2ep", **more)
    cells = {(cell.variant, cell.cycle): cell for cell in summaries(run.rows())}
    assert all(cell.mean is not None for cell in cells.values())
    others = {cell.density for (variant, cycle), cell in cells.items() if cycle and variant != "ap_lite_literal"}
    assert len(others) == 1
    assert cells["ap_lite_literal", 1].density == pytest.approx(0.82 * 0.98, abs=1e-3)


def test_pruning_before_training_runs(tmp_path: Path) -> None:
    run, counting = go(tmp_path, method="snip", chain="at_init", variants=["plain"], score_batches=1)
    assert [step.kind for step in counting.steps] == ["train", "prune", "train"]
    assert all(row["accuracy"] is not None for row in run.rows())


@pytest.mark.parametrize("method", ["global_gradient", "lookahead", "lamp", "fisher", "random"])
def test_methods_get_what_they_need(tmp_path: Path, method: str) -> None:
    more = {"score_batches": 1} if METHODS[method].batches else {}
    run, _ = go(tmp_path, method=method, variants=["ap_lite"], **more)
    assert all(row["accuracy"] is not None for row in run.rows())


def test_late_rewinding_goes_on_from_the_first_epochs(tmp_path: Path) -> None:
    """Cycle 1's training is the same whether it went on from the rewind state or was trained in one go."""
    _, counting = go(tmp_path / "a", chain="rewind", rewind_epoch=1, epochs="2ep")
    assert [step.last for step in counting.steps if isinstance(step, Train)].count(1) == 1
    go(tmp_path / "b", chain="rewind", epochs="2ep")
    late, plain = contents(tmp_path / "a" / ".store"), contents(tmp_path / "b" / ".store")
    dense = next(step for step in counting.steps if isinstance(step, Train) and step.masks is None and not step.last)
    shared = [name for name in late if dense.key in name]
    assert shared
    assert all(late[name] == plain[name] for name in shared)


@pytest.mark.parametrize(("keep", "left"), [("all", 3), ("frontier", 0), ("records", 0)])
def test_what_is_kept_of_weights(tmp_path: Path, keep: str, left: int) -> None:
    """Under reinit the next cycle starts from new weights, so that masks and records are all it needs."""
    run, _ = go(tmp_path, keep=keep)
    kept = [entry.key for entry in run.store.list() if STATE in entry.parts]
    assert len(kept) == left
    assert all(row["accuracy"] is not None for row in run.rows())


def test_the_frontier_is_what_one_more_cycle_needs(tmp_path: Path) -> None:
    run, _ = go(tmp_path, chain="continue", variants=["plain"], keep="frontier")
    kept = {entry.key for entry in run.store.list() if STATE in entry.parts}
    assert kept == {run.plan.cells[-1].training.key}  # what cycle 2 would prune
    _, counting = go(tmp_path, chain="continue", variants=["plain"], keep="frontier", cycles=2)
    assert [step.kind for step in counting.steps] == ["prune", "train"]


def test_nothing_is_collected_that_another_run_of_the_store_keeps(finished: Path, tmp_path: Path) -> None:
    first, _ = go(tmp_path, keep="all")
    second = started("smoke", tmp_path / "second", changes={**TINY, "keep": "records"})
    second.go()
    assert collect(first.store, [second.study]) == 0
    assert contents(tmp_path / ".store") == contents(finished / ".store")


def test_a_run_can_be_found_again_after_its_folder_was_moved(finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    assert [row["accuracy"] for row in ap.results(folder / "run")] == [
        row["accuracy"] for row in ap.results(finished / "run")
    ]


def test_from_python_it_is_the_same(finished: Path, tmp_path: Path) -> None:
    run = ap.run("smoke", out=tmp_path / "run", set=TINY)
    assert run.rows() == ap.results(finished / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "epochs.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    assert {"key", "seed", "epoch", "train_loss", "test_accuracy"} <= set(lines[0])
    assert len(json.loads((tmp_path / "run" / "summary.json").read_text())["cells"]) == 4


def test_data_that_are_not_there_leave_the_store_as_it_was(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes={**TINY, "data": {"name": "cifar10", "path": tmp_path / "none"}})
    with pytest.raises(ap.InputError, match="no cifar10 in"):
        run.go()
    assert contents(tmp_path / ".store") == {}


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ap.InputError, match="a file is where a folder is needed"):
        started("smoke", tmp_path / "file" / "run", changes=TINY).go()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("after", [0, 4, 11])
def test_a_disk_that_is_full_or_read_only_is_one_line_and_nothing_is_lost(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, after: int,
    capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    """Some files can still be written, then no more; once there is room again, the same command ends as it should."""
    command = ["run", "smoke", "--out", str(tmp_path / "run"), "--set", "variants=[plain,ap_lite]", "--set", "cycles=1",
               "--processes", "1", "--quiet"]  # fmt: skip
    calls = 0
    whole = files.write

    def refuse(path: Path, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(number, os.strerror(number), str(path))
        whole(path, data)

    with monkeypatch.context() as patch:
        for module in (files, store, leases):
            if hasattr(module, "write"):
                patch.setattr(module, "write", refuse)
        assert main(command) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert ("the disk is full" if number == errno.ENOSPC else os.strerror(number)) in told
    left = contents(tmp_path / ".store")
    assert FolderStore(tmp_path / ".store").verify(older_than=0) == []
    reference = contents(finished / ".store")
    assert {name: data for name, data in reference.items() if name in left} == left
    assert main(command) == 0
    assert contents(tmp_path / ".store") == reference


def test_a_really_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A file system of its own that holds one state and a half."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", small], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        command = ["run", "smoke", "--out", str(small / "run"), "--processes", "1", "--quiet"]
        assert main(command) == 2
        assert "the disk is full" in capsys.readouterr().err
        assert FolderStore(small / ".store").verify(older_than=0) == []
        assert len(list(FolderStore(small / ".store").list())) >= 1
        assert subprocess.run(["mount", "-o", "remount,size=16m", small], check=True)
        assert main(command) == 0
    finally:
        subprocess.run(["umount", small], check=True)


def test_data_that_vanish_in_the_middle_are_one_line_and_what_was_done_stays(images: Path, tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes=of_images(images))

    class Removing(Observer):
        def finished(self, step: Step, seconds: float) -> None:
            shutil.rmtree(images / "train", ignore_errors=True)

    with pytest.raises(ap.InputError, match="train"):
        run.go(Removing())
    assert len(list(run.store.list())) >= 1
    assert run.store.verify(older_than=0) == []


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve small pictures of two classes to train on and four to test on."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    draw = torch.Generator().manual_seed(0)
    for part, count in (("train", 6), ("val", 2)):
        for name in ("cat", "dog"):
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for index in range(count):
                pixels = torch.randint(0, 256, (16, 16, 3), dtype=torch.uint8, generator=draw).numpy()
                Image.fromarray(pixels).save(folder / f"{index}.png")
    return tmp_path / "images"


def of_images(path: Path) -> dict:
    data = {"name": "imagefolder", "path": str(path), "validation": 2}
    return {**TINY, "data": data, "batch": 4, "resolution": 16, "network": "resnet8"}


def test_a_report_does_not_need_the_images_any_more(images: Path, tmp_path: Path) -> None:
    run = ap.run("smoke", out=tmp_path / "run", set=of_images(images))
    rows = run.rows()
    assert all(row["accuracy"] is not None for row in rows)
    shutil.move(images, tmp_path / "elsewhere")
    assert ap.results(tmp_path / "run") == rows
    collect(run.store)
    moved = of_images(tmp_path / "elsewhere")
    assert not started("smoke", tmp_path / "again", changes=moved).plan.todo(run.store).missing
    (tmp_path / "elsewhere" / "train" / "cat" / "0.png").unlink()
    assert started("smoke", tmp_path / "other", changes=moved).plan.todo(run.store).missing


def test_a_folder_of_images_that_has_changed_is_refused(images: Path, tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes=of_images(images))
    run.write_study()
    (images / "train" / "cat" / "0.png").unlink()
    with pytest.raises(ap.InputError, match="is not what it was: names or sizes of its files have changed"):
        Run.opened(tmp_path / "run").go()


def test_checkpoints_that_nobody_asks_for_are_collected(tmp_path: Path) -> None:
    run, _ = go(tmp_path)
    longer = started("smoke", tmp_path / "longer", changes={**TINY, "epochs": "3ep"})
    longer.write_study()
    folder = tmp_path / ".store" / "checkpoints"
    folder.mkdir(exist_ok=True)
    finished, wanted, foreign = run.plan.trainings[0].key, longer.plan.trainings[0].key, "0" * 32
    for key in (finished, wanted, foreign):
        (folder / f"{key}.safetensors").write_bytes(b"12345")
    assert collect(run.store) == 10
    assert [path.stem for path in folder.iterdir()] == [wanted]


def test_a_store_that_was_moved_knows_what_its_runs_need(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run, _ = go(tmp_path / "here")
    kept = contents(run.store.root)
    shutil.move(tmp_path / "here", tmp_path / "there")
    store = FolderStore(tmp_path / "there" / ".store")
    assert collect(store) == 0
    assert not any(known.gone for known in registered(store))
    shutil.rmtree(tmp_path / "there" / "run")
    assert main(["store", "gc", str(store.root)]) == 0
    assert "though the folder is gone (--forget lets it go)" in capsys.readouterr().out
    assert contents(store.root) == kept
    with pytest.raises(ap.InputError, match="knows of no run that could say what it still needs"):
        collect(store, forget=True)


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


def test_what_a_method_of_ones_own_prints_or_raises(tmp_path: Path) -> None:
    """With two processes: prints are no events, and what it raises is one line for each seed and no traceback."""
    (tmp_path / "noisy.py").write_text(
        "import activeprune as ap\n\n\n@ap.method('noisy')\ndef noisy(weight):\n    print('hello')\n"
        "    return weight.abs()\n\n\n@ap.method('broken')\ndef broken(weight):\n    return weight / (1 // 0)\n"
    )
    code = "import sys; from activeprune.cli import main; sys.exit(main(sys.argv[1:]))"

    def run(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True)

    small = ["--set", "variants=plain", "--set", "cycles=1", "--set", "seeds=2", "--processes", "2"]
    done = run("--import", "noisy", "run", "smoke", "--set", "method=noisy", "--out", "runs/noisy", *small)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "λ 80.0 %" in run("report", "runs/noisy").stdout
    failed = run("--import", "noisy", "run", "smoke", "--set", "method=broken", "--out", "runs/broken", *small)
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
    assert len({line for line in failed.stderr.splitlines() if "ZeroDivisionError" in line}) == 2
    assert "missing" in failed.stdout


def test_another_study_does_not_run_in_the_same_folder_at_the_same_time(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes=TINY)
    with files.Sharing(run.out) as folder:
        run.write_study()
        folder.share()
        assert started("smoke", tmp_path / "run", changes=TINY).go().computed == 5
        with pytest.raises(ap.InputError, match="another process is running another study in"):
            started("smoke", tmp_path / "run", changes={**TINY, "p": 0.3}).go()
    assert started("smoke", tmp_path / "run", changes={**TINY, "p": 0.3}).go().computed > 0


def test_layers_that_do_not_exist_are_found_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(ap.InputError, match="zzz"):
        go(tmp_path, include=["zzz"])
    assert contents(tmp_path / ".store") == {}


def test_a_damaged_record_is_told_of(finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = copied(finished, tmp_path)
    path = next((folder / ".store" / "objects").rglob(RECORD))
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    ap.results(folder / "run")
    Run.opened(folder / "run").plan.todo(FolderStore(folder / ".store"))
    assert "set aside" in caplog.text


def test_a_shortfall_of_negative_weights_is_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """AP is to take almost all weights, of which only about a half are negative."""
    command = ["run", "smoke", "--out", str(tmp_path / "run"), "--set", "variants=[ap_lite]", "--set", "cycles=1",
               "--set", "p=0.9", "--set", "q=0.9", "--processes", "1", "--quiet"]  # fmt: skip
    assert main(command) == 0
    row = ap.results(tmp_path / "run")[-1]
    total = row["alive"] + row["by_method"] + row["by_rule"]
    assert row["by_method"] + row["by_rule"] == int(0.9 * total + 0.5)
    assert row["by_rule"] + row["shortfall"] == int(0.9 * total)
    expected = f"ap_lite cycle 1 seed 0: AP's rule was {row['shortfall']} weights short; as many were removed by global"
    assert expected in capsys.readouterr().out


def test_a_folder_without_a_run_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ap.InputError, match="holds no run: activeprune run STUDY --out"):
        ap.results(tmp_path)


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


def test_the_threads_of_torch_do_not_matter(finished: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        go(tmp_path)
    finally:
        torch.set_num_threads(before)
    assert contents(tmp_path / ".store") == contents(finished / ".store")


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
