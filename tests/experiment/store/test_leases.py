"""A lease is one owner's until it runs out, and nothing but time is lost without it."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from activeprune.core.errors import InputError
from activeprune.experiment.store.leases import Leases

KEY, OTHER = "ab" * 16, "cd" * 16


class Clock:
    """A time that stands still until it is told."""

    time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leases(tmp_path: Path, clock: Clock) -> Callable[[str], Leases]:
    """Of owners by name."""
    return cache(lambda owner: Leases(tmp_path / "store", clock))


def lease_file(tmp_path: Path) -> Path:
    return tmp_path / "store" / "leases" / f"{KEY}.json"


def rewrite(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_only_one_has_it(leases: Callable[[str], Leases]) -> None:
    mine = leases("a").take(KEY)
    assert mine is not None
    assert leases("b").take(KEY) is None
    assert leases("b").take(OTHER) is not None
    mine.release()
    assert leases("b").take(KEY) is not None


def test_looking_creates_no_folder(leases: Callable[[str], Leases], tmp_path: Path) -> None:
    assert leases("a").holder(KEY) is None
    assert not (tmp_path / "store").exists()


def test_it_says_who_has_it(leases: Callable[[str], Leases], clock: Clock, tmp_path: Path) -> None:
    leases("a").take(KEY)
    held = leases("b").holder(KEY)
    assert held is not None
    assert (held.owner, held.pid, held.expires) == (leases("a").owner, os.getpid(), clock.time + 60)
    assert {*json.loads(lease_file(tmp_path).read_text())} == {"owner", "host", "pid", "expires"}


def test_it_lasts_its_time_and_no_longer(leases: Callable[[str], Leases], clock: Clock) -> None:
    leases("a").take(KEY)
    clock.time += 59.9
    assert leases("b").take(KEY) is None
    clock.time += 0.1
    assert leases("b").holder(KEY) is None
    assert leases("b").take(KEY) is not None
    assert leases("a").take(KEY) is None


def test_a_renewed_one_lasts_on(leases: Callable[[str], Leases], clock: Clock) -> None:
    mine = leases("a").take(KEY)
    assert mine is not None
    for _ in range(5):
        clock.time += 59
        assert mine.renew()
        assert leases("b").take(KEY) is None


def test_its_owner_may_take_it_again(leases: Callable[[str], Leases], clock: Clock) -> None:
    leases("a").take(KEY)
    clock.time += 59
    assert leases("a").take(KEY) is not None
    clock.time += 59
    assert leases("b").take(KEY) is None


def test_a_lost_one_is_neither_renewed_nor_released(leases: Callable[[str], Leases], clock: Clock) -> None:
    lost = leases("a").take(KEY)
    assert lost is not None
    clock.time += 60
    assert leases("b").take(KEY) is not None
    assert not lost.renew()
    lost.release()
    held = leases("c").holder(KEY)
    assert held is not None
    assert held.owner == leases("b").owner


def test_a_late_renewal_does_not_bring_back_a_released_one(leases: Callable[[str], Leases]) -> None:
    mine = leases("a").take(KEY)
    assert mine is not None
    mine.release()
    mine.release()
    assert not mine.renew()
    assert leases("b").holder(KEY) is None


def test_that_of_a_dead_process_has_run_out(leases: Callable[[str], Leases], tmp_path: Path) -> None:
    leases("a").take(KEY)
    rewrite(lease_file(tmp_path), pid=dead_process())
    assert leases("b").take(KEY) is not None


def test_that_of_another_host_has_not(leases: Callable[[str], Leases], tmp_path: Path) -> None:
    leases("a").take(KEY)
    rewrite(lease_file(tmp_path), pid=dead_process(), host="elsewhere")
    assert leases("b").take(KEY) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"{}",
        b'{"owner": "a", "host": "elsewhere", "pid": 1, "expires": Infinity}',
        b'{"owner": "a", "host": "elsewhere", "pid": 1, "expires": null}',
        b'{"owner": "a", "host": "elsewhere", "pid": -1, "expires": 1e9}',
        b'{"owner": "a", "host": "elsewhere", "pid": 1e999, "expires": 1e9}',
    ],
)
def test_one_that_cannot_be_read_is_taken_over(leases: Callable[[str], Leases], tmp_path: Path, content: bytes) -> None:
    leases("a").take(KEY)
    lease_file(tmp_path).write_bytes(content)
    assert leases("b").holder(KEY) is None
    assert leases("b").take(KEY) is not None
    assert leases("a").take(KEY) is None


def test_of_many_at_once_one_gets_it(leases: Callable[[str], Leases], tmp_path: Path, clock: Clock) -> None:
    owners = [leases(f"worker {n}") for n in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            taken = [*threads.map(lambda owner: owner.take(KEY), owners)]
            assert sum(lease is not None for lease in taken) == 1
            clock.time += 60  # and the next round takes it over
    assert [path.name for path in lease_file(tmp_path).parent.iterdir() if path.name != ".lock"] == [f"{KEY}.json"]


def test_no_two_are_the_same_owner(tmp_path: Path) -> None:
    assert Leases(tmp_path).take(KEY) is not None
    assert Leases(tmp_path).take(KEY) is None


def test_no_key_leaves_the_folder(leases: Callable[[str], Leases]) -> None:
    for use in (leases("a").take, leases("a").holder):
        with pytest.raises(InputError, match="32 digits"):
            use("../" * 11)


def test_a_full_disk_is_told_when_work_begins_and_not_in_its_middle(
    leases: Callable[[str], Leases], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = leases("a").take(KEY)
    assert mine is not None

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(InputError, match=f"{lease_file(tmp_path).parent}: the disk is full"):
            leases("b").take(OTHER)
        assert not mine.renew()
    assert [path.name for path in lease_file(tmp_path).parent.iterdir() if path.name != ".lock"] == [f"{KEY}.json"]
    assert mine.renew()


def test_one_from_before_a_clock_was_set_back_keeps_nobody_waiting(
    leases: Callable[[str], Leases], clock: Clock, tmp_path: Path
) -> None:
    leases("a").take(KEY)
    rewrite(lease_file(tmp_path), host="elsewhere")  # whose processes cannot be asked for
    clock.time -= 365 * 24 * 3600.0
    assert leases("b").holder(KEY) is None
    assert leases("b").take(KEY) is not None
    assert leases("a").take(KEY) is None


def test_clocks_of_two_hosts_may_differ_a_little(leases: Callable[[str], Leases], clock: Clock, tmp_path: Path) -> None:
    leases("a").take(KEY)
    rewrite(lease_file(tmp_path), host="elsewhere")
    clock.time -= 120.0
    assert leases("b").take(KEY) is None
