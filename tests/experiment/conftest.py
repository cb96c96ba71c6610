"""Shared by the tests of studies."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.experiment.makers import go


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    go(folder)
    return folder


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
