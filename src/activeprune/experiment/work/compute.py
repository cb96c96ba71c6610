"""One step, computed: its inputs come from the store, its result is bytes."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...core.budget import Budget
from ...core.errors import InputError
from ...core.graph import trace
from ...core.masks import Masks
from ...core.methods import METHODS
from ...core.pruning import Pruned, prune_cycle, prune_solo
from ...data import Feed
from ...files import leftovers
from ...machine import CPU, described
from ...neurons import DeadNeurons
from ...neurons.again import Removed
from ...training import Case, Checkpoint, Epoch, Result, Span
from ...training.duration import Duration
from ...training.engine import Eager
from ...training.loop import checkpoint_identity, train_together, was_probed
from ...training.probe import PROBED_IMAGES, Probe, at_once
from ...version import __version__
from ..plan.steps import Measure, Prune, Step, Train
from ..store import FolderStore
from ..store.artifacts import (
    CHECKPOINT,
    MASKS,
    RECORD,
    STATE,
    checkpoint_bytes,
    masks_bytes,
    probe_part,
    record_bytes,
    state_bytes,
)
from ..store.entry import unfit
from ..store.provenance import Provenance, StepTime
from ..store.records import PruneRecord, TrainRecord, probe_bytes, probed
from .loaded import Loaded
from .speed import alike

OnEpoch = Callable[[Step, Epoch, int], None]  # the step, the epoch that ended, and how many there are
SECONDS_BETWEEN_CHECKPOINTS = 30.0
ALONE = Provenance()  # of what was computed by itself, without an engine for several


@dataclass(frozen=True)
class Made:
    """What a step left behind: parts for the store, and how they came about."""

    parts: dict[str, bytes]
    provenance: dict[str, Any]


class StepFailed(Exception):
    """A step that cannot be computed, though its inputs are there; others may still be."""


class Compute:
    """Computes steps on one device; long trainings leave a checkpoint beside the store's entries every now and then."""

    def __init__(
        self,
        store: FolderStore,
        device: torch.device = CPU,
        probe_every: Mapping[str, Duration] | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.store, self.device = store, device
        self.loaded = Loaded(store, device)
        self.probe_every = probe_every or {}  # by key
        self.tell = tell  # of a checkpoint that was damaged, say

    def __call__(self, step: Step, on_epoch: OnEpoch | None = None) -> Made:
        """The result of a step whose inputs are in the store."""
        since = time.perf_counter()
        if isinstance(step, Train):
            feed = self.loaded.feed(step.training, step.seed)
            engine = Eager(step.training, self.device)
            case = self.case(step, feed, on_epoch)
            (result,) = train_together(step.training, [case], engine, Span(step.first, step.last), since)
            return self.made(step, case, result)
        if isinstance(step, Prune):
            parts = self._prune(step)
            return Made(parts, self._provenance(step, time.perf_counter() - since))
        if isinstance(step, Measure):
            parts = {RECORD: record_bytes(self._measured(step).as_dict())}
            return Made(parts, self._provenance(step, time.perf_counter() - since))
        raise InputError(f"a step of kind {step.kind} is not computed by itself")

    def forget(self, step: Step) -> None:
        """Removes the checkpoint of a step that is done, and what a killed process left of one."""
        path = self._checkpoint_path(step)
        for left in (path, *leftovers(path)):
            left.unlink(missing_ok=True)

    def case(self, step: Train, feed: Feed, on_epoch: OnEpoch | None = None) -> Case:
        """What a training starts from; between epochs it leaves a checkpoint every now and then."""
        steps = step.training.epochs.steps(feed.steps)
        _check_rewinding(step, -(-steps // feed.steps))
        masks = None if step.masks is None else self.loaded.masks(step.masks)
        saved = time.monotonic()

        def after_epoch(epoch: Epoch, checkpoint: Callable[[], Checkpoint]) -> None:
            nonlocal saved
            if time.monotonic() - saved >= SECONDS_BETWEEN_CHECKPOINTS:
                with suppress(ValueError, OSError):  # a full disk, say: the training itself can go on without
                    self.store.checkpoints.mkdir(parents=True, exist_ok=True)
                    checkpoint().save(self._checkpoint_path(step))
                saved = time.monotonic()
            if on_epoch is not None:
                on_epoch(step, epoch, -(-steps // feed.steps))

        probe = self._probe(step, feed, masks)
        resume = self._resumable(step, masks)
        if resume is not None and probe is not None and not was_probed(resume, probe, step.first, feed.steps):
            resume = None
        return Case(feed, self.loaded.state(step.start), masks, resume, after_epoch, probe)

    def made(self, step: Train, case: Case, result: Result, how: Provenance = ALONE) -> Made:
        """The result of a training for the store; `how` it came about goes into its provenance."""
        density = 1.0 if case.masks is None else case.masks.density
        parts = {RECORD: TrainRecord.of(result, density).as_bytes(), STATE: state_bytes(result.state)}
        if result.checkpoint is not None:
            parts[CHECKPOINT] = checkpoint_bytes(replace(result.checkpoint, seconds=0.0, probed=()))
        if case.probe is not None:
            every = case.probe.every
            parts[probe_part(every)] = probe_bytes(every, case.probe.images, result.probed)
        speed = None
        if step.resume is None and result.epochs:  # else a part of its time was another step's
            steps = result.epochs[-1].step - step.first * case.feed.steps
            speed = StepTime(alike(step.training), result.seconds / steps, case.feed.steps)
        how = replace(how, images_per_second=result.images_per_second, speed=speed)
        return Made(parts, self._provenance(step, result.seconds, how))

    def _resumable(self, step: Train, masks: Masks | None) -> Checkpoint | None:
        """This training's own checkpoint, or the end of the one that it goes on from."""
        path, of = self._checkpoint_path(step), checkpoint_identity(step.training, step.seed, masks, step.first)
        if path.exists():
            try:
                kept = Checkpoint.load(path)
                if kept.of == of:
                    return kept
                self.forget(step)
            except InputError as error:
                if isinstance(error.__cause__, OSError):
                    raise  # it may be whole, and readable another time
                self.tell(f"{error}: the training starts anew")
                self.forget(step)
        if step.resume is not None and self.store.has(step.resume.key, CHECKPOINT):
            kept = self.loaded.checkpoint(step.resume)
            if (kept.of, kept.epoch) != (of, step.resume.last):
                raise unfit(step.resume.key, CHECKPOINT, "is a checkpoint of another training")
            return replace(kept, probed=probed(self.store, step.resume.key, self.probe_every.get(step.resume.key)))
        return None

    def _prune(self, step: Prune) -> dict[str, bytes]:
        model = self.loaded.model(step.training, step.seed)
        model.load_state_dict(self.loaded.state(step.trained))
        masks = Masks.dense(model, step.include, step.exclude) if step.masks is None else self.loaded.masks(step.masks)
        start = None if step.start is None else self.loaded.state(step.start)
        try:
            pruned = self._pruned(step, model.to(self.device), masks, start)
        except InputError as error:  # scores that are no numbers, nothing left to prune
            raise StepFailed(str(error)) from error
        return {RECORD: PruneRecord.of(pruned).as_bytes(), MASKS: masks_bytes(pruned.masks)}

    def _pruned(self, step: Prune, model: nn.Module, masks: Masks, start: dict[str, Tensor] | None) -> Pruned:
        if step.mode == "solo":
            n_x, n_ap = Budget(step.p).split(masks.alive)
            return prune_solo(model, masks, n_x + n_ap, start or {})
        if step.mode == "end":
            n_x, n_ap = 0, sum(Budget(step.q, step.q).split(masks.alive))
        else:
            n_x, n_ap = Budget(step.p, step.q).split(masks.alive)
        known = METHODS[step.method]
        count = step.score_batches or known.batches or 0
        return prune_cycle(
            step.method, model, masks, n_x, n_ap, start,
            rule=step.rule,
            scope=step.scope,
            batches=list(self._scoring(step, count)) if known.batches else None,
            loss_fn=partial(cross_entropy, label_smoothing=step.training.label_smoothing),
            graph=trace(model, next(self._scoring(step, 1))[0][:2]) if known.graph else None,
            seed=step.seed,
            cycle=step.cycle,
            options=dict(step.options),
        )  # fmt: skip

    def _measured(self, step: Measure) -> DeadNeurons:
        feed = self.loaded.feed(step.training, step.seed)
        masks = None if step.masks is None else self.loaded.masks(step.masks).to(self.device)
        images, state = feed.unaugmented(step.images, at_once(feed, self.device)), self.loaded.state(step.network)
        try:
            network = self.loaded.network(step.training, recorded=False)
            return network.counted(state, Removed(masks), images)
        except InputError as error:  # a network without activations, say
            raise StepFailed(str(error)) from error

    def _probe(self, step: Train, feed: Feed, masks: Masks | None) -> Probe | None:
        """What looks at a training on the way, where that was asked for."""
        every = self.probe_every.get(step.key)
        if every is None:
            return None
        batches = [x.to(self.device) for x, _ in feed.unaugmented(PROBED_IMAGES, at_once(feed, self.device))]
        network = self.loaded.network(step.training, recorded=True)
        return Probe(every, network, None if masks is None else masks.to(self.device), batches)

    def _scoring(self, step: Prune, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        return self.loaded.feed(step.training, step.seed).scoring(step.cycle, count)

    def _checkpoint_path(self, step: Step) -> Path:
        return self.store.checkpoint(step.key)

    def _provenance(self, step: Step, seconds: float, how: Provenance = ALONE) -> dict[str, Any]:
        return replace(
            how,
            kind=step.kind,
            inputs={role: used.key for role, used in step.inputs.items()},
            machine=described(torch.device(self.device)),
            host=platform.node(),
            python=platform.python_version(),
            activeprune=__version__,
            finished=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seconds=seconds,
        ).as_dict()


def _check_rewinding(step: Train, epochs: int) -> None:
    """Refuses to rewind to the end of a training or behind it, which a study of iterations cannot tell by itself."""
    wanted = step.first if step.last is None else step.last
    if wanted >= epochs:
        counted = f"{step.training.epochs}, which has {epochs} epoch{'s' * (epochs > 1)} here,"
        raise InputError(f"rewind_epoch = {wanted}: a training of {counted} needs an earlier one")
