"""What a reader sees while scrolling: bars that stay where they belong, and tables that fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
