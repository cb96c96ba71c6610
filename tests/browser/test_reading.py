"""What a reader sees while scrolling: bars that stay where they belong, and tables that fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from activeprune.report.writing import PAGE
from tests.report.synthetic import run, undone

from .conftest import PHONE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
Show = Callable[..., Any]

BARS = """() => [...document.querySelectorAll('.switches')].map((bar) => {
  const { top, bottom } = bar.getBoundingClientRect(), part = bar.parentElement.getBoundingClientRect();
  return { top, bottom, stays: top >= part.top - 1 && bottom <= part.bottom + 1 };
})"""


def test_a_bar_of_switches_stays_in_sight_within_its_own_part_only(show: Show, table1: Path) -> None:
    with show(table1) as tab:
        tab.draw()
        height = tab.page.evaluate("document.documentElement.scrollHeight")
        stuck = set()
        for top in range(0, height, 150):
            tab.page.evaluate(f"scrollTo(0, {top})")
            bars = tab.page.evaluate(BARS)
            assert all(bar["stays"] for bar in bars)
            here = [place for place, bar in enumerate(bars) if bar["top"] <= 1 and bar["bottom"] > 0]
            assert len(here) <= 1
            stuck.update(here)
        assert stuck == {0, 1}
        for part in ("tables", "provenance"):
            tab.page.evaluate(f"document.getElementById('run-1-{part}').scrollIntoView()")
            head = tab.page.locator(f"#run-1-{part}").bounding_box()["y"]
            assert not any(head < bar["bottom"] and bar["top"] < head + 100 for bar in tab.page.evaluate(BARS))


def test_the_accuracies_of_8_densities_are_in_sight_at_once(show: Show, written: Callable[..., Path]) -> None:
    """Also where a training is missing, which makes a cell longer."""
    short = run("table1", lambda one: undone(one) if (one.cycle, one.seed) == (13, 4) else one)
    with show(written(short)) as tab:
        table = tab.page.locator("#run-1-accuracy-table")
        assert table.locator("thead th").count() == 9
        box = table.locator("xpath=..")
        assert box.evaluate("one => one.scrollWidth <= one.clientWidth")
        assert table.bounding_box()["x"] + table.bounding_box()["width"] <= 1280


def test_a_table_that_is_wider_than_the_window_shows_that_it_scrolls(show: Show, table1: Path) -> None:
    with show(table1, PHONE) as tab:
        box = tab.page.locator("#run-1-accuracy-table").locator("xpath=..")
        assert box.evaluate("one => one.scrollWidth > one.clientWidth")
        assert "linear-gradient" in box.evaluate("one => getComputedStyle(one).backgroundImage")


def test_the_axis_of_accuracies_has_room_for_published_error_bars(show: Show, table1: Path) -> None:
    with show(table1) as tab:
        tab.draw()
        ends, bars = tab.page.evaluate("""() => {
          const { model } = Bokeh.index.roots.find((one) => one.el.closest('#run-1-accuracy-0'));
          const bars = model.renderers.filter((one) => one.glyph.type === 'Segment').map((one) => one.data_source.data);
          return [[model.y_range.start, model.y_range.end], bars.map(({ low, high }) => [[...low], [...high]])];
        }""")
        assert len(bars) >= 3
        assert ends[0] < min(value for low, _ in bars for value in low)
        assert ends[1] > max(value for _, high in bars for value in high)


def test_a_link_leads_to_the_claims_and_unfolds_them(show: Show, written: Callable[..., Path]) -> None:
    with show(written(run("table1", undone, cycles=2, report_cycles=[2], seeds=2))) as tab:
        claims = tab.page.locator("#claims")
        assert not claims.is_visible()
        tab.page.get_by_role("link", name="Claims").click()
        claims.wait_for(state="visible")


def test_the_layers_are_those_of_the_first_variant_until_another_is_chosen(show: Show, real: Path) -> None:
    with show(real / PAGE) as tab:
        choice = tab.page.locator("select[name=map_variant]")
        assert choice.input_value() == choice.locator("option").first.get_attribute("value")


@pytest.mark.parametrize("script", [True, False])
def test_a_linked_training_is_shown_under_the_heads_of_its_columns(show: Show, table1: Path, script: bool) -> None:
    with show(table1, java_script_enabled=script) as tab:
        tab.page.locator("#run-1-accuracy-table a[href='#r1-ap_pro-9']").click()
        group = tab.page.locator("#r1-ap_pro-9 th").first
        group.wait_for(state="visible")
        heads = tab.page.locator("details.provenance thead th").nth(1).bounding_box()
        assert heads["y"] >= 0
        assert heads["y"] + heads["height"] <= group.bounding_box()["y"] + 1
        assert group.bounding_box()["y"] < 500


def test_a_phone_has_the_keys_of_a_linked_training_in_sight(show: Show, real: Path) -> None:
    with show(real / PAGE, PHONE, has_touch=True, is_mobile=True) as tab:
        tab.page.locator("#run-1-accuracy-table a[href='#r1-ap_pro-2']").click()
        row = tab.page.locator("#r1-ap_pro-2 tr[data-accuracy]").first
        row.wait_for(state="visible")
        for key in row.locator("code").all():
            box = key.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= PHONE["width"]
        said = row.locator("td").nth(0).evaluate("one => getComputedStyle(one, '::before').content")
        assert "accuracy" in said
        assert tab.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
