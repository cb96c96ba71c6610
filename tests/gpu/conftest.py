"""What the tests on a GPU have in common."""

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch


@pytest.fixture
def waiting_is_an_error() -> Iterator[Callable[[], None]]:
    """From the first call of the fixture's value on."""

    def watch(mode: str = "error") -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls this mode a prototype, once in a process
            torch.cuda.set_sync_debug_mode(mode)

    yield watch
    watch("default")
