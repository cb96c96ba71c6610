"""The command line: `activeprune --help`."""

from __future__ import annotations

import io
import json
import os
import platform
import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from . import __version__, machine
from .bench import prune as bench_prune
from .core.activation import RULES
from .core.errors import InputError, unknown
from .core.methods import METHODS
from .core.registry import Registry
from .data import DATASETS
from .data.cache import directory as data_cache
from .experiment.findings import Summary, summaries
from .experiment.outlook import outlook
from .experiment.packing import pack, unpack
from .experiment.reading import assignments, read_grid, study_names
from .experiment.runs import IMPORTS, LARGE, Run, collect, registered
from .experiment.search import WINNER_FILE, Search
from .experiment.store import Damaged, FolderStore, Missing
from .extras import EXTRA_OF, present
from .networks import NETWORKS
from .progress import clock, observer
from .report import paper

app = typer.Typer(
    name="activeprune",
    help="Prune neural networks with any method X, and wake their dead neurons up (AP).",
    epilog="Example:  activeprune list methods",
    add_completion=False,
    rich_markup_mode=None,
)
bench = typer.Typer(
    help="Measure speed and memory, as ratios within one run.",
    epilog="Example:  activeprune bench prune --network vgg19",
    rich_markup_mode=None,
)
app.add_typer(bench, name="bench")
store_app = typer.Typer(
    help="Look after a store: what is in it, whether it is whole, what can go, and taking it elsewhere.",
    epilog="Example:  activeprune store verify runs/.store",
    rich_markup_mode=None,
)
app.add_typer(store_app, name="store")
StoreFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the store, such as runs/.store.")]

MOST_PROCESSES = 8  # by default, however many cores there are
LOG_WIDTH = 120  # columns of a table that goes to a file or a pipe

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.callback(invoke_without_command=True)
def common_options(
    context: typer.Context,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import a Python module that registers methods (repeatable)."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Options of every command; they may stand anywhere on the line."""
    if version:
        print(f"activeprune {__version__}")
        raise typer.Exit
    for module in modules or ():
        _import(module)
    if modules:
        os.environ[IMPORTS] = ",".join(modules)
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("list", epilog="Example:  activeprune list methods --json")
def list_(
    topic: Annotated[
        str | None, typer.Argument(help="methods, rules, networks, data, studies or paper; all without it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the pruning methods, AP's rules, networks, data sets, studies and the paper's published tables."""
    topics: dict[str, Any] = {
        "methods": lambda: [_method_row(name) for name in METHODS],
        "rules": lambda: [_summary_row(RULES, name) for name in RULES],
        "networks": lambda: [_summary_row(NETWORKS, name) for name in NETWORKS],
        "data": lambda: [_summary_row(DATASETS, name) for name in DATASETS],
        "studies": lambda: [{"name": name, "what it is": about} for name, about in study_names().items()],
        "paper": lambda: [{"name": name, "what it holds": line} for name, line in paper.tables().items()],
    }
    if topic is not None and topic not in topics:
        raise unknown("topic", topic, topics)
    rows = {name: of() for name, of in topics.items() if topic in (None, name)}
    if as_json:
        _print_json(rows)
        return
    for name, table in rows.items():
        _print_table(table, title=name)


@app.command(
    "run",
    epilog="Example:  activeprune run table1 --set seeds=1 --set data.path=DIR --dry-run",
)
def run_(
    study: Annotated[str, typer.Argument(help="A study by name (activeprune list studies) or a YAML file.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the results; runs/STUDY by default.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of all that is computed; .store beside DIR by default.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the study (repeatable).")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B,C", help="Run the study for each of several values (repeatable)."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be computed, and stop.")] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes that work at once [one a core on a CPU, one on a GPU].")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Also write rows.csv.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run a study: compute what its store lacks, print the table. After an interruption the same command goes on."""
    folder = out or Path("runs") / Path(study).stem
    search = Search.new(read_grid(study, assignments(changes or ()), _grid(grid or ())), folder, store)
    runs = search.runs
    if len(runs) == 1:  # no grid: its results go into the folder itself
        (only,) = runs.values()
        runs = {"": Run(only.study, folder, only.store)}
    if dry_run and as_json:
        told = [outlook(chosen.plan, chosen.store).as_dict() for chosen in runs.values()]
        _print_json(told[0] if len(told) == 1 else dict(zip(runs, told, strict=True)))
        return 0
    if dry_run:
        for chosen in runs.values():
            _print_outlook(chosen)
        return 0
    if len(runs) > 1:
        search.register()
    watching = observer(quiet)
    blocked = 0
    try:
        for chosen in runs.values():
            alone = chosen.device != "cpu"
            count = processes or (1 if alone else min(os.cpu_count() or 1, MOST_PROCESSES))
            outcome = chosen.go(watching, count)
            blocked += len(outcome.blocked) + len(outcome.failed)
            for line in outcome.failed if quiet else ():
                print(f"failed: {line}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from the last finished step or epoch", file=sys.stderr)
        raise
    finally:
        watching.close()
    failed = 0
    for label, chosen in runs.items():
        if as_csv:
            chosen.write_csv()
        if tensorboard:
            chosen.write_tensorboard()
        if label:
            print(label)
        _print_results(chosen, as_json)
        failed += _print_failures(chosen)
    if not quiet and len(runs) == 1:
        print(f"results are in {folder}: activeprune report {folder} prints them again", file=sys.stderr)
    if len(runs) > 1 and (best := search.write_winner()):
        print(f"best by validation accuracy: {best} (written to {folder / WINNER_FILE})")
    return 1 if failed or blocked else 0


@app.command(epilog="Example:  activeprune report runs/table1")
def report(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")], as_json: AsJson = False
) -> None:
    """Print the table of a run, finished or not."""
    _print_results(Run.opened(run), as_json)


@store_app.command("ls", epilog="Example:  activeprune store ls runs/.store")
def store_ls(folder: StoreFolder, as_json: AsJson = False) -> None:
    """List what is in a store: kind, parts, size, when and where it was computed."""
    store = _existing(folder)
    rows = [{"key": entry.key, "bytes": entry.size, **store.provenance(entry.key)} for entry in store.list()]
    if as_json:
        _print_json(rows)
        return
    shown = [
        {
            "key": row["key"],
            "kind": str(row.get("kind", "")),
            "size": f"{row['bytes'] / 1e6:.2f} MB",
            "seconds": f"{row.get('seconds', 0):.1f}",
            "finished": str(row.get("finished", "")),
        }
        for row in rows
    ]
    if shown:
        _print_table(shown)
    print(f"{len(rows)} entries, {store.size() / 1e6:.1f} MB")


@store_app.command("verify", epilog="Example:  activeprune store verify runs/.store")
def store_verify(folder: StoreFolder) -> int:
    """Check every entry against its checksums; damaged ones are set aside, and the next run computes them again."""
    problems = _existing(folder).verify()
    for problem in problems:
        print(problem)
    print(f"{len(problems)} damaged")
    return 1 if problems else 0


@store_app.command("gc", epilog="Example:  activeprune store gc runs/.store")
def store_gc(folder: StoreFolder) -> None:
    """Remove weights that no run of this store still needs (see the key `keep` of a study), and left-over files."""
    store = _existing(folder)
    freed = collect(store, ()) + store.sweep()
    print(f"{freed / 1e6:.1f} MB freed, {store.size() / 1e6:.1f} MB left")


@store_app.command("pack", epilog="Example:  activeprune store pack runs/.store table1.tar")
def store_pack(
    folder: StoreFolder,
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    states: Annotated[bool, typer.Option("--states", help="Also the weights that one more cycle would need.")] = False,
) -> None:
    """Write what is needed to go on elsewhere (masks and records) into one file."""
    store = _existing(folder)
    needed = {pair for run in registered(store.root) for pair in run.frontier()} if states else set()
    entries = [
        (entry.key, [part for part in entry.parts if part not in LARGE or (entry.key, part) in needed])
        for entry in store.list()
    ]
    count = pack(store, file, [(key, parts) for key, parts in entries if parts])
    print(f"{count} entries in {file}")


@store_app.command("unpack", epilog="Example:  activeprune store unpack table1.tar runs/.store")
def store_unpack(file: Annotated[Path, typer.Argument(help="What `store pack` wrote.")], folder: StoreFolder) -> None:
    """Merge a packed file into a store."""
    found = unpack(file, FolderStore(folder))
    print(f"{found.added} added, {found.present} were there")


@bench.command("prune", epilog="Example:  activeprune bench prune --network vgg19 --repeats 5")
def bench_prune_(
    network: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="vgg19 (20M weights) or vit_b16 (86M); both without it.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Timed repetitions; the median counts.")] = 5,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, ...")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Time one global pruning step (score, select, new masks) against torch.nn.utils.prune."""
    place, rows = machine.device(device), []
    for row in bench_prune.run(network or list(bench_prune.SIZES), place, repeats):
        rows.append(row)
        print(f"{row.network}: {row.step} {row.seconds:.3f} s", file=sys.stderr, flush=True)
    if as_json:
        _print_json({"machine": machine.described(place), "rows": [row.as_dict() for row in rows]})
        return
    shown = [
        {
            "network": row.network,
            "weights": f"{row.weights:,}",
            "step": row.step,
            "seconds": f"{row.seconds:.3f}",
            "× faster": f"{row.times_faster_than_torch:.1f}",
            "× magnitude": "" if row.times_global_magnitude is None else f"{row.times_global_magnitude:.1f}",
            "memory": "not measured" if row.extra_memory is None else f"{row.extra_memory:.2f}",
        }
        for row in rows
    ]
    _print_table(shown, title=f"one pruning step ({machine.described(place)})")
    print(
        "× faster: than torch.nn.utils.prune; × magnitude: cost against global_magnitude; memory: peak extra / weights"
    )


@app.command(epilog="Example:  activeprune doctor")
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has: versions, devices, optional packages."""
    rows = {
        "activeprune": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": machine.described(torch.device("cpu")),
        "cuda": ", ".join(machine.gpus()) or "no GPU that this torch can use",
    }
    rows["data cache"] = str(data_cache())
    for package, extra in EXTRA_OF.items():
        rows[package] = "installed" if present(package) else f"missing: pip install 'activeprune[{extra}]'"
    if as_json:
        _print_json(rows)
    else:
        _print_table([{"what": what, "found": found} for what, found in rows.items()])


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit code: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show λ still gets the rest
    given = _common_first(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(given, prog_name="activeprune", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        usage = getattr(error, "format_message", None)  # click's errors have it, wherever typer keeps click
        if usage is None and not isinstance(error, (InputError, Damaged, Missing)):
            raise
        if "--debug" in given:
            traceback.print_exc()
        return _fail(f"{usage()} (see --help)" if usage else str(error), 2)
    if code == 130:  # some versions of typer turn an interrupt into this code themselves
        return _fail("interrupted", 130)
    return code if isinstance(code, int) else 0


def _common_first(arguments: list[str]) -> list[str]:
    """The options of every command moved to the front, where the parser wants them."""
    common, rest = [], []
    queue = iter(arguments)
    for argument in queue:
        if argument == "--import":
            common += [argument, *(value for value in [next(queue, None)] if value is not None)]
        elif argument in ("--debug", "--version") or argument.startswith("--import="):
            common.append(argument)
        else:
            rest.append(argument)
    return common + rest


def _fail(message: str, code: int) -> int:
    print(f"activeprune: {' '.join(message.split())}", file=sys.stderr)
    return code


def _import(module: str) -> None:
    if "" not in sys.path:
        sys.path.insert(0, "")  # the installed command does not look into the current folder by itself
    try:
        import_module(module)
    except (Exception, SystemExit) as error:  # whatever a stranger's module does when it is imported
        raise InputError(f"--import {module}: {type(error).__name__}: {error}") from error


def _existing(folder: Path) -> FolderStore:
    if not (folder / "objects").is_dir():
        raise InputError(f"{folder} is no store: runs/.store is the usual place")
    return FolderStore(folder)


def _grid(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Lists of values from "key=a,b,c"."""
    return {key: value for text in texts for key, value in assignments([f"{text.replace('=', '=[', 1)}]"]).items()}


def _print_failures(run: Run) -> int:
    failed = [row for row in run.rows() if row["failure"] is not None]
    for row in failed:
        why = row["failure"]
        print(
            f"failed: {row['variant']} cycle {row['cycle']} seed {row['seed']}: "
            f"loss {why['loss']} at step {why['step']} (epoch {why['epoch']}, learning rate {why['lr']:.4g})",
            file=sys.stderr,
        )
    return len(failed)


def _print_outlook(run: Run) -> None:
    found = outlook(run.plan, run.store)
    study = run.study
    tree = Tree(
        f"{run.out}: {study.training.network.name} on {study.training.data.name}, {study.method.name}, "
        f"chain {study.which_chain}, {len(study.seeds)} seeds, {study.cycles} cycles"
    )
    trainings = tree.add(
        f"{found.trainings} trainings: {found.shared} shared by several variants, "
        f"{found.trainings - found.missing} in the store, {found.missing} to do"
    )
    for variant, count in found.by_variant.items():
        trainings.add(f"{variant}: {count}")
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.steps.items())
    tree.add(f"{sum(found.steps.values())} steps ({kinds}), {found.steps_missing} to do")
    time = "not known before the first training" if found.seconds is None else f"about {clock(found.seconds)}"
    tree.add(f"time: {time}; disk: about {found.disk / 1e6:.1f} MB")
    Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else LOG_WIDTH).print(tree)


def _print_results(run: Run, as_json: bool) -> None:
    """Variants in rows, densities in columns; accuracies in per cent."""
    cells = summaries(run.rows())
    if as_json:
        _print_json({"study": run.study.model_dump(mode="json"), "cells": [cell.as_dict() for cell in cells]})
        return
    columns = sorted({cell.cycle for cell in cells})
    density: dict[int, float] = {}
    for cell in cells:
        if cell.density is not None:
            density.setdefault(cell.cycle, cell.density)
    heads = {cycle: f"λ {density[cycle]:.1%}" if cycle in density else f"cycle {cycle}" for cycle in columns}
    if len(set(heads.values())) < len(heads):
        heads = {cycle: f"{head} (cycle {cycle})" for cycle, head in heads.items()}
    rows = []
    for variant in run.study.variants:
        own = {cell.cycle: cell for cell in cells if cell.variant == variant}
        texts = {heads[cycle]: _cell_text(own[cycle], density.get(cycle)) for cycle in columns}
        rows.append({"variant": variant, **texts})
    seeds = len(run.study.seeds)
    _print_table(rows, title=f"test accuracy in %, mean ± std over {seeds} seed{'s' if seeds > 1 else ''}")


def _cell_text(cell: Summary, head: float | None) -> str:
    """Mean and deviation, and the cell's own λ where it is not the column's."""
    if cell.mean is None:
        return "failed" if cell.failed else "missing"
    text = f"{cell.mean:.2%}".removesuffix("%") + ("" if cell.std is None else f" ± {100 * cell.std:.2f}")
    if cell.density != head:
        text += f" at λ {cell.density:.1%}"
    gone = len(cell.missing) + len(cell.failed)
    return f"{text} ({cell.seeds} of {cell.seeds + gone})" if gone else text


def _method_row(name: str) -> dict[str, str]:
    try:
        method = METHODS[name]
    except InputError as error:  # an installed package's; the others are still worth listing
        return {"name": name, "score": str(error), "scope": "", "chain": "", "batches": "", "options": ""}
    return {
        "name": name,
        "score": method.summary,
        "scope": method.scope,
        "chain": method.chain or "any",
        "batches": str(method.batches or ""),
        "options": ", ".join(f"{option}={default}" for option, default in method.options.items()),
    }


def _summary_row(things: Registry[Any], name: str) -> dict[str, str]:
    try:
        return {"name": name, "what it is": things[name].summary}
    except InputError as error:
        return {"name": name, "what it is": str(error)}


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False))


def _print_table(rows: Iterable[dict[str, str]], title: str | None = None) -> None:
    rows = list(rows)
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    Console(markup=False, width=None if sys.stdout.isatty() else LOG_WIDTH).print(table)
