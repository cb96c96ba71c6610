"""Which studies a store serves, and what of it none of them needs any longer."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import InputError
from .imports import Imports, import_asked_for
from .plan import Plan
from .plan.reading import parsed, written
from .plan.study import Study
from .store import FolderStore, Store
from .store.artifacts import CHECKPOINT, STATE
from .store.files import names_in, read_json, removed, write_text

LARGE = (STATE, CHECKPOINT)  # parts that need not outlast a study

Parts = set[tuple[str, str]]  # key and name


@dataclass(frozen=True)
class Registered:
    """A study that a store serves, and the folder of its run, which may be gone."""

    file: Path
    out: Path
    study: Study

    @property
    def gone(self) -> bool:
        """Whether the folder is no longer there."""
        return not self.out.is_dir()


def register(store: FolderStore, out: Path, study: Study, needs: Imports) -> None:
    """Lets a store know of a run and the modules it needs, so that nothing that belongs to it is collected.

    What is written down stands for itself: it holds even where the run's folder has been moved.
    """
    name = hashlib.sha256(os.fsencode(out.resolve())).hexdigest()[:16]
    registration = {"out": os.path.relpath(out, store.root), "study": written(study), **needs}
    write_text(store.runs / f"{name}.json", json.dumps(registration) + "\n")


def registered(store: FolderStore) -> list[Registered]:
    """All studies that a store serves."""
    found = []
    for name in names_in(store.runs):
        if name.endswith(".json"):
            file = store.runs / name
            registration = read_json(file, "out", "study", "imports", "import_from")
            if not isinstance(registration["out"], str):
                raise InputError(f"{file} cannot be read: its out is no path")
            import_asked_for(registration, file)
            study = parsed(registration["study"], name)
            found.append(Registered(file, store.root / registration["out"], study))
    return found


def collect(store: FolderStore, studies: Iterable[Study] = (), forget: bool = False) -> int:
    """Drops what neither these studies nor any other that the store serves still need; returns bytes.

    These are weights, by each study's `keep`, and checkpoints of trainings that are finished or that nobody asks for.
    `forget` first forgets the studies whose folders are gone.
    """
    for known in registered(store) if forget else ():
        if known.gone:
            removed(known.file)
    everyone = [*(known.study for known in registered(store)), *studies]
    if not everyone:
        raise InputError(f"store {store.root} knows of no run that could say what it still needs: nothing is dropped")
    kept = {pair for study in everyone for pair in needed(study, store)}
    freed = 0
    for entry in list(store.list()):
        for part in LARGE:
            if part in entry.parts and (entry.key, part) not in kept:
                freed += store.drop(entry.key, part)
    wanted = {step.key for study in everyone for step in Plan(study).todo(store).missing}
    for key in store.checkpoint_keys():
        if key not in wanted:
            freed += removed(store.checkpoint(key))
    return freed


def needed(study: Study, store: Store) -> Parts:
    """The large parts that a study keeps: all, what one more cycle would need, or what is left to do needs."""
    if study.keep == "all":
        return {(key, part) for key in Plan(study).steps for part in LARGE}
    return frontier(study, store) if study.keep == "frontier" else Plan(study).todo(store).needed()


def frontier(study: Study, store: Store) -> Parts:
    """What the steps that are missing, and those of one more cycle, read."""
    return one_more_cycle(study).todo(store).needed()


def one_more_cycle(study: Study) -> Plan:
    """The plan of a study that goes on for another cycle and reports it, too."""
    more = {"cycles": study.cycles + 1, "report_cycles": (*study.reported, study.cycles + 1)}
    return Plan(study.model_copy(update=more))
