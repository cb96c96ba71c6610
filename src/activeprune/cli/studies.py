"""`activeprune run`, and the table that it prints."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import torch
import typer
from rich.tree import Tree

from ..core.errors import InputError
from ..experiment.findings import summaries
from ..experiment.jobs import Job
from ..experiment.outlook import Outlook, outlook
from ..experiment.plan.reading import assignments
from ..experiment.search import WINNER_FILE, Search, started
from ..experiment.work import speed
from ..experiment.work.compute import SECONDS_BETWEEN_CHECKPOINTS
from ..experiment.work.observer import Observer
from ..extras import need
from ..machine import cores
from ..report.gathering import Gathered, gathered
from ..report.rates import dead_table
from ..report.tables import about, accuracy_table
from ..report.wording import counted
from ..training.choosing import Engines
from .progress import clock, named, observer
from .show import AsJson, print_json, print_rich, print_table, show_table

MOST_PROCESSES = 8  # by default, however many cores there are


def run(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="A name (activeprune list studies) or a YAML file.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the results; runs/STUDY by default.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of all that is computed; .store beside DIR by default.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key (see: list keys); repeatable."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, ...; short for --set device=NAME.")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B,C", help="Run the study for each of several values (repeatable)."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be computed, and stop.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="With --dry-run: time a few training steps for the estimate.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help=f"Processes at once [one a core on a CPU, {MOST_PROCESSES} at most; one on a GPU]."
        ),
    ] = None,
    pack: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Networks trained at once on a GPU, at most [as many as are fastest]."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Also write rows.csv.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run a study: compute what its store lacks, print the table. After an interruption the same command goes on."""
    changed = assignments([*(changes or ()), *([f"device={device}"] if device else ())])
    job = started(study, out, store, changed, _lists(grid or ()))
    if measure and not dry_run:
        raise InputError("--measure belongs to --dry-run: a run measures as it goes")
    if tensorboard:
        need("tensorboard")
    count = processes or (min(cores(), MOST_PROCESSES) if job.device.type == "cpu" else 1)
    if dry_run:
        tell = partial(print, file=sys.stderr, flush=True)
        ahead = _looked_ahead(job, count, Engines(job.device, pack, tell) if measure else None)
        if ahead.missing:
            _tell_of_absent_data(job)
        print_json(ahead.as_dict()) if as_json else _print_outlook(job, ahead)
        return 0
    with _watched(job, quiet, count) as watching:
        outcome = job.go(watching, count, pack)
    for single in job.runs.values():
        if as_csv:
            single.write_csv()
        if tensorboard:
            single.write_tensorboard()
    found = found_in(job)
    print_json(told(job, found)) if as_json else print_results(job, found)
    lines = {run.title: [one.failed for one in run.trainings if one.failed is not None] for run in found}
    of_trainings = [f"{of} {line}" if len(found) > 1 else line for of, own in lines.items() for line in own]
    of_prunings = outcome.failed if quiet else []  # otherwise the log has told of them
    for line in (*of_prunings, *of_trainings):
        print(f"failed: {line}", file=sys.stderr)
    if not quiet:
        print(f"results are in {job.out}: activeprune report {quote(str(job.out))} prints them again", file=sys.stderr)
    return 1 if outcome.failed or of_trainings or outcome.blocked else 0


@contextmanager
def _watched(job: Job, quiet: bool, processes: int) -> Iterator[Observer]:
    """Somebody who tells on the terminal how a job goes, and after an interrupt how to go on."""
    watching = observer(quiet, named(job.plan), _where(job.device, processes))
    try:
        yield watching
    except KeyboardInterrupt:
        saved = f"and in a long training from its last checkpoint (every {SECONDS_BETWEEN_CHECKPOINTS:.0f} s)"
        print(f"interrupted: the same command goes on from the last finished step, {saved}", file=sys.stderr)
        raise
    finally:
        watching.close()


def _where(device: torch.device, processes: int) -> str:
    """The place where steps are computed, and why that is no GPU."""
    if device.type != "cpu":
        return f"on {torch.cuda.get_device_name(device) if device.type == 'cuda' else device}"
    why = "" if torch.cuda.is_available() else "; torch finds no GPU here"
    return f"on the CPU, up to {processes} at a time{why}"


def _lists(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Lists of values from "key=a,b,c"."""
    lists: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        found = assignments([f"{key}=[{values}]" if equals else text])
        if lists.keys() & found.keys():
            raise InputError(f"--grid {key} stands there twice: --grid {key}=A,B gives it several values")
        lists |= found
    return lists


def _looked_ahead(job: Job, processes: int, engines: Engines | None) -> Outlook:
    """With engines, speeds that nobody knows yet are measured with these."""
    speeds = speed.known(job.store, job.device)
    if engines is not None:
        for training, count in job.plan.todo(job.store).abreast().most_common():
            if (seen := speeds.of(training)) is None or not seen.of_one:
                speeds.add(training, speed.measured(training, engines, count))
    return outlook(job.plan, job.store, speeds, processes)


def _tell_of_absent_data(job: Job) -> None:
    """Not an error: a run may be planned on one machine and computed on another."""
    for path in {study.training.data.path for study in job.studies}:
        if path is not None and not path.exists():
            print(f"data.path = {path}: there is no such folder here, and the run will need it", file=sys.stderr)


def _print_outlook(job: Job, found: Outlook) -> None:
    tree = Tree(f"{job.out}: {_about(job)}")
    several = len(job.studies) > 1
    among = "variants and studies" if several else "variants"
    trainings = tree.add(
        f"{found.trainings} trainings: {found.shared} shared by several {among}, "
        f"{found.trainings - found.missing} in the store, {found.missing} to do"
    )
    for variant, count in found.by_variant.items():
        branch = trainings.add(f"{variant}: {count}")
        for line in () if several else _cells(job, variant):
            branch.add(line)
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.steps.items())
    tree.add(f"{sum(found.steps.values())} steps ({kinds}), {found.steps_missing} to do")
    time = "not measured yet (see --measure)" if found.seconds is None else f"about {clock(found.seconds)}"
    tree.add(f"time: {time}; disk: about {found.disk / 1e6:.1f} MB")
    print_rich(tree)


def _cells(job: Job, variant: str) -> Iterator[str]:
    """The cells of a variant of a single study, with λ as it will be but for rounding."""
    lambdas = {cell.cycle: cell.density for cell in job.plan.cells if cell.variant == variant}
    (study,) = job.studies
    for cell in summaries(job.rows()):
        if cell.variant == variant:
            seeds = f"{cell.seeds} of {counted(len(study.seeds), 'seed')} in the store"
            yield f"cycle {cell.cycle}, λ {lambdas[cell.cycle]:.1%}: {seeds}"


def _about(job: Job) -> str:
    if len(job.studies) > 1:
        return f"a grid of {len(job.studies)} studies"
    (study,) = job.studies
    return f"{about(study)}, {counted(study.cycles, 'cycle')}"


def found_in(job: Job) -> list[Gathered]:
    """What is known now of a run, or of those of a grid, which have their labels in their titles."""
    titles = {label: f"{job.out.name} {label}" if label else job.out.name for label in job.runs}
    return [replace(gathered(run), title=titles[label]) for label, run in job.runs.items()]


def told(job: Job | None, found: Sequence[Gathered]) -> dict[str, Any]:
    """What was found, for JSON; several have `studies`, of a grid with their place in it and their validation accuracy.

    Without a job: what an earlier report wrote down.
    """
    own = [run.as_dict() for run in found]
    if not isinstance(job, Search):
        return own[0] if len(own) == 1 else {"studies": own}
    known = job.validation()
    studies = [
        {"label": label, "validation": known.get(label), **one} for label, one in zip(job.runs, own, strict=True)
    ]
    return {"studies": studies, "best": job.best()}


def print_results(job: Job | None, found: Sequence[Gathered]) -> None:
    """The tables of what was found, and the winner of a grid."""
    for run in found:
        _print_run(run)
    if isinstance(job, Search):
        known = job.validation()
        ranked = sorted(known, key=lambda label: -known[label])
        rows = [{"study": label, "validation": f"{100 * known[label]:.2f}"} for label in ranked]
        if rows:
            print_table(rows, title="mean validation accuracy in % of the studies that are finished")
            print(f"best by validation accuracy: {ranked[0]} (written to {job.out / WINNER_FILE})")


def _print_run(run: Gathered) -> None:
    """Accuracies, dead neurons, and where AP had fewer negative weights to choose from than its share."""
    for table in (accuracy_table(run), dead_table(run)):
        if table is not None:
            show_table(table)
    for one in run.trainings:
        if one.shortfall:
            instead = "others that moved least" if one.variant == "solo" else f"by {run.study.method.name}"
            print(
                f"{one.variant} cycle {one.cycle} seed {one.seed}: "
                f"AP's rule was {one.shortfall} weights short; as many were removed {instead}"
            )
