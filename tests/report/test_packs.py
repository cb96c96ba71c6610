"""Where the time of packs went, against sums by hand and a run that was really packed."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from activeprune.experiment.search import started
from activeprune.machine import CPU
from activeprune.report.efforts import packs_table
from activeprune.report.gathering import gathered
from activeprune.report.layout import plain
from activeprune.report.packs import PAUSE, packs, sittings
from activeprune.report.trainings import Work
from activeprune.training.choosing import Engines
from activeprune.training.engine import Eager
from tests.report.makers import made

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
IMAGES = 1000  # that each training saw


def pack(size: int, began: float, seconds: float, rate: float, known: int | None = None) -> list[Work]:
    """Trainings that began so many seconds after noon; the store keeps one after the other, half a second each."""
    ends = [NOON + began + seconds + number // 2 for number in range(known or size)]
    written = [datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for end in ends]
    share = seconds / size
    return [
        Work(f"{began}-{number}", ("plain",), share, size, IMAGES, rate, text) for number, text in enumerate(written)
    ]


def test_shares_of_a_sitting() -> None:
    """Ten trainings in 40 s, a pause of 10 s, and two in 50 s: 90 s of 100 in packs, 20 + 40 of them in steps."""
    alone, waiting = Work("alone", ("plain",), 7.0), Work("waiting", ("plain",))
    work = [*pack(2, 50, 50, 50.0), alone, *pack(10, 0, 40, 500.0), waiting]
    (one,) = sittings(work)
    assert [found.trainings for found in one.packs] == [10, 2]
    assert f"{one.began:%H:%M:%S}" == "12:00:00"
    assert (one.seconds, one.trainings) == (100.0, 12)
    assert (one.in_packs, one.in_steps) == pytest.approx((0.9, 0.6))
    assert one.images_per_second == pytest.approx(120.0)


def test_packs_of_processes_side_by_side_cover_a_time_once() -> None:
    """100 s, of which 20 to 30 without any: one pack of 60 s at the end lies beside two of 20 and 30."""
    work = [*pack(2, 0, 20, 50.0), *pack(3, 30, 20, 40.0), *pack(4, 40, 60, 100.0), *pack(5, 60, 30, 125.0)]
    (one,) = sittings(work)
    assert (one.seconds, one.trainings) == (100.0, 14)
    assert one.in_packs == pytest.approx(0.9)
    assert one.in_steps == pytest.approx((40 + 75 + 40 + 40) / 100)


def test_a_sitting_begins_with_what_begins_first() -> None:
    (one,) = sittings([*pack(2, 10, 20, 50.0), *pack(3, 0, 100, 40.0)])
    assert (f"{one.began:%H:%M:%S}", one.seconds, one.in_packs) == ("12:00:00", 100.0, 1.0)


def test_a_long_pause_begins_another_sitting() -> None:
    work = [*pack(4, 0, 100, 100.0), *pack(4, 100 + PAUSE, 100, 101.0), *pack(3, 300 + 2 * PAUSE, 99, 100.0)]
    assert [[found.trainings for found in one.packs] for one in sittings(work)] == [[4, 4], [3]]


def test_a_pack_of_which_a_run_knows_some_members_counts_whole() -> None:
    (found,) = packs(pack(8, 0, 80, 100.0, known=3))
    assert (found.trainings, found.images, found.in_steps) == (8, 8000, 80.0)
    assert found.ended - found.began == pytest.approx(80.0)


def test_where_nothing_went_together_there_is_no_table() -> None:
    assert packs_table(made("table1", {("plain", 2): [90.0]})) is None


class Beside(Eager):
    """As if its networks did not take turns."""


def test_networks_that_take_turns_do_not_go_together(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes={"seeds": 2, "variants": ["plain"], "cycles": 1})
    run.go(pack=2)
    assert packs_table(gathered(run)) is None


def test_of_a_run_in_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engines, "engine", lambda engines, training, *_: Beside(training, CPU))
    run = started("smoke", tmp_path / "run", changes={"seeds": 3, "variants": ["plain", "ap_lite"], "cycles": 1})
    run.go(pack=3)
    seen = gathered(run)
    (one,) = sittings(seen.work)
    assert one.trainings == len(run.plan.trainings) == len(seen.work)
    assert all(found.trainings <= 3 for found in one.packs)
    steps = sum(training.epochs[-1]["step"] for training in seen.trainings if training.variant == "plain")
    images = {work.images for work in seen.work}
    assert images == {steps * run.study.training.batch // 6}  # three seeds, dense and pruned, all of one length
    in_steps = sum(work.images / work.images_per_second for work in seen.work)
    assert one.in_steps * one.seconds == pytest.approx(in_steps)  # however long all that took
    in_packs = sum(work.seconds or 0.0 for work in seen.work)
    in_packs = min(in_packs, one.seconds)  # ends are told in whole seconds: packs of a quick run seem to overlap
    assert one.in_packs * one.seconds == pytest.approx(in_packs, abs=1e-5)  # of seconds since 1970
    table = packs_table(seen)
    assert table is not None
    assert [plain(cell) for cell in table.rows[0][1:3]] == [str(len(one.packs)), str(one.trainings)]
