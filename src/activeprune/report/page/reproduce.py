"""The command that runs a study again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ...core.errors import InputError
from ...experiment.plan.reading import assignments, flat, read_study, study_names, written
from ...experiment.plan.study import Study
from ...experiment.search import folder_name

MOST_CHANGES = 8  # that a person still reads; with more of them a study file is clearer
PLAIN = re.compile(r"\w[\w=.,+() -]*")
NESTED = ("data",)  # of these single entries are changed, the rest stays


@dataclass(frozen=True)
class Reproduction:
    """Commands for a shell; `file` is a study to be saved first as `name`, None where a name and changes do."""

    commands: tuple[str, ...]
    file: str | None = None
    name: str = ""


def reproduction(study: Study, folder: str, imports: Sequence[str] = ()) -> Reproduction:
    """The shortest command that gives just this study, checked by reading it back."""
    before = ["activeprune", *(part for module in imports for part in ("--import", module))]
    known = [found for name in study_names() if (found := _changes(name, study)) is not None]
    named = min(known, key=lambda found: (len(found), not folder.startswith(found[0])), default=None)
    if named is None:
        file = f"{folder}.yaml"
        run = [*before, "run", file, "--out", f"runs/{folder}"]
        return Reproduction((shlex.join(run), _report(before, folder)), written(study), file)
    out = [] if named[0] == folder else ["--out", f"runs/{folder}"]
    return Reproduction((shlex.join([*before, "run", *named, *out]), _report(before, folder)))


def run_folder(title: str) -> str:
    """The folder of a run: its own name, where that is a plain one.

    >>> run_folder("my run (2)"), run_folder("../x")[:5]
    ('my run (2)', '.._x-')
    """
    return title if PLAIN.fullmatch(title) else folder_name(title)


def reproduced_together(runs: Sequence[tuple[str, Sequence[str]]]) -> str:
    """The report of several runs, by title and imports, once each of them is there."""
    modules = [*dict.fromkeys(module for _, imports in runs for module in imports)]
    before = ["activeprune", *(part for module in modules for part in ("--import", module))]
    folders = [f"runs/{run_folder(title)}" for title, _ in runs]
    return shlex.join([*before, "report", *folders, "--out", "runs/together"])


def _report(before: Sequence[str], folder: str) -> str:
    return shlex.join([*before, "report", f"runs/{folder}"])


def _changes(name: str, study: Study) -> list[str] | None:
    """A study's name and `--set KEY=VALUE` that turn it into another, None where they cannot."""
    try:
        base = read_study(name)
    except InputError:  # a grid, or something that this machine lacks
        return None
    texts = [f"{key}={_written(value)}" for key, value in _differences(base, study)]
    if len(texts) > MOST_CHANGES or not is_same(name, texts, study):
        return None
    return [name, *(part for text in texts for part in ("--set", text))]


def is_same(name: str, texts: Sequence[str], study: Study) -> bool:
    """Whether a study with some keys changed, as the command line reads them, is just this one."""
    try:
        return read_study(name, assignments(texts)).pinned() == study
    except InputError:
        return False


def _differences(base: Study, study: Study) -> Iterator[tuple[str, Any]]:
    here, there = _as_options(base), _as_options(study)
    for key, value in there.items():
        if here.get(key) != value:
            yield key, value


def _as_options(study: Study) -> dict[str, Any]:
    """Keys and values as `--set` takes them."""
    values = flat(study)
    for outer in NESTED:
        values |= {f"{outer}.{inner}": value for inner, value in values.pop(outer).items()}
    for choice in ("network", "method"):
        values[choice] = {"name": values[choice]["name"], **dict(values[choice]["options"])}
        if len(values[choice]) == 1:
            values[choice] = values[choice]["name"]
    if study.seeds == tuple(range(len(study.seeds))):
        values["seeds"] = len(study.seeds)
    return values


def _written(value: Any) -> str:
    """As YAML in one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("\n").removesuffix("\n...")
