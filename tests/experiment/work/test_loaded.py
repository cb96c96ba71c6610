"""What steps read from the store: what cannot be used, though its checksum is right, is told by its entry."""

import dataclasses
import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.numpy import save
from torch import Tensor

import activeprune as ap
from activeprune.core.masks import FORMAT
from activeprune.experiment.plan.steps import Prune, Train
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.experiment.store import FolderStore
from activeprune.experiment.store.artifacts import (
    CHECKPOINT,
    MASKS,
    STATE,
    checkpoint_bytes,
    checkpoint_of,
    masks_bytes,
    state_bytes,
    state_of,
)
from activeprune.experiment.work.loaded import Loaded
from tests.cli.makers import refused
from tests.experiment.makers import TINY, contents, copied
from tests.helpers import take_out


def of_type(name: str) -> bytes:
    """A tensor of a type that torch may not have."""
    header = json.dumps({"a": {"dtype": name, "shape": [2], "data_offsets": [0, 1]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\0"


def replace(store: FolderStore, key: str, part: str, content: bytes) -> None:
    """Puts an entry with another content there, as a pack of somebody else may."""
    (entry,) = (entry for entry in store.list() if entry.key == key)
    parts = {name: store.get(key, name) for name in entry.parts}
    take_out(store, key)
    store.put(key, {**parts, part: content}, {})


def in_double(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.double() for name, tensor in state.items()}


def without_the_last(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return dict([*state.items()][:-1])


def flat(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.flatten() for name, tensor in state.items()}


UNREADABLE = [b"", b"no tensors", of_type("F4"), of_type("X"), struct.pack("<Q", 2) + b"[]"]


@pytest.mark.parametrize("content", [*UNREADABLE, in_double, without_the_last, flat])
def test_a_state_that_cannot_be_used(finished: Path, tmp_path: Path, content) -> None:
    run = Run.opened(copied(finished, tmp_path) / "run")
    step, loaded = run.plan.trainings[0], Loaded(run.store)
    sound = loaded.state(step)
    assert {*sound} == {*ap.build("resnet8", in_channels=1).state_dict()}
    replace(run.store, step.key, STATE, content if isinstance(content, bytes) else state_bytes(content(sound)))
    with pytest.raises(ap.InputError, match=rf"^entry {step.key}: state\.safetensors cannot be used \(.+\); ") as told:
        loaded.state(step)
    assert "\n" not in str(told.value)
    assert f"objects/{step.key[:2]}/{step.key}" in str(told.value)


BITS = {"conv.weight": torch.ones(1).numpy()}
WRONG_TYPE = save(BITS, metadata={FORMAT: json.dumps({"shapes": {"conv.weight": [8]}, "left_out": None})})
OTHER_MODEL = masks_bytes(ap.Masks({"other.weight": torch.ones(3, dtype=torch.bool)}))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((content, "not a readable masks file") for content in UNREADABLE),
        (state_bytes({"conv.weight": torch.ones(2)}), "not a masks file"),
        (WRONG_TYPE, "'conv.weight' is float32"),
        (OTHER_MODEL, "masks of another model"),
    ],
)
def test_masks_that_cannot_be_used(finished: Path, tmp_path: Path, content: bytes, said: str) -> None:
    run = Run.opened(copied(finished, tmp_path) / "run")
    step = next(step for step in run.plan.steps.values() if isinstance(step, Prune))
    assert Loaded(run.store).masks(step).density < 1
    replace(run.store, step.key, MASKS, content)
    with pytest.raises(
        ap.InputError, match=rf"^entry {step.key}: masks\.safetensors cannot be used \(.*{said}"
    ) as told:
        Loaded(run.store).masks(step)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("part", [STATE, MASKS])
def test_a_run_tells_of_it_in_one_line_and_without_it_all_is_well_again(
    finished: Path, tmp_path: Path, part: str, capsys: pytest.CaptureFixture
) -> None:
    run = Run.opened(copied(finished, tmp_path) / "run")
    before = contents(run.store.root)
    pruning = next(step for step in run.plan.steps.values() if isinstance(step, Prune))
    follower = next(cell.training for cell in run.plan.cells if cell.masks is pruning)
    odd, needs_it = (pruning.trained, pruning) if part == STATE else (pruning, follower)
    for key in {needs_it.key, follower.key}:
        take_out(run.store, key)
    replace(run.store, odd.key, part, b"odd")
    command = ["run", "smoke", "--out", str(run.out), "--set", f"variants=[{','.join(TINY['variants'])}]",
               "--set", "cycles=1", "--processes", "1", "--quiet"]  # fmt: skip
    assert f"entry {odd.key}: {part} cannot be used" in refused(command, capsys)
    if part == MASKS:  # of which a report tells the layers' densities
        assert f"entry {odd.key}: {part} cannot be used" in refused(["report", str(run.out)], capsys)
    take_out(run.store, odd.key)
    run.go()
    assert contents(run.store.root) == before


def test_a_checkpoint_that_cannot_be_used_is_told_by_the_entry_that_it_is_of(tmp_path: Path) -> None:
    late = {"variants": ["plain"], "cycles": 1, "chain": "rewind", "rewind_epoch": 1, "epochs": "2ep"}
    run = started("smoke", tmp_path / "run", changes=late)
    step = next(step for step in run.plan.steps.values() if isinstance(step, Train) and step.resume is not None)
    run.go()
    take_out(run.store, step.key)
    for content in (b"odd", state_bytes(state_of(run.store.get(step.resume.key, STATE)))):
        replace(run.store, step.resume.key, CHECKPOINT, content)
        with pytest.raises(ap.InputError, match=rf"^entry {step.resume.key}: checkpoint\.safetensors cannot") as told:
            run.go()
        assert "(it is no checkpoint of a training" in str(told.value)


@pytest.mark.parametrize("odd", [{"of": "another"}, {"epoch": 77}, {"state": {"fc.weight": torch.ones(2)}}])
def test_a_checkpoint_of_another_training_is_told_by_its_entry(tmp_path: Path, odd: dict) -> None:
    late = {"variants": ["plain"], "cycles": 1, "chain": "rewind", "rewind_epoch": 1, "epochs": "2ep"}
    run = started("smoke", tmp_path / "run", changes=late)
    run.go()
    step = next(step for step in run.plan.steps.values() if isinstance(step, Train) and step.resume is not None)
    take_out(run.store, step.key)
    kept = checkpoint_of(run.store.get(step.resume.key, CHECKPOINT))
    replace(run.store, step.resume.key, CHECKPOINT, checkpoint_bytes(dataclasses.replace(kept, **odd)))
    with pytest.raises(ap.InputError, match=rf"^entry {step.resume.key}: checkpoint\.safetensors (is|cannot)"):
        run.go()


def test_a_report_names_the_entry_of_masks_without_weights(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = Run.opened(copied(finished, tmp_path) / "run")
    step = next(cell.masks for cell in run.plan.cells if cell.masks is not None)
    bits = {"conv.weight": torch.zeros(0, dtype=torch.uint8).numpy()}
    empty = save(bits, metadata={FORMAT: json.dumps({"shapes": {"conv.weight": [0, 3]}, "left_out": None})})
    replace(run.store, step.key, MASKS, empty)
    assert f"entry {step.key}: {MASKS} cannot be used" in refused(["report", str(run.out), "--no-figures"], capsys)
