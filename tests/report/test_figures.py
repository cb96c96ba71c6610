"""Figures show the numbers of a run, and say nothing where there are none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import mean, stdev
from typing import Any, get_args

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from activeprune.experiment.plan.reading import read_study
from activeprune.experiment.plan.study import Variant
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.report.cost import cost, layers_of_study
from activeprune.report.figures import FIGURES, Printed, caption, rendered, write_figures
from activeprune.report.figures.style import styled
from activeprune.report.gathering import Gathered, gathered
from activeprune.report.looks import LOOKS
from activeprune.report.published import accuracies, dead_rates
from activeprune.report.reference import aside, points, tables_of
from activeprune.report.series import some_of
from activeprune.report.trainings import Reported
from activeprune.report.wording import per_cent

from . import synthetic

FULL = synthetic.run("table1")


def extreme(training: Reported) -> Reported:
    """A layer that is pruned away, and losses that are 0 or no number."""
    losses = {0: 0.0, 1: float("nan")}
    epochs = tuple({**e, "train_loss": losses.get(training.seed, e["train_loss"])} for e in training.epochs)
    return replace(training, epochs=epochs, layers={**training.layers, "fc.weight": 0.0} if training.cycle else {})


STATES: dict[str, Gathered] = {
    "full": FULL,
    "all-13-cycles": synthetic.run("figure1"),
    "five-variants": synthetic.run("ablation-resnet20"),
    "all-variants": synthetic.run(
        "table1", seeds=2, variants=get_args(Variant), cycles=25, report_cycles=[*range(1, 26)]
    ),
    "extreme": synthetic.run("table1", lambda t: extreme(t)),
    "one-seed": synthetic.run("table1", seeds=1),
    "not-measured": synthetic.run("table1", lambda t: replace(t, before=None, after=None, probes=())),
    "half-finished": synthetic.run("table1", lambda t: synthetic.undone(t) if t.seed > 1 or t.cycle > 5 else t),
    "failed": synthetic.run("table1", lambda t: synthetic.failed(t) if (t.cycle + t.seed) % 3 == 0 else t),
    "all-failed": synthetic.run("table1", synthetic.failed),
    "dense-only": synthetic.run("table1", lambda t: synthetic.undone(t) if t.cycle else t),
    "no-masks": synthetic.run("table1", lambda t: replace(t, layers={})),
    "nothing": synthetic.run("table1", synthetic.undone),
}


def lines(axes: Axes, colour: str | None = None) -> list[list[tuple[float, float]]]:
    """The points of the lines of a panel, those of a colour if one is named; error bars' own markers come last."""
    found = [line for line in axes.get_lines() if colour in (None, line.get_color())]
    return [[(float(x), float(y)) for x, y in zip(*line.get_data(), strict=True)] for line in found]


def over_seeds(variant: str, cycle: int, value: Callable[[Reported], float]) -> list[float]:
    return [value(training) for training in FULL.of(variant, cycle).values()]


def figure_of(name: str, run: Gathered = FULL) -> Figure:
    figure = FIGURES[name](run)
    assert figure is not None
    return figure


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", FIGURES)
def test_every_state_of_a_run_gives_a_figure_or_none(name: str, state: str) -> None:
    figure = FIGURES[name](STATES[state])
    measured = name in ("dead-neurons", "dead-neurons-in-training")
    absent = {
        "not-measured": measured,
        "all-failed": name in ("accuracy", "learning-curves", "dead-neurons-in-training", "size-and-operations"),
        "dense-only": name == "layers",
        "nothing": True,
    }
    assert (figure is None) == absent.get(state, False)
    if figure is not None:
        assert figure.get_figwidth() in (3.4, 7.0)
        assert_readable(figure)


def assert_readable(figure: Figure) -> None:
    """All that is drawn is on the paper, and no two labels of an axis lie on one another."""
    rendered(figure, "png")
    with styled():
        figure.canvas.draw()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert -0.02 <= box.x0 < box.x1 <= width + 0.02
    assert -0.02 <= box.y0 < box.y1 <= height + 0.02
    for axes in figure.axes:
        labels = [t for t in axes.get_xticklabels() if t.get_text() and t.get_visible()] if axes.axison else []
        low, high = sorted(axes.get_xlim())
        boxes = sorted(
            (t.get_window_extent() for t in labels if low <= t.get_position()[0] <= high), key=lambda box: box.x0
        )
        assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))
    titles = sorted((axes.title.get_window_extent() for axes in figure.axes), key=lambda box: (-box.y0, box.x0))
    assert all(left.x1 <= right.x0 for left, right in pairwise(titles) if abs(left.y0 - right.y0) < 1 and right.width)
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)


def test_accuracies_are_means_with_bands_of_the_sample_standard_deviation() -> None:
    axes = figure_of("accuracy").axes[0]
    for place, variant in enumerate(FULL.study.variants):
        own = lines(axes, LOOKS[variant].colour)[0]
        values = [over_seeds(variant, cycle, lambda t: 100 * t.accuracy) for cycle in FULL.cycles]
        assert own == [pytest.approx((0.8**c, mean(v))) for c, v in zip(FULL.cycles, values, strict=True)]
        corners = axes.collections[place].get_paths()[0].vertices
        last = [y for x, y in corners if x == pytest.approx(0.8**13)]
        assert min(last) == pytest.approx(mean(values[-1]) - stdev(values[-1]))
        assert max(last) == pytest.approx(mean(values[-1]) + stdev(values[-1]))


def test_the_axis_of_densities_runs_from_dense_to_sparse_with_their_names() -> None:
    axes = figure_of("accuracy").axes[0]
    left, right = axes.get_xlim()
    assert axes.get_xscale() == "log"
    assert left > 1 > 0.8**13 > right
    assert [t.get_text() for t in axes.get_xticklabels()] == ["100", "64", "41", "33", "26", "13", "8.6", "5.5"]


def test_published_points_are_hollow_and_stand_a_little_aside() -> None:
    axes = figure_of("accuracy").axes[0]
    hollow = [line for line in axes.get_lines() if line.get_markerfacecolor() == "white"]
    assert [line.get_color() for line in hollow] == [LOOKS[v].colour for v in ("plain", "ap_lite", "ap_pro")]
    xs, ys = hollow[-1].get_data()
    assert [*ys] == pytest.approx([91.7, 91.8, 91.4, 90.7, 90.4, 89.3, 87.3, 84.1])
    assert all(0.88 < x / printed < 1 for x, printed in zip(xs, [1, 0.64, 0.409, 0.328, 0.262], strict=False))
    assert "(table 1)" in figure_of("accuracy").get_supxlabel()


def test_a_run_on_its_way_shows_published_points_as_far_as_it_has_come() -> None:
    axes = figure_of("accuracy", STATES["half-finished"]).axes[0]
    assert min(x for line in lines(axes) for x, _ in line) > 0.3


def test_a_study_finds_the_table_that_it_is_compared_with() -> None:
    def found(study: str, **changes: Any) -> tuple[str, set[str]]:
        own = read_study(study, changes)
        return tables_of(accuracies(own), own), set(points(accuracies(own), own))

    assert found("table2") == ("table 2", {"plain", "ap_lite", "ap_pro"})
    assert found("ablation-resnet20") == ("ablation", {"ap_lite", "solo", "no_rewind"})
    assert found("table5", **{"data.path": "/nowhere"})[0] == "table 5"
    assert found("table6")[0] == "table 6"
    assert found("demo") == ("", set())
    assert found("table1", method="lamp") == ("", set())
    assert dead_rates(read_study("demo")) is None
    rates = points(dead_rates(study := read_study("dnr-resnet20")), study)
    assert [point.mean for point in rates["plain"]] == pytest.approx([0.077, 0.074, 0.070, 0.067, 0.063, 0.061])
    assert set(rates) == {"plain", "ap_lite"}


def test_failed_trainings_are_left_out_and_said() -> None:
    run = STATES["failed"]
    figure = figure_of("accuracy", run)
    good = [t.accuracy for t in run.of("plain", 4).values() if t.accuracy is not None]
    assert 0 < len(good) < 5
    drawn_there = dict(lines(figure.axes[0], LOOKS["plain"].colour)[0])
    assert drawn_there[0.8**4] == pytest.approx(100 * mean(good))
    assert "failed" in figure.get_supxlabel()


def test_static_and_dynamic_rates_of_units_and_channels() -> None:
    panels = {axes.get_title(): axes for axes in figure_of("dead-neurons").axes}
    for of in ("unit", "channel"):
        for what in ("static", "dynamic"):
            own = lines(panels[f"{what}, {of}s"], LOOKS["ap_pro"].colour)[0]
            values = [over_seeds("ap_pro", c, lambda t, of=of, what=what: 100 * t.after[of][what]) for c in FULL.cycles]
            assert [y for _, y in own] == pytest.approx([mean(v) for v in values])
    assert lines(panels["dynamic, published"])[0][0][1] == pytest.approx(7.7)


def test_rates_during_training_by_epoch_for_several_densities() -> None:
    figure = figure_of("dead-neurons-in-training")
    labels = [t.get_text() for t in figure.legends[0].get_texts()]
    assert labels == ["λ = 100 %", "λ = 41 %", "λ = 26 %", "λ = 13 %", "λ = 5.5 %"]
    own = lines(figure.axes[-1])  # ap_pro
    assert [x for x, _ in own[0]] == pytest.approx([*range(0, 101, 2)])
    seen = over_seeds("ap_pro", 13, lambda t: 100 * t.probes[-1]["unit"]["dynamic"])
    assert own[-1][-1][1] == pytest.approx(mean(seen))


def test_learning_curves_are_means_of_the_epochs() -> None:
    axes = figure_of("learning-curves").axes
    assert len(axes) == 8
    loss = over_seeds("plain", 0, lambda t: t.epochs[9]["train_loss"])
    assert lines(axes[0])[0][9] == pytest.approx((10, mean(loss)))
    seen = over_seeds("ap_pro", 13, lambda t: 100 * t.epochs[-1]["validation_accuracy"])
    assert lines(axes[-1])[-1][-1] == pytest.approx((100, mean(seen)))


def test_the_map_of_layers_has_densities_and_rates() -> None:
    maps = [axes.collections[0] for axes in figure_of("layers").axes if axes.collections][:12]
    density, dynamic, static = (maps[row * 4 + 3].get_array() for row in range(3))  # ap_pro
    assert density.shape == (len(synthetic.WEIGHTS), len(FULL.cycles))
    assert [*density[:, 0]] == pytest.approx([100] * len(synthetic.WEIGHTS))
    layers = FULL.of("ap_pro", 13)[0].layers
    assert [*density[:, -1]] == pytest.approx([100 * layers[name] for name in synthetic.WEIGHTS])
    after = FULL.of("ap_pro", 13)[0].after["unit"]["layers"]
    assert [*dynamic[:, -1]] == pytest.approx([100 * after[name]["dynamic"] for name in synthetic.RELUS])
    assert [*static[:, -1]] == pytest.approx([100 * after[name]["static"] for name in synthetic.RELUS])


def test_size_and_operations_are_those_of_the_layers() -> None:
    size, operations = figure_of("size-and-operations").axes[:2]
    layers = layers_of_study(FULL.study)
    worked_out = [cost(layers, FULL.of("plain", cycle)[0].layers) for cycle in FULL.cycles]
    colour = LOOKS["plain"].colour
    assert [x for x, _ in lines(size, colour)[0]] == pytest.approx([c.weights for c in worked_out])
    assert [x for x, _ in lines(operations, colour)[0]] == pytest.approx([c.multiply_adds for c in worked_out])
    assert worked_out[0].multiply_adds == 40_813_184


def test_variants_differ_without_colour() -> None:
    assert len({look.marker for look in LOOKS.values()}) == len(LOOKS)
    assert len({look.colour for look in LOOKS.values()}) == len(LOOKS)
    assert set(LOOKS) == set(get_args(Variant))


@pytest.mark.slow
def test_files_are_the_same_every_time_in_any_thread_and_under_any_settings(tmp_path: Path) -> None:
    run = synthetic.run("dnr-resnet20", seeds=2)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda folder: write_figures(Printed(run), tmp_path / folder), ("a", "b"))
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": None}):
        third = rendered(figure_of("accuracy", run), "svg")
        assert matplotlib.rcParams["font.size"] == 30
    assert [path.name for path in first] == [f"{n}.{form}" for n in FIGURES for form in ("svg", "pdf", "png")]
    assert first[0].read_bytes() == third
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name


@pytest.mark.parametrize("name", FIGURES)
def test_a_file_does_not_depend_on_what_was_made_of_the_figure_before(name: str) -> None:
    figure = figure_of(name)
    first = rendered(figure, "svg")
    assert rendered(figure, "svg") == first
    assert rendered(figure, "png") == rendered(figure_of(name), "png")


def test_a_smaller_svg_for_the_page_leaves_the_file_as_it_is() -> None:
    first = Printed(FULL)
    for name in ("layers", "accuracy"):
        files, small = first.files(name), first.small_svg(name)
        assert files["svg"] == rendered(figure_of(name), "svg")
        assert (small.count(b"<image") > files["svg"].count(b"<image")) == (name == "layers")
        assert Printed(FULL).small_svg(name) == small  # whichever is made first


def test_formats_are_what_they_say() -> None:
    figure = figure_of("accuracy")
    assert rendered(figure, "png").startswith(b"\x89PNG")
    assert rendered(figure, "pdf").startswith(b"%PDF")
    svg = rendered(figure, "svg")
    assert b"<svg" in svg
    assert b"<dc:date>" not in svg


def test_captions_are_sentences() -> None:
    assert all(caption(name).endswith(".") and len(caption(name)) > 40 for name in FIGURES)


@pytest.mark.parametrize(
    ("density", "text"), [(1.0, "100"), (0.998, "100"), (0.5, "50"), (0.0995, "10"), (0.055, "5.5"), (0.00385, "0.39")]
)
def test_densities_have_two_digits(density: float, text: str) -> None:
    assert per_cent(density) == text


def test_some_of_many_keep_both_ends() -> None:
    for count in range(1, 30):
        chosen = some_of(range(count), 5)
        assert (chosen[0], chosen[-1], len(chosen)) == (0, count - 1, min(count, 5))
        assert chosen == sorted(set(chosen))


def test_a_real_run(tmp_path: Path) -> None:
    """One that has just been started, and the same when it is done."""
    run = started("smoke", tmp_path / "smoke", changes={"measure": "dnr", "probe_every": "1ep", "variants": "plain"})
    assert not any(draw(gathered(run)) for draw in FIGURES.values())
    run.write_study()
    run.go(processes=1)
    done = gathered(Run.opened(tmp_path / "smoke"))
    assert all(draw(done) for draw in FIGURES.values())


def test_matplotlib_and_no_pyplot_is_loaded_for_figures_alone() -> None:
    program = (
        "import sys, activeprune, activeprune.report.gathering; assert 'matplotlib' not in sys.modules\n"
        "import activeprune.report.figures; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_no_published_point_stands_nearer_to_another_density_than_to_its_own() -> None:
    for marked in ([0.8**cycle for cycle in (0, 2, 4, 5, 6, 9, 11, 13)], [1.0, 0.9, 0.1], [1.0]):
        for turns in range(1, 8):
            step = aside(marked, turns)
            assert step < 1
            for density in marked:
                placed = density * step**turns
                assert min(marked, key=lambda other: abs(log(other / placed))) == density
