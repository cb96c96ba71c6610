"""Methods are found by name: built in, registered, or offered by another package."""

import functools
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import activeprune as ap
from activeprune.cli import main
from activeprune.core.methods import METHODS

PAPER_METHODS = {
    "fisher", "global_gradient", "global_magnitude", "imp", "lamp",
    "layer_magnitude", "obd", "random", "snip", "synflow",
}  # fmt: skip


@pytest.fixture
def _clean_registry() -> None:
    known, origin = dict(METHODS._known), dict(METHODS._origin)
    yield
    METHODS._known, METHODS._origin = known, origin


def test_every_method_is_there_and_says_what_it_does() -> None:
    assert set(METHODS) >= PAPER_METHODS
    assert all(METHODS[name].summary for name in METHODS)


@pytest.mark.usefixtures("_clean_registry")
def test_a_method_that_wants_batches_is_not_called_without_them() -> None:
    called = []

    @ap.method("eager", batches=1)
    def eager(weight: torch.Tensor) -> torch.Tensor:
        called.append(weight)
        return weight.abs()

    model = torch.nn.Linear(2, 1)
    with pytest.raises(ap.InputError, match="method 'eager': it needs batches"):
        ap.score("eager", model, ap.Masks.dense(model))
    assert not called


@pytest.mark.usefixtures("_clean_registry")
def test_a_method_of_ones_own_takes_three_lines() -> None:
    @ap.method("smallest_index_last")
    def smallest_index_last(weight: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.arange(weight.numel(), 0, -1.0).view_as(weight)

    model = nn.Linear(3, 2)
    masks = ap.prune_cycle("smallest_index_last", model, ap.Masks.dense(model), 2).masks
    assert masks["weight"].flatten().tolist() == [True, True, True, True, False, False]
    assert smallest_index_last(torch.zeros(2), torch.ones(2)).tolist() == [2, 1]  # still an ordinary function


@pytest.mark.usefixtures("_clean_registry")
def test_options_reach_the_method_and_unknown_ones_are_refused() -> None:
    @ap.method("power")
    def power(weight: torch.Tensor, exponent: float = 1.0) -> torch.Tensor:
        return weight.abs() ** exponent

    model = nn.Linear(2, 2)
    masks = ap.Masks.dense(model)
    assert torch.equal(ap.score("power", model, masks, exponent=2.0)["weight"], model.weight.detach() ** 2)
    assert torch.equal(ap.score("power", model, masks, exponent=2)["weight"], model.weight.detach() ** 2)
    after = ap.prune_cycle("power", model, masks, 1, options={"exponent": -1.0}).masks
    assert not after["weight"].flatten()[model.weight.abs().argmax()]
    with pytest.raises(ap.InputError, match=r"method 'power': unknown option 'exponnet': did you mean 'exponent'"):
        ap.score("power", model, masks, exponnet=2.0)


@pytest.mark.usefixtures("_clean_registry")
def test_a_name_belongs_to_who_registered_it_first() -> None:
    with pytest.raises(ap.InputError, match=r"method 'lamp' is taken by activeprune\.core\.methods\.magnitude\.lamp"):
        ap.method("lamp")(lambda weight: weight)
    for _ in range(2):  # the cell of a notebook, run twice

        @ap.method("mine")
        def mine(weight: torch.Tensor) -> torch.Tensor:
            return weight

    assert "mine" in METHODS


def test_a_method_that_asks_for_what_there_is_not_is_refused_at_once() -> None:
    with pytest.raises(ap.InputError, match=r"method 'greedy' takes \(weight, activations\)"):
        ap.method("greedy")(lambda weight, activations: weight)
    with pytest.raises(ap.InputError, match="unknown scope 'everywhere'"):
        ap.method("wide", scope="everywhere")(lambda weight: weight)
    with pytest.raises(ap.InputError, match="unknown chain 'at-init': did you mean 'at_init'"):
        ap.method("early", chain="at-init")(lambda weight: weight)
    with pytest.raises(ap.InputError, match="method 'never': rounds = 0"):
        ap.method("never", rounds=0)(lambda weight: weight)
    with pytest.raises(ap.InputError, match="method 'clash': an option cannot be called 'seed'"):
        ap.method("clash")(lambda weight, seed=0: weight)
    assert not {"greedy", "wide", "early", "never", "clash"} & set(METHODS)


@pytest.mark.parametrize("name", ["", None, 3, lambda weight: weight])
def test_a_decorator_needs_a_name(name: object) -> None:
    """The last of them is `@ap.method` without parentheses."""
    with pytest.raises(ap.InputError, match="method: a name in quotation marks is needed"):
        ap.method(name)
    with pytest.raises(ap.InputError, match="activation rule: a name in quotation marks"):
        ap.activation_rule(name)


@pytest.mark.usefixtures("_clean_registry")
def test_what_a_method_of_ones_own_returns_is_checked() -> None:
    model = nn.Linear(3, 2)
    before, masks = model.weight.detach().clone(), ap.Masks.dense(model)
    for name, function, says in [
        ("nothing", lambda weight: None, "scores of layer 'weight' are no tensor"),
        ("flat", lambda weight: weight.flatten(), r"scores of layer 'weight' are \(6,\)"),
        ("no_dict", lambda evidence: None, "must return scores by name, not NoneType"),
        ("empty", lambda evidence: {}, "no scores for layer 'weight'"),
        ("greedy", lambda weight: weight.abs_(), "changed the weights of 'weight' in place"),
    ]:
        ap.method(name)(function)
        with pytest.raises(ap.InputError, match=f"method '{name}': .*{says}"):
            ap.score(name, model, masks)
    model.weight.data = before.clone()
    ap.method("itself")(functools.partial(lambda weight: weight))
    ap.score("itself", model, masks)["weight"].zero_()
    assert torch.equal(model.weight, before)


def test_a_misspelt_name_gets_its_neighbour() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ap.InputError, match="unknown method 'golbal_magnitude': did you mean 'global_magnitude'"):
        ap.score("golbal_magnitude", model, ap.Masks.dense(model))
    state = model.state_dict()
    with pytest.raises(ap.InputError, match="unknown activation rule 'pa'"):
        ap.activate(ap.Masks.dense(model), state, state, 1, rule="pa")


@pytest.mark.usefixtures("_clean_registry")
def test_an_installed_package_offers_methods_by_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "guest_methods.py").write_text(
        "def upside_down(weight, mask):\n    'Keeps the small ones.'\n    return -weight.abs()\nnumber = 3\n"
    )
    (tmp_path / "guest_by_itself.py").write_text(
        "import activeprune as ap\n@ap.method('by_itself', scope='layer')\n"
        "def by_itself(weight):\n    return weight.detach() * 0 + 1\n"
    )
    info = tmp_path / "guest-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[activeprune.methods]\nupside_down = guest_methods:upside_down\n"
        "by_itself = guest_by_itself:by_itself\nnumber = guest_methods:number\nbroken = no_such_module:at_all\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("guest_methods", "guest_by_itself"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert "upside_down" in METHODS
    assert "guest_methods" not in sys.modules  # imported only when asked for
    model = nn.Linear(4, 1)
    assert torch.equal(ap.score("upside_down", model, ap.Masks.dense(model))["weight"], -model.weight.detach().abs())
    assert METHODS["upside_down"].summary == "Keeps the small ones."
    with pytest.raises(ap.InputError, match=r"method 'number' .*'guest_methods:number' is no function but 3"):
        METHODS["number"]
    with pytest.raises(ap.InputError, match=r"'no_such_module:at_all' cannot be imported: ModuleNotFoundError"):
        METHODS["broken"]
    assert ap.score("by_itself", model, ap.Masks.dense(model))["weight"].tolist() == [[1.0] * 4]
    assert METHODS["by_itself"].scope == "layer"
    assert main(["list", "methods"]) == 0  # the others are still listed
    assert "cannot be imported" in capsys.readouterr().out
