"""The page without a pointer: few stops of the Tab key, names for plots, and their numbers as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from activeprune.report.writing import PAGE
from tests.report.synthetic import training

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
Show = Callable[..., Any]

MOST = 75  # stops in a page with six variants
DEEPEST = """() => {
  let one = document.activeElement;
  while (one.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
  return [one.tagName, one.getAttribute('href') || one.className, Boolean(document.activeElement.closest('.plot'))];
}"""
CANVASES = """() => {
  const found = [];
  const walk = (root, name) => {
    for (const one of root.querySelectorAll('*')) {
      const named = name || one.closest('[role=img]')?.getAttribute('aria-label') || '';
      if (one.tagName === 'CANVAS') found.push(named);
      if (one.shadowRoot) walk(one.shadowRoot, named);
    }
  };
  walk(document, '');
  return found;
}"""
SEEDS = range(5)


def stops(tab: Any) -> list[list[Any]]:
    """What the Tab key comes to, until it leaves the page."""
    found: list[list[Any]] = []
    while len(found) < 400:
        tab.page.keyboard.press("Tab")
        if tab.page.evaluate("document.activeElement === document.body"):
            break
        found.append(tab.page.evaluate(DEEPEST))
    return found


def test_the_tab_key_is_soon_through_and_stops_at_no_plot(show: Show, table1: Path) -> None:
    with show(table1) as tab:
        tab.draw()
        found = stops(tab)
        assert 30 < len(found) <= MOST
        assert not any(in_plot for _, _, in_plot in found)


def test_every_canvas_is_a_picture_with_a_name(show: Show, table1: Path) -> None:
    with show(table1) as tab:
        tab.draw()
        names = tab.page.evaluate(CANVASES)
        assert len(names) >= 12
        assert all(names)


def test_arrows_lead_to_every_number_of_a_table(show: Show, real: Path) -> None:
    with show(real / PAGE) as tab:
        table = tab.page.locator("#run-1-paired-table")
        links = [link.get_attribute("href") for link in table.locator("a").all()]
        assert table.locator("a[tabindex='0']").count() == 1
        table.locator("a").first.focus()
        here = "document.activeElement.getAttribute('href')"
        reached = [tab.page.evaluate(here)]
        for _ in links[1:]:
            tab.page.keyboard.press("ArrowRight")
            reached.append(tab.page.evaluate(here))
        assert reached == links
        tab.page.keyboard.press("ArrowUp")
        assert (
            tab.page.evaluate("document.activeElement.closest('tr').rowIndex") == table.locator("tbody tr").count() - 1
        )
        tab.page.keyboard.press("Home")
        tab.page.keyboard.press("Enter")
        assert tab.page.locator(":target").is_visible()


def unfolded(tab: Any, figure: str) -> Any:
    details = tab.page.locator(f"#run-1-figure-{figure} details.numbers")
    details.locator("summary").press("Enter")
    details.locator("table").first.wait_for()
    return details


def cells(row: Any) -> list[str]:
    return [one.inner_text() for one in row.locator("th, td").all()]


def test_figures_have_their_numbers_as_tables(show: Show, table1: Path) -> None:
    with show(table1) as tab:
        costs = unfolded(tab, "size-and-operations")
        accuracies = [100 * training("ap_pro", 13, seed).accuracy for seed in SEEDS]
        (row,) = (one for one in map(cells, costs.locator("tbody tr").all()) if one[0] == "AP-Pro" and "13)" in one[1])
        assert row[-1].startswith(f"{fmean(accuracies):.3f} ± {stdev(accuracies):.3f}")
        curves = unfolded(tab, "learning-curves")
        (row,) = (one for one in map(cells, curves.locator("tbody tr").all()) if one[0] == "AP-Pro" and "13)" in one[1])
        epochs = [[epoch["validation_accuracy"] for epoch in training("ap_pro", 13, seed).epochs] for seed in SEEDS]
        means = [100 * fmean(values) for values in zip(*epochs, strict=True)]
        assert row[4].startswith(f"{means[-1]:.3f}")
        assert (row[5], row[6].split(" ")[0]) == (str(means.index(max(means)) + 1), f"{max(means):.3f}")


def test_the_numbers_of_layers_follow_the_choice(show: Show, table1: Path) -> None:
    with show(table1) as tab:
        layers = unfolded(tab, "layers")
        profiles = unfolded(tab, "layer-profiles")
        for variant, label in (("ap_pro", "AP-Pro"), ("plain", "plain")):
            tab.page.locator("select[name=map_variant]").select_option(variant)
            rates = layers.get_by_label(f"dynamic DNR (%) of {label}, by λ")
            rates.wait_for()
            (row,) = (one for one in map(cells, rates.locator("tbody tr").all()) if one[0] == "relu")
            rate = fmean(training(variant, 13, seed).after["unit"]["layers"]["relu"]["dynamic"] for seed in SEEDS)
            assert row[-1] == f"{100 * rate:.2f}"
        tab.page.locator("select[name=map_cycle]").select_option("2")
        profiles.get_by_text("(cycle 2)").first.wait_for()
