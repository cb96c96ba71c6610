"""Shared by the tests of data: a cache folder of their own, and the real CIFAR once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.real import official_cifar


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ACTIVEPRUNE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def real_cifar10(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return official_cifar("cifar10", tmp_path_factory.mktemp("cifar10"))


@pytest.fixture(scope="session")
def real_cifar100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return official_cifar("cifar100", tmp_path_factory.mktemp("cifar100"))
