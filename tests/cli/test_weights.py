"""Weights from a file of somebody else's: read, or refused."""

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch

from activeprune.cli import main
from tests.cli.makers import DIGITS, Captured, refused


def test_a_state_that_does_not_fit_is_told(model: torch.nn.Module, tmp_path: Path, capsys: Captured) -> None:
    state = model.state_dict()
    files = {
        "cut.safetensors": lambda path: path.write_bytes(b"12345"),
        "cut.pt": lambda path: path.write_bytes(b"PK12345"),
        "object.pt": lambda path: torch.save({"model": model}, path),
        "list.pt": lambda path: torch.save([1, 2], path),
        "less.pt": lambda path: torch.save({k: v for k, v in state.items() if k != "fc.bias"}, path),
        "more.pt": lambda path: torch.save({**state, "extra": torch.ones(1)}, path),
        "other.pt": lambda path: torch.save({**state, "fc.bias": torch.ones(3)}, path),
    }
    unreadable = "holds no weights that can be read"
    says = [
        unreadable, unreadable, unreadable, "holds no state dict",
        "it has no 'fc.bias'", "which has 'extra'", "'fc.bias' is (3,) there, (10,) here",
    ]  # fmt: skip
    for (name, write), message in zip(files.items(), says, strict=True):
        write(tmp_path / name)
        assert message in refused([*DIGITS, "--state", str(tmp_path / name)], capsys)
    torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}}, tmp_path / "wrapped.pt")
    assert main([*DIGITS, "--samples", "9", "--batch", "9", "--state", str(tmp_path / "wrapped.pt")]) == 0


class Trap:
    """What a pickle may hold: a call of the attacker's choice."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.file),)


def test_no_file_of_weights_runs_anything_unfolds_or_is_half_believed(
    model: torch.nn.Module, tmp_path: Path, capsys: Captured
) -> None:
    state, bias = model.state_dict(), model.state_dict()["fc.bias"]

    def compressed(path: Path) -> None:
        torch.save({**state, "fc.bias": torch.zeros(10_000_000)}, tmp_path / "plain.pt")
        with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
            for part in plain.infolist():
                bomb.writestr(part.filename, plain.read(part))

    def changed(value: object) -> Callable[[Path], object]:
        return lambda path: torch.save({**state, "fc.bias": value}, path)

    files: dict[str, tuple[Callable[[Path], object], str]] = {
        "trap.pt": (changed(Trap(tmp_path / "sprung")), "it asks for posix.mkdir, which no weights need"),
        "trap.pkl": (lambda path: path.write_bytes(pickle.dumps(Trap(tmp_path / "sprung"), 2)), "no weights need"),
        "opcodes.pkl": (lambda path: path.write_bytes(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R."), "no weights"),
        "bomb.pt": (compressed, "is compressed, and would unfold to 40"),
        "number.pt": (lambda path: torch.save({1: bias}, path), "holds no state dict"),
        "complex.pt": (changed(bias.to(torch.complex64)), "plain tensors of real numbers by name are needed"),
        "sparse.pt": (changed(bias.to_sparse()), "plain tensors of real numbers"),
        "meta.pt": (changed(bias.to("meta")), "plain tensors of real numbers"),
        "bool.pt": (changed(bias.bool()), "'fc.bias' holds torch.bool where torch.float32 belongs"),
        "nan.pt": (changed(bias * float("nan")), "'fc.bias' holds values that are no finite numbers"),
        "half.pt": (changed(torch.full((10,), float("inf"), dtype=torch.bfloat16)), "no finite numbers"),
    }
    for name, (write, message) in files.items():
        write(tmp_path / name)
        error = refused([*DIGITS, "--state", str(tmp_path / name)], capsys)
        assert message in error
        assert "weights_only" not in error  # torch advises to run what is in the file
    assert not (tmp_path / "sprung").exists()
