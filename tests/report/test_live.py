"""A live report is written again while its run goes on, and ends with a page that stays."""

import signal
from pathlib import Path
from typing import Any

import pytest

from activeprune.cli import main
from activeprune.core.errors import InputError
from activeprune.experiment.search import started
from activeprune.experiment.store.files import Sharing, in_use
from activeprune.report.live import LiveReport, Ongoing, Progress, ended_politely
from activeprune.report.records import RECORDS
from activeprune.report.writing import PAGE

from .pages import read


def watch(looks: list[set[str]], **given: Any) -> tuple[list[Any], LiveReport]:
    """A live report of a run that is seen like this, one after the other, and all that it does."""
    done: list[Any] = []
    seen = iter(looks)
    does = {
        "write": lambda _: done.append("page"),
        "finish": lambda _: done.append("last"),
        "wait": lambda _, seconds: done.append(seconds),
        "tell": lambda _, line: done.append(line),
        "clock": lambda _: 0.0,
    }
    asked = {name: lambda _, *more, do=do: do(done, *more) for name, do in given.items()}
    runs = {"look": lambda _: of(next(seen)), "busy": asked.pop("busy", lambda _: True)}
    going = type("Going", (Ongoing,), runs)([], list)
    return done, type("Seen", (LiveReport,), {**does, **asked})(going, Path(), every=3)


def of(missing: set[str]) -> Progress:
    return Progress(frozenset(missing), over=not missing)


def test_a_live_report_is_written_when_there_is_something_new() -> None:
    done, live = watch([{"a", "b"}, {"a", "b"}, {"a"}, {"a"}, set()])
    live.follow()
    assert done == ["page", 3.0, 3.0, "page", 3.0, 3.0, "last"]


def test_an_interrupted_live_report_ends_with_a_page_that_stays() -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for where in ("wait", "write", "busy"):
        done, live = watch([{"a"}], **{where: interrupted})
        live.follow()
        assert done[-2:] == ["writing the last page", "last"]


def test_a_run_that_nobody_works_on_is_told_of_once_until_there_is_news() -> None:
    done, live = watch([{"a", "b"}] * 3 + [{"a"}] * 2 + [set()], busy=lambda _: False)
    live.follow()
    nobody = "nobody is working on this run now"
    assert done == ["page", nobody, 3.0, 3.0, 3.0, "page", nobody, 3.0, 3.0, "last"]


def test_a_page_that_cannot_be_written_is_tried_again() -> None:
    def full(done: list[Any]) -> None:
        done.append("page")
        if done.count("page") < 3:
            raise InputError("the disk is full")

    done, live = watch([{"a"}] * 4 + [set()], write=full)
    live.follow()
    told = "the page is not written: the disk is full; it is tried again"
    assert done == ["page", told, 3.0, "page", 3.0, "page", 3.0, 3.0, "last"]


def test_a_live_report_rests_four_times_as_long_as_it_writes() -> None:
    times = iter([10.0, 12.5, 20.0, 20.1])
    done, live = watch([{"a", "b"}, {"a", "b"}, {"a"}, set()], clock=lambda _: next(times))
    live.follow()
    assert done == ["page", 10.0, 10.0, "page", 3.0, "last"]


def test_being_asked_to_end_is_an_interruption() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_politely():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_folder_is_in_use_while_a_process_shares_it(tmp_path: Path) -> None:
    assert not in_use(tmp_path)
    with Sharing(tmp_path) as folder:
        assert in_use(tmp_path)
        folder.share()
        assert in_use(tmp_path)
    assert not in_use(tmp_path)


def test_a_live_report_follows_a_run(tmp_path: Path, capsys, monkeypatch) -> None:
    going = started("smoke", tmp_path / "run", changes={"cycles": 1, "variants": "plain"})
    going.write_study()
    pages = []

    def wait(_: LiveReport, seconds: float) -> None:
        assert seconds >= 3
        pages.append(read((tmp_path / "run" / PAGE).read_text()))
        going.go()

    monkeypatch.setattr(LiveReport, "wait", wait)
    monkeypatch.setattr(LiveReport, "now", lambda _: "2026-11-16 01:02:03")
    assert main(["report", str(going.out), "--live", "--every", "3", "--no-figures"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"the page is {going.out / PAGE}")
    first, last = (f"2026-11-16 01:02:03: {count} of 2 reported trainings" for count in (0, 2))
    assert lines[1:] == [first, "nobody is working on this run now", last]
    assert [one.payload["live"] for one in pages] == [3]
    last = read((going.out / PAGE).read_text())
    assert last.payload["live"] is None
    assert last.all("img")
    assert "complete: 2 reported trainings" in last.all("main")[0].text


def test_a_second_interruption_leaves_a_page_that_stays(tmp_path: Path, capsys, monkeypatch) -> None:
    going = started("smoke", tmp_path / "run", changes={"cycles": 1, "variants": "plain"})
    going.write_study()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LiveReport, "wait", interrupted)
    monkeypatch.setattr("activeprune.report.live.draw_figures", interrupted)
    assert main(["report", str(going.out), "--live"]) != 0
    assert "writing the last page" in capsys.readouterr().err.splitlines()
    assert read((going.out / PAGE).read_text()).payload["live"] is None
    assert (going.out / RECORDS).is_file()
