"""A study: one training, a method, its variants, and how often and how far to prune."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ...core.activation import RULES
from ...core.budget import Budget
from ...core.errors import InputError, unknown
from ...core.methods import METHODS, Chain, Scope
from ...training import Training
from ...training.checked import Choice, Count, Number, Positive, Settings
from ...training.duration import Duration, Length
from ...training.probe import EVERY
from ...training.settings import RetrainingSchedule

Variant = Literal["plain", "plain_rewind", "ap_lite", "ap_pro", "ap_lite_literal", "no_rewind", "solo"]
VARIANTS: Mapping[Variant, str] = {
    "plain": "Method X alone.",
    "plain_rewind": "X alone, retrained from where AP's retraining starts: what AP is fairly compared with.",
    "ap_lite": "X alone until the reported cycle; in that one X removes p - q and AP q, then rewind and retrain.",
    "ap_pro": "X removes p - q and AP q in every cycle, each followed by rewind and retraining.",
    "ap_lite_literal": "Algorithm 2 as printed: p - q by X in every cycle, q by AP once at the end; λ differs.",
    "no_rewind": "ap_lite, retrained from the trained weights (the paper's ablation NO-WR).",
    "solo": "ap_lite with the whole of p chosen by AP's metric (the paper's ablation SOLO).",
}
CHAINS: Mapping[Chain, str] = {
    "reinit": "Every cycle trains new weights under the last masks; the default.",
    "rewind": "Every cycle trains the first weights, or the state at rewind_epoch, under the last masks; for imp.",
    "continue": "Every cycle trains what the last one left.",
    "at_init": "Nothing is trained before pruning; for snip and synflow.",
}
Whole = Annotated[int, Field(strict=True, ge=0)]

WITHOUT_AP: tuple[Variant, ...] = ("plain", "plain_rewind")
IMP_REWIND_EPOCH = 6  # the paper's
MOST_CYCLES = 200  # the paper has 25 at most
MOST_SEEDS = 10_000  # the paper has 5


def rewinds(chain: Chain, variant: Variant) -> bool:
    """Whether a variant's retraining starts where the training before it did; else it goes on from where that ended."""
    return variant != "no_rewind" and not (variant == "plain" and chain in ("reinit", "continue"))


class MethodChoice(Choice):
    """A method by name and its options: `lamp`, or `{name: obd, probes: 64}`."""

    @classmethod
    def known_options(cls, name: str) -> Mapping[str, Any]:
        """Of a method."""
        return METHODS[name].options

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        METHODS[self.name].check_options(dict(self.options))
        return self


def _seeds(value: Any) -> Any:
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if value < 1:
        raise InputError("at least one is needed")
    if value > MOST_SEEDS:
        raise InputError(f"at most {MOST_SEEDS:,} are possible")
    return tuple(range(value))


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, (str, int)) and not isinstance(value, bool) else value


class Study(Settings):
    """Everything that a run computes."""

    training: Training
    method: MethodChoice = MethodChoice(name="global_magnitude")
    """Method X, by name or with options: {name: obd, probes: 64}."""
    variants: Annotated[tuple[Variant, ...], BeforeValidator(_several)] = ("plain", "ap_lite", "ap_pro")
    """What is compared (activeprune list variants)."""
    chain: Chain | None = None
    """What each cycle trains (activeprune list chains); by default the method's only one, else reinit."""
    p: Number = 0.20
    """Share of the alive weights that a cycle removes."""
    q: Number = 0.02
    """AP's part of p."""
    cycles: Annotated[Count, Field(le=MOST_CYCLES)] = 1
    """How often p of the alive weights are removed."""
    report_cycles: Annotated[tuple[Count, ...], BeforeValidator(_several)] | None = None
    """Cycles whose networks are retrained and reported; by default all."""
    seeds: Annotated[tuple[Whole, ...], BeforeValidator(_seeds)] = (0,)
    """A number of seeds, or a list of them."""

    rule: str = "ap"
    """How AP chooses its share (activeprune list rules)."""
    scope: Scope | None = None
    """By default the method's."""
    score_batches: Count | None = None
    """By default as many as the method asks for."""
    include: Annotated[tuple[str, ...], BeforeValidator(_several)] | None = None
    """Only these layers are pruned (shell patterns)."""
    exclude: Annotated[tuple[str, ...], BeforeValidator(_several)] | None = None
    """These layers are not pruned."""
    rewind_epoch: Whole | None = None
    """Of chain rewind; by default 6 with imp and 0 otherwise."""
    movement_from: Literal["start", "rewind"] = "start"
    """Whether AP measures movement from the run's initialisation or from the state at rewind_epoch."""
    retrain: RetrainingSchedule = "full"
    """The learning rates of plain's retraining, where that starts from trained weights."""
    lr_high: Positive | None = None
    """Of retrain s_cyc."""

    measure: Annotated[tuple[Literal["dnr"], ...], BeforeValidator(_several)] = ()
    """What is measured of every reported network: dnr, its dead neurons, before, during and after its training."""
    measure_images: Count | None = None
    """Training images that dead neurons are counted on before and after; by default all."""
    probe_every: Length = EVERY
    """How often they are counted during a training, on a few images: 5ep, 100it; 0ep: not at all."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps: where it is computed, not what."""
    keep: Literal["all", "frontier", "records"] = "all"
    """Which weights stay in the store: all, those that a later step needs, or none once nothing needs them."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self._check_counts()
        known = METHODS[self.method.name]
        if known.chain is not None and self.chain not in (None, known.chain):
            raise InputError(f"chain = {self.chain}: method {self.method.name} needs chain = {known.chain}")
        if self.chain == "at_init" and known.chain != "at_init":
            raise InputError(f"chain = at_init: method {self.method.name} needs trained weights")
        wrong = [variant for variant in self.variants if variant != "plain"]
        if self.which_chain == "at_init" and wrong:
            raise InputError(f"variants = {wrong[0]}: nothing has moved before a training, variants = plain is needed")
        if self.which_chain != "rewind" and (self.rewind_epoch or self.movement_from == "rewind"):
            raise InputError(f"rewind_epoch and movement_from belong to chain rewind, not to {self.which_chain}")
        if self.training.epochs.unit == "ep" and self.from_epoch >= self.training.epochs.count:
            raise InputError(
                f"rewind_epoch = {self.from_epoch}: a training of {self.training.epochs} needs an earlier one"
            )
        if self.training.network.pretrained and self.which_chain == "reinit":
            raise InputError("pretrained weights and chain = reinit: drawing new ones would discard them")
        goes_on = "plain" in self.variants and not rewinds(self.which_chain, "plain")
        if self.retraining is not self.training and not goes_on:
            raise InputError(
                f"retrain = {self.retrain}: only plain under reinit or continue goes on from trained weights"
            )
        if self.score_batches is not None and not known.batches:
            raise InputError(f"score_batches = {self.score_batches}: method {self.method.name} looks at no batches")
        if self.p == self.q and "ap_lite_literal" in self.variants:
            raise InputError(f"q = {self.q}: variant ap_lite_literal leaves nothing for X, a smaller share is needed")
        if not self.measure and not {"measure_images", "probe_every"}.isdisjoint(self.model_fields_set):
            raise InputError("measure_images and probe_every belong to measure: [dnr]")
        if self.rule not in RULES:
            raise unknown("rule", self.rule, RULES)
        return self

    def _check_counts(self) -> None:
        Budget(self.p, self.q)
        if not self.p:
            raise InputError("p = 0: a cycle must remove something")
        if not self.q and (needs := [variant for variant in self.variants if variant not in (*WITHOUT_AP, "solo")]):
            raise InputError(f"q = 0: variant {needs[0]} needs a share for AP")
        for key, values in (("variants", self.variants), ("seeds", self.seeds), ("report_cycles", self.reported)):
            if not values or len(set(values)) != len(values):
                raise InputError(f"{key} = {list(values)}: at least one, and none twice")
        if max(self.reported) > self.cycles:
            raise InputError(f"report_cycles = {list(self.reported)}: there are {self.cycles} cycles")

    @property
    def which_chain(self) -> Chain:
        """The chain that was chosen, or the method's, or reinit."""
        return self.chain or METHODS[self.method.name].chain or "reinit"

    @property
    def reported(self) -> tuple[int, ...]:
        """The cycles to report, in order."""
        return tuple(range(1, self.cycles + 1)) if self.report_cycles is None else tuple(sorted(self.report_cycles))

    @property
    def from_epoch(self) -> int:
        """Where a rewound training starts."""
        if self.which_chain != "rewind":
            return 0
        if self.rewind_epoch is not None:
            return self.rewind_epoch
        return IMP_REWIND_EPOCH if self.method.name == "imp" else 0

    @property
    def looked_at_every(self) -> Duration | None:
        """How often the trainings of reported networks are looked at."""
        return self.probe_every if "dnr" in self.measure and self.probe_every.count else None

    @property
    def retraining(self) -> Training:
        """The training that goes on from trained weights; an error where its learning rates do not fit together."""
        if self.retrain == "full" and self.lr_high is None:
            return self.training
        return Training.read({**dict(self.training), "rates": self.retrain, "lr_high": self.lr_high})

    def pinned(self) -> Study:
        """The study that says what is in its folder of images, so that its steps can be named without the folder."""
        return self.model_copy(update={"training": self.training.pinned()})
