"""The command line: `activeprune --help`."""

from __future__ import annotations

import io
import logging
import platform
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import torch
import typer
from pydantic.fields import FieldInfo

from .. import machine
from ..core.activation import RULES
from ..core.errors import InputError, unknown
from ..core.methods import METHODS
from ..core.registry import Registry
from ..data import DATASETS
from ..data.cache import directory as data_cache
from ..experiment.imports import ask_for
from ..experiment.plan.reading import KEYS, study_keys, study_names
from ..experiment.plan.study import CHAINS, VARIANTS
from ..experiment.store import Damaged, Missing
from ..extras import EXTRA_OF, present
from ..networks import NETWORKS
from ..report import paper
from ..training.fused.compiling import why_no_kernels
from ..version import __version__
from . import benches, dnr, reports, stores, studies
from .show import AsJson, print_json, print_table, visible

LONGEST_LINE = 2000  # characters of an error

app = typer.Typer(
    name="activeprune",
    help="Prune neural networks with any method X, and wake their dead neurons up (AP).",
    epilog="Example:  activeprune run demo && activeprune report runs/demo",
    add_completion=False,
    rich_markup_mode=None,
)
app.command(epilog="Example:  activeprune run smoke --set seeds=2 --set method=lamp")(studies.run)
app.command(epilog="Example:  activeprune report runs/smoke --open")(reports.report)
app.command(epilog="Example:  activeprune dnr resnet8 --data digits --bound")(dnr.dnr)
app.add_typer(stores.app, name="store")
app.add_typer(benches.app, name="bench")

TOPICS: dict[str, Callable[[], list[dict[str, str]]]] = {
    "methods": lambda: [_method_row(name) for name in METHODS],
    "rules": lambda: [_summary_row(RULES, name) for name in RULES],
    "networks": lambda: [_summary_row(NETWORKS, name) for name in NETWORKS],
    "data": lambda: [_summary_row(DATASETS, name) for name in DATASETS],
    "studies": lambda: [{"name": name, "what it is": about} for name, about in study_names().items()],
    "variants": lambda: [{"name": name, "what it is": about} for name, about in VARIANTS.items()],
    "chains": lambda: [{"name": name, "what it is": about} for name, about in CHAINS.items()],
    "keys": lambda: [_key_row(key, field) for key, field in study_keys()],
    "paper": lambda: [{"name": name, "what it holds": line} for name, line in paper.tables().items()],
}


@app.callback(invoke_without_command=True)
def common_options(
    context: typer.Context,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a Python module that registers methods, networks, data sets or rules (repeatable).",
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Options of every command; they may stand anywhere on the line."""
    if version:
        print(f"activeprune {__version__}")
        raise typer.Exit
    if debug:
        logging.basicConfig(level=logging.DEBUG)
    ask_for(modules or ())
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("list", epilog="Example:  activeprune list methods --json")
def list_(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help=f"{', '.join(TOPICS)}; all without it.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the pruning methods, AP's rules, networks, data sets, the paper's published tables, and of studies which
    there are, their variants, chains and keys.
    """
    if topic is not None and topic not in TOPICS:
        raise unknown("topic", topic, TOPICS)
    rows = {name: of() for name, of in TOPICS.items() if topic in (None, name)}
    if as_json:
        print_json(rows)
        return
    for name, table in rows.items():
        print_table(table, title=name)


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
    fused = why_no_kernels(torch.device("cuda")) or "can be used" if machine.gpus() else "need an NVIDIA GPU"
    rows["fused kernels"] = fused
    rows["cache"] = str(data_cache())
    for package, extra in EXTRA_OF.items():
        rows[package] = "installed" if present(package) else f"missing: pip install 'activeprune[{extra}]'"
    if as_json:
        print_json(rows)
    else:
        print_table([{"what": what, "found": found} for what, found in rows.items()])


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
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] != "activeprune":
            return _fail(f"{error.name} is not installed, and activeprune needs it: install activeprune again", 1)
        usage = getattr(error, "format_message", None)  # click's errors have it, wherever typer keeps click
        if usage is None and not isinstance(error, (InputError, Damaged, Missing, OSError)):
            raise  # what a file system refuses is nobody's bug: a name that is too long, a folder that is another's
        if "--debug" in given:
            traceback.print_exc()
        key = str(getattr(error, "option_name", "")).removeprefix("--").replace("-", "_")
        hint = f"--set {key}=VALUE changes a study's {key}" if key in KEYS else "see --help"
        return _fail(f"{usage()} ({hint})" if usage else str(error), 2)
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
    print(f"activeprune: {visible(' '.join(message.split()))[:LONGEST_LINE]}", file=sys.stderr)
    return code


def _key_row(key: str, field: FieldInfo) -> dict[str, str]:
    default = "" if field.default is None else "needed" if field.is_required() else _written(field.default)
    return {"name": key, "default": default, "what it is": " ".join((field.description or "").split())}


def _written(value: object) -> str:
    """A default as one would write it into a study."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_written, value))}]"
    return str(getattr(value, "name", str(value).lower() if isinstance(value, bool) else value))


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
