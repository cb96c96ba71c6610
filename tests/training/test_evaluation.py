"""Batches of one size hold every image once, and give the means over each part."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from activeprune.training.evaluation import AT_ONCE, NO_LABEL, Evaluation

CPU = torch.device("cpu")
SIZES = st.integers(1, 2100)


def evaluation(validation: int, test: int, seed: int = 0) -> tuple[Evaluation, dict, SimpleNamespace]:
    """The rows of each part are anywhere among 50 more images than are needed; labels are 0 to 9."""
    draw = torch.Generator().manual_seed(seed)
    count = validation + test + 50
    own = torch.randperm(count, generator=draw)
    rows = {"validation": own[:validation], "test": own[validation : validation + test]}
    shelf = SimpleNamespace(labels=torch.randint(0, 10, (count,), generator=draw))
    found = Evaluation({"train": 50, "validation": validation, "test": test}, CPU)
    found.take_on(rows, shelf)
    return found, rows, shelf


@given(SIZES, SIZES)
def test_every_image_counts_once_and_with_its_own_part(validation: int, test: int) -> None:
    found, rows, shelf = evaluation(validation, test)
    assert found.rows.shape == found.labels.shape == (found.count, found.rows.shape[1])
    labelled = found.labels != NO_LABEL
    assert torch.equal(found.rows[labelled], torch.cat([rows["validation"], rows["test"]]))
    assert torch.equal(found.labels[labelled], shelf.labels[found.rows[labelled]])
    first = 0
    for part, batches in found.parts:
        assert set(found.rows[first : first + batches].flatten().tolist()) == set(rows[part].tolist())
        first += batches
    assert first == found.count


@given(SIZES, SIZES)
def test_batches_are_large_and_little_is_filled_up(validation: int, test: int) -> None:
    """The larger part is cut evenly; the other one ends in a batch that is not full."""
    found, _, _ = evaluation(validation, test)
    images, larger = found.rows.shape[1], max(validation, test)
    assert images <= AT_ONCE < 2 * images or images == larger
    batches = dict(found.parts)
    for part, size in (("validation", validation), ("test", test)):
        assert 0 <= batches[part] * images - size < images
    whole = batches["validation" if validation > test else "test"]
    assert whole * images - larger < whole


def test_batches_of_cifar_are_whole() -> None:
    found = Evaluation({"train": 45_000, "validation": 5_000, "test": 10_000}, CPU)
    assert found.rows.shape == (30, 500)
    assert found.parts == [("validation", 10), ("test", 20)]


@pytest.mark.parametrize(("validation", "test"), [(8, 30), (700, 1300), (1300, 700), (1, 501)])
def test_scores_are_means_over_each_part(validation: int, test: int) -> None:
    found, rows, shelf = evaluation(validation, test)
    logits = torch.randn(len(shelf.labels), 10, generator=torch.Generator().manual_seed(1))
    found.begin()
    for _ in range(found.count):
        own, labels = found.batch()
        right = (logits[own].argmax(1) == labels).sum()
        found.note(torch.stack([cross_entropy(logits[own], labels, reduction="sum"), right]))
    scores = found.scores(found.sums.tolist())
    assert list(scores) == ["validation", "test"]
    for part, score in scores.items():
        own = rows[part]
        assert score.loss == pytest.approx(float(cross_entropy(logits[own].double(), shelf.labels[own])), rel=1e-6)
        assert score.accuracy == float((logits[own].argmax(1) == shelf.labels[own]).double().mean())


def test_another_network_takes_the_same_places() -> None:
    """And one that goes on behind the last batch stays there."""
    found, _, _ = evaluation(700, 1300, seed=0)
    other, rows, shelf = evaluation(700, 1300, seed=1)
    places = [tensor.data_ptr() for tensor in (found.rows, found.labels, found.sums, found.at)]
    found.take_on(rows, shelf)
    assert torch.equal(found.rows, other.rows)
    assert torch.equal(found.labels, other.labels)
    for _ in range(found.count + 3):
        found.note(torch.tensor([1.0, 2.0]))
    assert found.at.tolist() == [found.count - 1]
    found.begin()
    assert found.at.tolist() == [0]
    assert found.sums.isnan().all()
    assert places == [tensor.data_ptr() for tensor in (found.rows, found.labels, found.sums, found.at)]
