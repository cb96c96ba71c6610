"""Scores, the lowest of them, and one whole cycle: method X removes its share, AP removes its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from torch import Tensor, nn

from .activation import RULES, activate, weights_in
from .budget import shared_out
from .calling import Batches, LossFn
from .errors import InputError, kind_of, listed, unknown
from .evidence import Evidence
from .graph import WeightGraph
from .loss import Loss
from .masks import Masks, checked_masks
from .methods import METHODS, Scope
from .prunable import plain_names
from .randomness import generator
from .selection import lowest


def score(  # noqa: PLR0913  options by name
    method: str,
    model: nn.Module,
    masks: Masks,
    batches: Batches | None = None,
    loss_fn: LossFn | None = None,
    graph: WeightGraph | None = None,
    seed: int = 0,
    cycle: int = 0,
    **options: Any,
) -> dict[str, Tensor]:
    """Scores of every prunable weight by method X, higher = keep; at pruned positions they mean nothing.

    `batches` (pairs of input and target, or dicts of model arguments) and `loss_fn(output, target)` are for
    methods that look at the loss, `graph` for those that look at neighbouring layers; those that draw random
    numbers draw them by `seed` and `cycle`; `options` are the method's own, such as `probes` of `obd`.

    >>> import torch
    >>> model = nn.Linear(2, 1)
    >>> model.weight.data = torch.tensor([[3.0, -4.0]])
    >>> score("lamp", model, Masks.dense(model))["weight"]
    tensor([[0.3600, 1.0000]])
    """
    known = METHODS[method]
    try:
        known.check_options(options)
        evidence = Evidence(model, masks, generator(seed, "method", cycle), Loss(batches, loss_fn), graph)
        if known.batches and batches is None:
            next(evidence.batches())  # says that they are missing, before any work is done
        before = evidence.versions()
        scores = known.scores(evidence, options)
        if changed := [name for name, version in evidence.versions().items() if version != before[name]]:
            raise InputError(f"it changed the weights of {listed(changed)} in place: a method must return new tensors")
        _check_scores(scores, masks)
    except InputError as error:
        raise InputError(f"method {method!r}: {error}") from error
    own = {weight.data_ptr() for weight in evidence.weights.values()}  # scores that are the weights themselves
    return {name: found.clone() if found.data_ptr() in own else found for name, found in scores.items()}


def prune_lowest(masks: Masks, scores: Mapping[str, Tensor], count: int, scope: Scope = "global") -> Masks:
    """Exactly `count` fewer alive: the ones with the lowest scores, over all layers or (scope `layer`) the same
    fraction in every layer. Ties go to the earlier layer, then to the lower flat index.

    >>> import torch
    >>> masks = Masks({"w": torch.tensor([True, True, False, True])})
    >>> prune_lowest(masks, {"w": torch.tensor([2.0, 1.0, 0.0, 1.0])}, 1)["w"]
    tensor([ True, False, False,  True])
    """
    _check_scores(scores, checked_masks(masks))
    count = masks.checked_count(count)
    if scope not in get_args(Scope):
        raise unknown("scope", scope, get_args(Scope))
    if scope == "global":
        return masks.without(lowest(scores, masks, count, "scores"), reuse=True)
    chosen: dict[str, Tensor] = {}
    alive = [int(mask.count_nonzero()) for mask in masks.values()]
    for name, quota in zip(masks, shared_out(count, alive), strict=True):
        chosen |= lowest(scores, {name: masks[name]}, quota, "scores")
    return masks.without(chosen, reuse=True)


@dataclass(frozen=True)
class Pruned:
    """What a cycle removed: `by_method` weights chosen by X and `by_rule` by AP.

    `shortfall` weights of AP's share were chosen by something else, because too few were left that AP may take: by X
    (they count in `by_method`), or, where AP prunes alone, by the order of movement (they count in neither).
    """

    masks: Masks
    by_method: int
    by_rule: int = 0
    shortfall: int = 0


def prune_cycle(  # noqa: PLR0913  options by name
    method: str,
    model: nn.Module,
    masks: Masks,
    n_x: int,
    n_ap: int = 0,
    start: Mapping[str, Tensor] | None = None,
    *,
    rule: str = "ap",
    scope: Scope | None = None,
    batches: Batches | None = None,
    loss_fn: LossFn | None = None,
    graph: WeightGraph | None = None,
    seed: int = 0,
    cycle: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Pruned:
    """One pruning of a trained model: X removes `n_x` weights, then AP `n_ap`, then X what AP could not find.

    The counts come from `Budget(p, q).split(masks.alive)`. `start` is a copy of the state that the training started
    from. `scope` overrides the method's own. The model is not changed: apply or hold the new masks.

    >>> model = nn.Linear(10, 10)
    >>> prune_cycle("global_magnitude", model, Masks.dense(model), 20).masks
    Masks(1 layers, 80 of 100 weights alive, density 0.8000)
    """
    known = METHODS[method]
    scope = known.scope if scope is None else scope
    masks = checked_masks(masks)
    n_x, n_ap = masks.checked_count(n_x), masks.checked_count(n_ap)
    masks.checked_count(n_x + n_ap)
    if n_ap and known.chain == "at_init":
        raise InputError(f"method {method!r} prunes before any training, when nothing has moved: AP cannot go with it")
    RULES[rule]  # or an error, before any work is done
    trained = {name: weight.detach() for name, weight in masks.weights_of(model).items()}
    origin = _checked_start(start, trained, masks) if n_ap else {}
    if known.rounds > 1 and batches is not None:
        batches = list(batches)  # an iterator would be empty in the second round

    def scores_of(masks: Masks) -> dict[str, Tensor]:
        return score(method, model, masks, batches, loss_fn, graph, seed, cycle, **(options or {}))

    after_x, scores = _prune_in_rounds(masks, n_x, known.rounds, scores_of, scope)
    if not n_ap:
        return Pruned(after_x, by_method=n_x)
    after_ap = activate(after_x, trained, origin, n_ap, rule, seed, cycle)
    shortfall = n_ap - (after_x.alive - after_ap.alive)
    final = prune_lowest(after_ap, scores, shortfall, scope)
    return Pruned(final, by_method=n_x + shortfall, by_rule=n_ap - shortfall, shortfall=shortfall)


def prune_solo(model: nn.Module, masks: Masks, count: int, start: Mapping[str, Tensor]) -> Pruned:
    """One pruning by AP's metric alone; when the negative weights run out, the least-moved others go."""
    count = checked_masks(masks).checked_count(count)
    trained = {name: weight.detach() for name, weight in masks.weights_of(model).items()}
    origin = _checked_start(start, trained, masks)
    after_ap = activate(masks, trained, origin, count, "ap")
    shortfall = count - (masks.alive - after_ap.alive)
    final = activate(after_ap, trained, origin, shortfall, "least_moved")
    return Pruned(final, by_method=0, by_rule=count - shortfall, shortfall=shortfall)


def _prune_in_rounds(
    masks: Masks, count: int, rounds: int, scores_of: Callable[[Masks], dict[str, Tensor]], scope: Scope
) -> tuple[Masks, dict[str, Tensor]]:
    """`count` fewer alive, scored anew in every round, and the last scores. Each round keeps the same fraction."""
    before, kept = masks.alive, masks.alive - count
    for done in range(1, rounds):
        target = round(before * (kept / max(before, 1)) ** (done / rounds))
        masks = prune_lowest(masks, scores_of(masks), masks.alive - target, scope)
    scores = scores_of(masks)
    return prune_lowest(masks, scores, masks.alive - kept, scope), scores


def _checked_start(
    start: Mapping[str, Tensor] | None, trained: Mapping[str, Tensor], masks: Masks
) -> Mapping[str, Tensor]:
    if start is None:
        raise InputError("AP compares the trained weights with those they started from: pass start=")
    weights_in(start, masks, "start")
    plain = plain_names(start)
    for name, weight in trained.items():
        if plain[name].data_ptr() == weight.data_ptr() and weight.numel():
            raise InputError(f"start and model share the memory of {name!r}: copy the state before training")
    return start


def _check_scores(scores: Mapping[str, Tensor], masks: Masks) -> None:
    if not isinstance(scores, Mapping):
        raise InputError(f"scores by name are needed, as ap.score returns them, not {kind_of(scores)}")
    if absent := [name for name in masks if name not in scores]:
        raise InputError(f"no scores for layer {listed(absent)}")
    if extra := [name for name in scores if name not in masks]:
        raise InputError(f"scores of another model: there is no mask for layer {listed(extra)}")
    for name, mask in masks.items():
        if not isinstance(scores[name], Tensor) or scores[name].is_complex():
            raise InputError(f"scores of layer {name!r} are no tensor of real numbers")
        if scores[name].shape != mask.shape:
            raise InputError(
                f"scores of layer {name!r} are {tuple(scores[name].shape)}, its mask is {tuple(mask.shape)}"
            )
