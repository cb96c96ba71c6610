"""The graph of steps that a study needs, and which of them a store still lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ...core.errors import InputError
from ...training import Training
from ...training.duration import Duration
from ..store import Store
from ..store.artifacts import CHECKPOINT, MASKS, RECORD, STATE, probe_part
from ..store.records import train_record
from .chains import Cell, cells
from .steps import Init, Prune, Shape, Step, Train
from .study import Study

Wave = tuple[Shape, int]


@dataclass(frozen=True)
class Todo:
    """What a store lacks for a plan: `missing` steps in an order in which they can be done, `ready` ones whose inputs
    are there, and `blocked` ones that follow a training that failed.
    """

    missing: tuple[Step, ...]
    ready: tuple[Step, ...]
    blocked: tuple[Step, ...]

    def needed(self) -> set[tuple[str, str]]:
        """The key and the part of everything that the missing steps read."""
        roles = ((role, used) for step in self.missing for role, used in step.inputs.items())
        return {(used.key, part_of(role, used)) for role, used in roles}

    @cached_property
    def waves(self) -> Counter[Wave]:
        """How many trainings of one shape have as many others before them: these can be done side by side."""
        return Counter(self.wave_of(step) for step in self.missing if isinstance(step, Train))

    def wave_of(self, step: Train) -> Wave:
        """Its shape, and how many trainings there are from the first that it waits for to itself."""
        return step.shape, int(self._depths[step.key])

    def abreast(self) -> Counter[Training]:
        """The largest wave of each training."""
        most: Counter[Training] = Counter()
        for (shape, _), count in self.waves.items():
            most[shape[0]] = max(most[shape[0]], count)
        return most

    def along_chains(self, own: Mapping[str, float]) -> dict[str, float]:
        """By key, what missing steps have of their own, added up over the longest chain that ends there."""
        found: dict[str, float] = {}
        for step in self.missing:  # inputs come before what needs them
            longest = max((found.get(used.key, 0.0) for used in step.inputs.values()), default=0.0)
            found[step.key] = own.get(step.key, 0.0) + longest
        return found

    @cached_property
    def _depths(self) -> dict[str, float]:
        return self.along_chains({step.key: 1 for step in self.missing if isinstance(step, Train)})


class Seen:
    """A store as far as it has been looked at: what was there once is not looked for again, what was not is.

    Whoever finds something gone after all says `forget`.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._there: set[tuple[str, ...]] = set()
        self._failed: dict[str, bool] = {}  # trainings that have ended, by key

    def has(self, key: str, *parts: str) -> bool:
        """Whether there is an entry with all these parts, or was when it was looked for."""
        if (key, *parts) not in self._there:
            if not self.store.has(key, *parts):
                return False
            self._there.add((key, *parts))
        return True

    def failed(self, step: Step) -> bool:
        """Whether a finished training ended in a loss that is no number."""
        if not isinstance(step, Train):
            return False
        if step.key not in self._failed:
            if (record := train_record(self.store, step.key)) is None:
                return False
            self._failed[step.key] = record.failure is not None
        return self._failed[step.key]

    def forget(self) -> None:
        """Looks for everything again from here on."""
        self._there.clear()
        self._failed.clear()


class Plan:
    """All steps of one study or of several by key, inputs before what needs them."""

    def __init__(self, *studies: Study) -> None:
        self.studies = tuple(study.pinned() for study in studies)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """One number of a table each."""
        return tuple(cell for study in self.studies for cell in cells(study))

    @cached_property
    def steps(self) -> dict[str, Step]:
        """Every step once, however many cells need it."""
        found: dict[str, Step] = {}
        for cell in self.cells:
            for wanted in (cell.training, *cell.measured.values()):
                for step in _with_inputs(wanted, found):
                    found[step.key] = step
        return found

    @cached_property
    def probe_every(self) -> dict[str, Duration]:
        """How often trainings are looked at, by key."""
        found: dict[str, Duration] = {}
        for study in self.studies:
            if (every := study.looked_at_every) is None:
                continue
            trainings = {cell.training.key: cell.training for cell in cells(study)}
            resumed = {t.resume.key: t.resume for t in trainings.values() if t.resume is not None}
            for key in trainings | resumed:
                if found.setdefault(key, every) != every:
                    raise InputError("probe_every cannot differ between studies of a grid: they share trainings")
        return found

    @cached_property
    def pruned(self) -> frozenset[str]:
        """Trainings that a cycle of pruning begins with, by key."""
        return frozenset(step.trained.key for step in self.steps.values() if isinstance(step, Prune))

    @property
    def trainings(self) -> list[Train]:
        """Whole trainings; the first epochs of one, for a rewind, are not counted."""
        return [step for step in self.steps.values() if isinstance(step, Train) and is_whole_training(step)]

    def ready(self, store: Store) -> tuple[Step, ...]:
        """Steps that can be computed now, in an order in which the first ones are wanted first."""
        return self.todo(store).ready

    def todo(self, store: Store | Seen) -> Todo:
        """What is left to do. A finished step needs no input, so nothing before it is asked for."""
        seen = store if isinstance(store, Seen) else Seen(store)
        missing: dict[str, Step] = {}
        failed: dict[str, bool] = {}
        for cell in self.cells:
            self._look(cell.training, self._parts_of(cell.training), seen, missing, failed)
            for step in cell.measured.values():
                self._look(step, (RECORD,), seen, missing, failed)
        blocked = [step for step in missing.values() if failed[step.key]]
        ready = [
            step
            for step in missing.values()
            if not failed[step.key] and not any(used.key in missing for used in step.inputs.values())
        ]
        return Todo(tuple(missing.values()), tuple(ready), tuple(blocked))

    def _parts_of(self, training: Train) -> tuple[str, ...]:
        """What a cell needs of its training."""
        every = self.probe_every.get(training.key)
        return (RECORD,) if every is None else (RECORD, probe_part(every))

    def _look(
        self, step: Step, parts: tuple[str, ...], seen: Seen, missing: dict[str, Step], failed: dict[str, bool]
    ) -> None:
        """Notes a step and what it lacks, deepest first."""
        if step.key in missing or isinstance(step, Init):  # weights that a seed gives are made where they are needed
            return
        if step.key not in failed:
            failed[step.key] = seen.failed(step)
        if failed[step.key] or seen.has(step.key, *parts):  # a training that failed has failed: it has no other parts
            return
        for role, used in step.inputs.items():
            self._look(used, (part_of(role, used),), seen, missing, failed)
        missing[step.key] = step
        failed[step.key] = any(failed.get(used.key, False) for used in step.inputs.values())


def is_whole_training(step: Step) -> bool:
    """And not the first epochs of one, for a rewind."""
    return isinstance(step, Train) and step.last is None


def behind(steps: Iterable[Step]) -> dict[str, Step]:
    """Steps and everything that they rest on, by key."""
    found: dict[str, Step] = {}
    waiting = list(steps)
    while waiting:
        step = waiting.pop()
        if step.key not in found:
            found[step.key] = step
            waiting += step.inputs.values()
    return found


def part_of(role: str, step: Step) -> str:
    """The part of a step's result that another needs in some role."""
    if isinstance(step, Prune):
        return MASKS
    return CHECKPOINT if role == "resume" else STATE


def _with_inputs(step: Step, known: dict[str, Step]) -> Iterator[Step]:
    if step.key not in known:
        for used in step.inputs.values():
            yield from _with_inputs(used, known)
        yield step
