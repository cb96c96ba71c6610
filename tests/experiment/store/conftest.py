"""A store, empty or with an entry."""

from pathlib import Path

import pytest

from activeprune.experiment.store import FolderStore
from tests.experiment.store.makers import HOW, KEY, PARTS


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


@pytest.fixture
def full(store: FolderStore) -> FolderStore:
    store.put(KEY, PARTS, HOW)
    return store
