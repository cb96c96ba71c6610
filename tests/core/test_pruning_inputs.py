"""What a method and a rule are given: seed and cycle, batches, loss and graph, and new masks in every round."""

import pytest
import torch
from torch import Tensor, nn

import activeprune as ap
from activeprune.core.evidence import Evidence
from activeprune.core.methods import METHODS, Method
from tests.helpers import SmallNet, holder, small_batches, snapshot


def test_seed_and_cycle_reach_the_method_and_the_rule() -> None:
    model = SmallNet()
    masks, start = ap.Masks.dense(model), snapshot(SmallNet())
    by_method = [ap.prune_cycle("random", model, masks, 50, seed=s, cycle=c).masks for s in (0, 1) for c in (0, 1)]
    ways = [{"seed": s, "cycle": c, "rule": "random"} for s in (0, 1) for c in (0, 1)]
    by_rule = [ap.prune_cycle("lamp", model, masks, 50, 50, start, **way).masks for way in ways]
    for choices in (by_method, by_rule):
        assert all(one != other for i, one in enumerate(choices) for other in choices[:i])
    again = ap.prune_cycle("random", model, masks, 50, seed=1, cycle=1).masks
    assert again == by_method[3] == ap.prune_lowest(masks, ap.score("random", model, masks, seed=1, cycle=1), 50)


def test_without_a_seed_it_is_cycle_0_of_seed_0() -> None:
    model = SmallNet()
    masks, start = ap.Masks.dense(model), snapshot(SmallNet())
    assert all(
        torch.equal(found, ap.score("random", model, masks, seed=0, cycle=0)[name])
        for name, found in ap.score("random", model, masks).items()
    )
    plain = ap.prune_cycle("random", model, masks, 50, 50, start, rule="random").masks
    assert plain == ap.prune_cycle("random", model, masks, 50, 50, start, rule="random", seed=0, cycle=0).masks


def test_batches_loss_and_graph_reach_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SmallNet().eval()
    masks = ap.Masks.dense(model)
    batches = [(x, torch.randn(len(x), 3)) for x, _ in small_batches(2)]
    graph, squared = ap.trace(model, batches[0][0]), nn.functional.mse_loss
    seen = []

    def slope(evidence: Evidence) -> dict[str, Tensor]:
        seen.append(evidence.graph)
        return evidence.gradient()

    monkeypatch.setitem(METHODS._known, "slope", Method("slope", slope))
    scores = ap.score("slope", model, masks, batches, squared, graph)
    after = ap.prune_cycle("slope", model, masks, 50, batches=iter(batches), loss_fn=squared, graph=graph).masks
    assert [one is graph for one in seen] == [True, True]
    (sum(squared(model(x), y) for x, y in batches) / 2).backward()
    for name, found in scores.items():
        torch.testing.assert_close(found, model.get_parameter(name).grad)
    assert after == ap.prune_lowest(masks, scores, 50)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        (1, [(1000, 2)]),
        (2, [(1000, 2), (316, 2)]),  # 1000 · 0.1^(0, 1/2)
        (3, [(1000, 2), (464, 2), (215, 2)]),  # 1000 · 0.1^(0, 1/3, 2/3)
    ],
)
def test_rounds_keep_the_same_fraction_each_and_may_read_batches_from_an_iterator(
    rounds: int, expected: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def witness(evidence: Evidence) -> dict[str, Tensor]:
        seen.append((evidence.masks.alive, len(list(evidence.batches()))))
        return evidence.weights

    monkeypatch.setitem(METHODS._known, "witness", Method("witness", witness, rounds=rounds))
    model = nn.Linear(100, 10)
    after = ap.prune_cycle("witness", model, ap.Masks.dense(model), 900, batches=iter([1, 2])).masks
    assert seen == expected
    assert after.alive == 100


def test_each_round_prunes_by_the_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second round's scores are upside down: what a first round over the whole network took could not come back."""
    told = []

    def turning(evidence: Evidence) -> dict[str, Tensor]:
        told.append([int(mask.sum()) for mask in evidence.masks.values()])
        return {name: (weight if len(told) == 1 else -weight) for name, weight in evidence.weights.items()}

    monkeypatch.setitem(METHODS._known, "turning", Method("turning", turning, rounds=2))
    weights = {"a.weight": torch.arange(1.0, 17.0), "b.weight": torch.arange(21.0, 37.0)}
    masks = ap.Masks({name: torch.ones(16, dtype=torch.bool) for name in weights})
    after = ap.prune_cycle("turning", holder(weights), masks, 24, scope="layer").masks
    assert told == [[16, 16], [8, 8]]  # 32 · ½ after the first of two rounds that keep a quarter
    assert [mask.nonzero().flatten().tolist() for mask in after.values()] == [[8, 9, 10, 11]] * 2


def test_a_method_of_one_round_reads_no_more_batches_than_it_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        METHODS._known, "first", Method("first", lambda evidence: next(evidence.batches()) and evidence.weights)
    )
    model, batches = nn.Linear(4, 4), iter([1, 2, 3])
    ap.prune_cycle("first", model, ap.Masks.dense(model), 3, batches=batches)
    assert list(batches) == [2, 3]
