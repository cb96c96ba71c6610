"""Processes that work on one run: what they share, and what they tell each other."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from activeprune.experiment.errand import Errand
from activeprune.experiment.helper import Orphan, Telling
from activeprune.experiment.plan import Plan
from activeprune.experiment.plan.reading import read_study
from activeprune.experiment.plan.steps import Step
from activeprune.experiment.search import started
from activeprune.experiment.store.artifacts import RECORD
from activeprune.experiment.store.leases import Leases
from activeprune.experiment.work import queue
from activeprune.experiment.work.helpers import Helpers
from activeprune.experiment.work.observer import Observer
from tests.experiment.makers import TINY, Counting, Listening, contents

KEY = "ab" * 16


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
    listening = Listening()
    run = started("smoke", tmp_path / "run", changes=TINY)
    run.write_study()
    missing = run.plan.todo(run.store).missing
    with Helpers(Errand(run.out, os.getpid()).command, 1, run.plan, listening):
        told = listening.told(len(missing))
    assert {*told} == {*missing}
    assert contents(tmp_path / ".store") == contents(finished / ".store")


def test_a_helper_that_breaks_is_reported(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes=TINY)
    run.write_study()
    (tmp_path / "run" / "study.yaml").write_text("no: study")
    listening = Listening()
    with Helpers(Errand(run.out, os.getpid()).command, 1, run.plan, listening):
        why, ended = listening.told(2)
    assert "must hold keys and values" in why
    assert "a helper process ended with code 1" in ended
    assert listening.lines.empty()


@pytest.mark.parametrize("pack", [None, 8])
def test_a_helper_reads_what_its_command_says(pack: int | None) -> None:
    errand = Errand(Path("runs") / "a b", 4711, pack)
    python, _, module, *arguments = errand.command
    assert (python, module) == (sys.executable, Telling.__module__)
    assert Errand.read(arguments) == errand


def test_a_step_that_another_process_holds_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process is this test: it computes the step while the run waits for it."""
    run = started("smoke", tmp_path / "run", changes=TINY)
    other = started("smoke", tmp_path / "run", changes=TINY)
    first = run.plan.todo(run.store).ready[0]
    lease = Leases(run.store.root).take(first.key)
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


@pytest.mark.slow
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
    helper = Errand(Path("runs/own"), os.getpid()).command
    subprocess.run(helper, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert len(list((tmp_path / "runs" / ".store" / "objects").rglob(RECORD))) == 3
    report = [sys.executable, "-c", code, "report", "runs/own", "--no-figures", "--no-page"]
    assert "λ 80.0 %" in subprocess.run(
        report, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    ).stdout  # fmt: skip


@pytest.mark.slow
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
    assert "λ 80.0 %" in run("report", "runs/noisy", "--no-figures", "--no-page").stdout
    failed = run("--import", "noisy", "run", "smoke", "--set", "method=broken", "--out", "runs/broken", *small)
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
    assert len({line for line in failed.stderr.splitlines() if "ZeroDivisionError" in line}) == 2
    assert "missing" in failed.stdout


def test_an_event_is_a_line_of_json() -> None:
    events = io.StringIO()
    telling = Telling(os.getppid(), events)
    telling.started(None)
    telling.trouble("a\nb")
    assert [json.loads(line) for line in events.getvalue().splitlines()] == [{"event": "trouble", "line": "a\nb"}]


def test_who_has_lost_the_process_that_asked_does_no_more_work() -> None:
    events = io.StringIO()
    lost = Telling(os.getppid() + 1, events)
    for tell in (lambda: lost.started(None), lambda: lost.trouble("line")):
        with pytest.raises(Orphan):
            tell()
    assert events.getvalue() == ""


def test_a_pipe_that_nobody_reads_is_the_end_of_the_work() -> None:
    read, write = os.pipe()
    os.close(read)
    events = os.fdopen(write, "w")
    with pytest.raises(Orphan):
        Telling(os.getppid(), events).trouble("line")
    with pytest.raises(BrokenPipeError):
        events.close()


class Noting(Observer):
    def __init__(self) -> None:
        self.seen: list = []

    def finished(self, step: Step, seconds: float) -> None:
        self.seen.append((step.key, seconds))

    def trouble(self, line: str) -> None:
        self.seen.append(line)


def test_of_what_a_helper_tells_only_steps_of_this_plan_are_passed_on() -> None:
    plan, noting = Plan(read_study("smoke", {"seeds": 1})), Noting()
    helpers = Helpers([], 0, plan, noting)
    known = plan.trainings[0].key
    for event in (
        {"event": "finished", "key": known, "seconds": 2.5},
        {"event": "finished", "key": KEY, "seconds": 1.0},
        {"event": "trouble", "line": "the disk is full"},
    ):
        helpers._relay(event)
    assert noting.seen == [(known, 2.5), "the disk is full"]
