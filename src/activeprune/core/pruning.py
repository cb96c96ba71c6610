"""One cycle, exactly: method X removes its share, AP removes its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .activation import activate
from .batches import Batches, LossFn
from .budget import Budget
from .errors import InputError, listed, unknown
from .evidence import Evidence
from .masks import Masks
from .methods import METHODS, Scope
from .select import lowest


def score(
    method: str,
    model: nn.Module,
    masks: Masks,
    batches: Batches | None = None,
    loss_fn: LossFn | None = None,
    graph: object = None,
    seed: int = 0,
    **options: Any,
) -> dict[str, Tensor]:
    """Scores of every prunable weight by method X, higher = keep; at pruned positions they mean nothing.

    `batches` (pairs of input and target, or dicts of model arguments) and `loss_fn(output, target)` are for
    methods that look at the loss, `graph` for those that look at neighbouring layers, `seed` for those that
    draw random numbers; `options` are the method's own, such as `probes` of `obd`.

    >>> import torch
    >>> model = nn.Linear(2, 1)
    >>> model.weight.data = torch.tensor([[3.0, -4.0]])
    >>> score("lamp", model, Masks.dense(model))["weight"]
    tensor([[0.3600, 1.0000]])
    """
    known = METHODS[method]
    try:
        scores = known(Evidence(model, masks, batches, loss_fn, graph, seed), **options)
    except InputError as error:
        raise InputError(f"method {method!r}: {error}") from error
    _check_scores(scores, masks)
    return scores


def prune_lowest(masks: Masks, scores: Mapping[str, Tensor], count: int, scope: Scope = "global") -> Masks:
    """Exactly `count` fewer alive: the ones with the lowest scores, over all layers or (scope `layer`) the same
    fraction in every layer. Ties go to the earlier layer, then to the lower flat index.

    >>> import torch
    >>> masks = Masks({"w": torch.tensor([True, True, False, True])})
    >>> prune_lowest(masks, {"w": torch.tensor([2.0, 1.0, 0.0, 1.0])}, 1)["w"]
    tensor([ True, False, False,  True])
    """
    _check_scores(scores, masks)
    if not 0 <= count <= masks.alive:
        raise InputError(f"cannot prune {count} of {masks.alive} alive weights")
    if scope == "global":
        return masks.without_(lowest(scores, masks, count, "scores"))
    if scope != "layer":
        raise unknown("scope", scope, ("global", "layer"))
    chosen: dict[str, Tensor] = {}
    for name, quota in layer_quotas({name: int(mask.count_nonzero()) for name, mask in masks.items()}, count).items():
        chosen |= lowest(scores, {name: masks[name]}, quota, "scores")
    return masks.without_(chosen)


def layer_quotas(alive: Mapping[str, int], count: int) -> dict[str, int]:
    """`count` shared out in proportion to the alive weights of each layer, by largest remainder.

    >>> layer_quotas({"a": 3, "b": 3, "c": 4}, 5)  # 1.5, 1.5 and 2: the one left over goes to the earlier layer
    {'a': 2, 'b': 1, 'c': 2}
    """
    total = sum(alive.values())
    quotas = {name: count * a // total for name, a in alive.items()} if total else dict.fromkeys(alive, 0)
    by_remainder = sorted(alive, key=lambda name: -(count * alive[name] % total)) if total else []
    for name in by_remainder[: count - sum(quotas.values())]:
        quotas[name] += 1
    return quotas


def prune_by(
    method: str,
    model: nn.Module,
    masks: Masks,
    count: int,
    batches: Batches | None = None,
    loss_fn: LossFn | None = None,
    graph: object = None,
    seed: int = 0,
    **options: Any,
) -> Masks:
    """`count` fewer alive, chosen by method X in its own scope.

    A method of many rounds (synflow) is scored anew in each; the alive weights shrink by the same factor a round.
    """
    known = METHODS[method]
    if not 0 <= count <= masks.alive:
        raise InputError(f"cannot prune {count} of {masks.alive} alive weights")
    if known.rounds > 1 and batches is not None:
        batches = list(batches)
    before, after = masks.alive, masks.alive - count
    for done in range(1, known.rounds + 1):
        target = after if done == known.rounds else round(before * (after / before) ** (done / known.rounds))
        if target < masks.alive or done == known.rounds:
            scores = score(method, model, masks, batches, loss_fn, graph, seed, **options)
            masks = prune_lowest(masks, scores, masks.alive - target, known.scope)
    return masks


@dataclass(frozen=True)
class Cut:
    """What one cycle removed. `shortfall` of AP's share went to method X (or, pruning by AP alone, to weights
    that are not negative), because too few weights were left that AP may take."""

    masks: Masks
    by_method: int
    by_rule: int
    shortfall: int = 0


def cut(
    masks: Masks,
    scores: Mapping[str, Tensor],
    budget: Budget,
    trained: Mapping[str, Tensor] | None = None,
    start: Mapping[str, Tensor] | None = None,
    scope: Scope = "global",
    rule: str = "ap",
    seed: int = 0,
) -> Cut:
    """One pruning by X and AP: X removes n_x, then AP n_ap, and X what AP could not find."""
    n_x, n_ap = budget.split(masks.alive)
    after_x = prune_lowest(masks, scores, n_x, scope)
    if n_ap == 0:
        return Cut(after_x, by_method=n_x, by_rule=0)
    if trained is None or start is None:
        raise InputError("AP compares the trained weights with those they started from: pass both, trained and start")
    after_ap = activate(after_x, trained, start, n_ap, rule, seed)
    shortfall = n_ap - (after_x.alive - after_ap.alive)
    final = prune_lowest(after_ap, scores, shortfall, scope) if shortfall else after_ap
    return Cut(final, by_method=n_x + shortfall, by_rule=n_ap - shortfall, shortfall=shortfall)


def cut_solo(masks: Masks, budget: Budget, trained: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> Cut:
    """One pruning by AP's metric alone; when the negative weights run out, the least-moved others go."""
    count = sum(budget.split(masks.alive))
    after_ap = activate(masks, trained, start, count, "ap")
    shortfall = count - (masks.alive - after_ap.alive)
    final = activate(after_ap, trained, start, shortfall, "least_moved")
    return Cut(final, by_method=0, by_rule=count, shortfall=shortfall)


def _check_scores(scores: Mapping[str, Tensor], masks: Masks) -> None:
    if absent := [name for name in masks if name not in scores]:
        raise InputError(f"no scores for layer {listed(absent)}")
    if extra := [name for name in scores if name not in masks]:
        raise InputError(f"scores of another model: there is no mask for layer {listed(extra)}")
    for name, mask in masks.items():
        if scores[name].shape != mask.shape:
            raise InputError(
                f"scores of layer {name!r} are {tuple(scores[name].shape)}, its mask is {tuple(mask.shape)}"
            )
