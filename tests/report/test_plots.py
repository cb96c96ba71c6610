"""The plots of the page, where a run has little to show."""

from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest
from bokeh.models import DataRange1d

from activeprune.report.page.along_density import amount_ticks, dead_neurons
from activeprune.report.page.arrays import Arrays
from activeprune.report.trainings import Reported

from .pages import page_of
from .synthetic import SMALL, run, training


def test_deviations_are_rounded_to_three_digits_that_are_right() -> None:
    arrays, exact = Arrays(), np.geomspace(1e-4, 50, 999)
    arrays.add("name", "choice", {"std": [*exact, None], "mean": [98.7654]})
    deviations, means = (np.frombuffer(b64decode(one), "<f4") for one in arrays.as_dict()["arrays"])
    assert np.isnan(deviations[-1])
    assert deviations[:-1] == pytest.approx(exact, rel=1e-3 / 2)
    assert abs(np.mean(deviations[:-1] / exact - 1)) < 1e-4 / 2  # neither too small nor too large on the whole
    assert means == pytest.approx([98.7654], rel=1e-7)


def test_a_curve_of_one_seed_has_no_deviation() -> None:
    (told,) = page_of(run("table1", **{**SMALL, "seeds": 1}), images=False).payload["runs"]
    columns = told["tables"]["training loss/ap_pro"]["2"]
    std, seeds = (np.frombuffer(b64decode(told["arrays"][columns[name]]), "<f4") for name in ("std", "seeds"))
    assert np.isnan(std).all()
    assert set(seeds) == {1}


@pytest.mark.parametrize("wide", [1.05, 1.6, 4.0, 30.0, 1e4])
def test_an_axis_of_amounts_has_ticks_however_narrow_it_is(wide: float) -> None:
    for low in (700.0, 1.7e4, 9.6e6):
        ticks = amount_ticks(low, low * wide)
        assert len(ticks) >= (1 if wide < 1.1 else 3)
        assert all(low <= tick <= low * wide for tick in ticks)


def test_rates_that_are_all_0_lie_on_the_lower_edge() -> None:
    def none_dead(one: Reported) -> Reported:
        after = {of: {**one.after[of], "static": 0.0} for of in ("unit", "channel")}
        return replace(one, after={**one.after, **after})

    static, dynamic, *_ = dead_neurons(run("table1", none_dead, **SMALL))
    assert (static.title, static.plot.y_range.start, static.plot.y_range.end) == ("static, units", 0.0, 1.0)
    assert isinstance(dynamic.plot.y_range, DataRange1d)


def test_a_training_without_probes_or_layers_does_without_their_figures() -> None:
    bare = run("table1", lambda one: replace(training(one.variant, one.cycle, one.seed), probes=(), layers={}), **SMALL)
    heads = [one.text for one in page_of(bare).all("h4")]
    assert "Dead neurons in training" not in heads
    assert "Accuracy along density" in heads
