"""Which trainings and prunings a study consists of: every variant under every chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import wraps
from typing import Any, Literal, TypeVar, cast

from ...core.methods import METHODS
from .steps import Init, Measure, Mode, Prune, Train
from .study import Study, Variant, rewinds

State = Init | Train
Trunk = Literal["plain", "ap_pro", "literal"]
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class Cell:
    """One number of a table: the training whose accuracy it is, and the masks that it was trained under."""

    variant: Variant
    cycle: int  # 0: dense
    seed: int
    training: Train
    masks: Prune | None
    before: Measure | None = None  # dead neurons where the training starts, under its masks
    after: Measure | None = None  # and where it ends

    @property
    def measured(self) -> dict[str, Measure]:
        """What is measured of the cell, by when."""
        return {when: step for when, step in (("before", self.before), ("after", self.after)) if step is not None}

    @property
    def density(self) -> float:
        """λ as it will be, but for rounding to whole weights."""
        return 1.0 if self.masks is None else self.masks.density


def cells(study: Study) -> Iterator[Cell]:
    """All cells of a study, seed by seed. Equal steps of different cells have equal keys."""
    for seed in study.seeds:
        line = _Line(study, seed)
        line.lay_out()
        for variant in study.variants:
            yield line.cell(variant, 0, line.trained(1, "plain"), None)
            for cycle in study.reported:
                masks = line.masks(cycle, variant)
                yield line.cell(variant, cycle, line.retrained(cycle, variant, masks), masks)


def planned_density(study: Study, variant: Variant, cycle: int) -> float:
    """λ of a cell as it will be, but for rounding to whole weights.

    >>> from .reading import read_study
    >>> study = read_study("smoke", {"variants": ["plain", "ap_lite_literal"], "p": 0.2, "q": 0.02})
    >>> [round(planned_density(study, variant, 1), 4) for variant in study.variants]
    [0.8, 0.8036]
    """
    line = _Line(study, study.seeds[0])
    for before in range(cycle):  # one after the other: none of them is then far from those that are known
        line.trunk_masks(before, trunk_of(variant))
    masks = line.masks(cycle, variant) if cycle else None
    return 1.0 if masks is None else masks.density


def remembered(method: Method) -> Method:
    """Each result is worked out once for an object and its arguments."""

    @wraps(method)
    def ask(self: _Line, *arguments: Any) -> Any:
        if (known := (method.__name__, arguments)) not in self.known:
            self.known[known] = method(self, *arguments)
        return self.known[known]

    return cast(Method, ask)


class _Line:
    """The steps of one seed.

    Cycle k of a trunk trains θ*_k and then prunes it. There are three trunks: plain, ap_pro, and literal (plain with
    p - q). Under `reinit` a variant's retraining is a leaf; elsewhere the trunk's own retraining is the training of its
    next cycle. All variants but ap_pro and ap_lite_literal branch off the plain trunk before it prunes.
    """

    def __init__(self, study: Study, seed: int) -> None:
        self.study, self.seed, self.chain = study, seed, study.which_chain
        self.known: dict[tuple[str, tuple[Any, ...]], Any] = {}

    def lay_out(self) -> None:
        """Cycle by cycle, so that no step is far from those that are known already; so are their keys."""
        for trunk in dict.fromkeys(trunk_of(variant) for variant in ("plain", *self.study.variants)):
            for cycle in range(1, max(self.study.reported) + 1):
                for step in (self.trained(cycle, trunk), self.trunk_masks(cycle, trunk)):
                    assert step is None or step.key

    def cell(self, variant: Variant, cycle: int, training: Train, masks: Prune | None) -> Cell:
        """A number of the table, with what is measured beside it."""
        if "dnr" not in self.study.measure:
            return Cell(variant, cycle, self.seed, training, masks)
        before, after = (
            Measure(training.training, self.seed, network, masks, self.study.measure_images)
            for network in (training.start, training)
        )
        return Cell(variant, cycle, self.seed, training, masks, before, after)

    @remembered
    def trained(self, cycle: int, trunk: Trunk) -> Train:
        """θ*_k: what cycle k prunes."""
        training = self.study.training
        before = self.trunk_masks(cycle - 1, trunk)
        if cycle == 1:
            early = self.rewind_state()
            return Train(training, self.seed, self.initial(1), resume=early if isinstance(early, Train) else None)
        if self.chain == "reinit":
            return Train(training, self.seed, self.initial(cycle), before)
        return self.retrained(cycle - 1, "ap_pro" if trunk == "ap_pro" else "plain", before, trunk)

    def retrained(self, cycle: int, variant: Variant, masks: Prune | None, trunk: Trunk | None = None) -> Train:
        """The training that follows cycle k's pruning."""
        study, trunk = self.study, trunk or trunk_of(variant)
        if not rewinds(self.chain, variant):
            how = study.retraining if variant == "plain" else study.training
            return Train(how, self.seed, self.trained(cycle, trunk), masks)
        if self.chain == "rewind":
            return Train(study.training, self.seed, self.rewind_state(), masks, first=study.from_epoch)
        start = self.initial(1) if self.chain == "at_init" else self.trained(cycle, trunk).start
        return Train(study.training, self.seed, start, masks)

    @remembered
    def trunk_masks(self, cycle: int, trunk: Trunk) -> Prune | None:
        """What is alive after cycle k of a trunk."""
        if cycle == 0:
            return None
        if trunk == "ap_pro":
            return self.pruned(cycle, trunk, self.study.p, self.study.q)
        share = self.study.p if trunk == "plain" else float(Decimal(str(self.study.p)) - Decimal(str(self.study.q)))
        return self.pruned(cycle, trunk, share)

    def masks(self, cycle: int, variant: Variant) -> Prune | None:
        """What is alive in the network that a variant reports after cycle k."""
        p, q = self.study.p, self.study.q
        if variant in ("plain", "plain_rewind", "ap_pro"):
            return self.trunk_masks(cycle, trunk_of(variant))
        if variant == "solo":
            return self.pruned(cycle, "plain", p, mode="solo")
        if variant == "ap_lite_literal":
            return self.pruned(cycle, "literal", 0.0, q, "end")
        return self.pruned(cycle, "plain", p, q)

    def pruned(self, cycle: int, trunk: Trunk, p: float, q: float = 0.0, mode: Mode = "cycle") -> Prune:
        """θ*_k of a trunk, pruned in some way."""
        study, known = self.study, METHODS[self.study.method.name]
        moves = bool(q) or mode == "solo"
        return Prune(
            training=study.training,
            seed=self.seed,
            cycle=cycle,
            trained=self.initial(1) if self.chain == "at_init" else self.trained(cycle, trunk),
            start=self.moved_from(cycle, trunk) if moves else None,
            masks=self.trunk_masks(cycle if mode == "end" else cycle - 1, trunk),
            method=study.method.name,
            p=p,
            q=q,
            options=study.method.options,
            rule=study.rule if q else "ap",
            scope=None if study.scope == known.scope else study.scope,
            score_batches=None if study.score_batches == known.batches else study.score_batches,
            include=tuple(sorted({*study.include})) if study.include else None,
            exclude=tuple(sorted({*study.exclude})) if study.exclude else None,
            mode=mode,
        )

    def moved_from(self, cycle: int, trunk: Trunk) -> State:
        """θ0 of AP's metric: the state that the cycle's training started from, under late rewinding the run's first."""
        if self.chain != "rewind":
            return self.trained(cycle, trunk).start
        return self.rewind_state() if self.study.movement_from == "rewind" else self.initial(1)

    def rewind_state(self) -> State:
        """Where chain rewind goes back to: the initialisation, or cycle 1's state after a few epochs."""
        epoch = self.study.from_epoch if self.chain == "rewind" else 0
        return Train(self.study.training, self.seed, self.initial(1), last=epoch) if epoch else self.initial(1)

    def initial(self, cycle: int) -> Init:
        """The weights that (seed, cycle) gives."""
        return Init(self.study.training, self.seed, cycle)


def trunk_of(variant: Variant) -> Trunk:
    """The chain of prunings that a variant belongs to."""
    return "ap_pro" if variant == "ap_pro" else "literal" if variant == "ap_lite_literal" else "plain"
