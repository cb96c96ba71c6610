"""What the page says of the points under the mouse or a finger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.report.synthetic import run, training

from .conftest import DESKTOP, PHONE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
Show = Callable[..., Any]

SMALL = {"cycles": 2, "report_cycles": [1, 2], "seeds": 2, "variants": ["plain", "ap_pro"]}
PLACE = """([plot, variant, at, type]) => {
  const view = Bokeh.index.roots.find((one) => one.el.closest(`#${plot}`));
  const box = view.canvas_view.el.getBoundingClientRect();
  const { glyph, data_source: { data } } = view.model.renderers.find((one) => one.glyph.type === type &&
    (!variant || one.tags.some((tag) => tag.variant === variant && Object.keys(tag).length === 1)));
  const place = at < 0 ? data.x.length + at : at;
  return [box.x + view.frame.x_scale.compute(data[glyph.x.field][place]),
          box.y + view.frame.y_scale.compute(data[glyph.y.field][place])];
}"""


def place(tab: Any, plot: str, variant: str = "", at: int = -1, glyph: str = "Scatter") -> tuple[float, float]:
    """Where in the window a point of a variant is; the plot is brought there first."""
    tab.page.locator(f"#{plot}").scroll_into_view_if_needed()
    tab.page.evaluate(f"document.getElementById('{plot}').scrollIntoView({{ block: 'center' }})")
    return tuple(tab.page.evaluate(PLACE, [plot, variant, at, glyph]))


def accuracy(variant: str, cycle: int, seeds: int = 5) -> str:
    return f"{100 * fmean(training(variant, cycle, seed).accuracy for seed in range(seeds)):.3f} ±"


def test_a_tap_on_a_point_tells_its_value_and_a_tap_elsewhere_takes_it_away(show: Show, table1: Path) -> None:
    for size in (PHONE, DESKTOP):
        with show(table1, size, has_touch=True, is_mobile=size is PHONE) as tab:
            tab.draw()
            told = tab.page.locator(".told")
            assert not told.is_visible()
            x, y = place(tab, "run-1-accuracy-0", "ap_pro")
            tab.page.touchscreen.tap(x + 6, y - 5)  # a finger is not a needle
            told.wait_for(state="visible")
            assert accuracy("ap_pro", 13) in told.inner_text()
            box = told.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= size["width"]
            tab.page.touchscreen.tap(5, 5)
            told.wait_for(state="hidden")


@pytest.mark.parametrize(
    ("plot", "variant", "glyph", "names"),
    [
        ("run-1-learning-curves-1", "ap_pro", "Line", ["epoch", "validation accuracy (%)", "AP-Pro"]),
        ("run-1-layers-1", "", "Rect", ["layer", "λ", "dynamic DNR"]),
        ("run-1-layer-profiles-1", "ap_pro", "Line", ["layer", "dynamic DNR (%)"]),
        ("run-1-size-and-operations-0", "ap_pro", "Scatter", ["mean", "seeds"]),
    ],
)
def test_taps_tell_of_every_kind_of_figure(
    show: Show, table1: Path, plot: str, variant: str, glyph: str, names: list[str]
) -> None:
    with show(table1, PHONE, has_touch=True, is_mobile=True) as tab:
        tab.draw()
        tab.page.touchscreen.tap(*place(tab, plot, variant, glyph=glyph))
        told = tab.page.locator(".told")
        told.wait_for(state="visible")
        for name in names:
            assert name in told.inner_text()
        assert "@" not in told.inner_text()
        assert "NaN" not in told.inner_text()


def test_points_at_the_same_place_are_told_of_in_one_list(show: Show, written: Callable[..., Path]) -> None:
    alike = run("table1", lambda one: replace(one, accuracy=0.9 + one.seed / 100), **SMALL)
    with show(written(alike)) as tab:
        tab.draw()
        x, y = place(tab, "run-1-accuracy-0", "plain")
        tab.page.mouse.move(x - 40, y)
        tab.page.mouse.move(x, y)
        told = tab.page.locator(".told")
        assert told.count() == 1
        told.wait_for(state="visible")
        assert [one.inner_text() for one in told.locator("b").all()] == ["plain", "AP-Pro"]
        assert told.inner_text().count("90.500 ± 0.707 % (2 seeds)") == 2
        tab.page.keyboard.press("Escape")
        assert not told.is_visible()


def test_what_is_switched_off_is_not_told_of(show: Show, written: Callable[..., Path]) -> None:
    alike = run("table1", lambda one: replace(one, accuracy=0.9), **SMALL)
    with show(written(alike)) as tab:
        tab.draw()
        tab.page.locator("input[name=variant][value=plain]").uncheck()
        tab.page.mouse.move(*place(tab, "run-1-accuracy-0", "plain"))
        tab.page.locator(".told").wait_for(state="visible")
        assert [one.inner_text() for one in tab.page.locator(".told b").all()] == ["AP-Pro"]
