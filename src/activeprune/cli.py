"""The command line: `activeprune --help`."""

from __future__ import annotations

import io
import json
import platform
import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from . import __version__, machine
from .bench import prune as bench_prune
from .core.activation import RULES
from .core.errors import InputError, unknown
from .core.methods import METHODS
from .core.registry import Registry
from .data import DATASETS
from .data.cache import directory as data_cache
from .extras import EXTRA_OF, present
from .networks import NETWORKS
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
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("list", epilog="Example:  activeprune list methods --json")
def list_(
    topic: Annotated[
        str | None, typer.Argument(help="methods, rules, networks, data or paper; everything without it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the pruning methods, AP's rules, the networks, the data sets and the paper's published tables."""
    topics: dict[str, Any] = {
        "methods": lambda: [_method_row(name) for name in METHODS],
        "rules": lambda: [_summary_row(RULES, name) for name in RULES],
        "networks": lambda: [_summary_row(NETWORKS, name) for name in NETWORKS],
        "data": lambda: [_summary_row(DATASETS, name) for name in DATASETS],
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
        if usage is None and not isinstance(error, InputError):
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
