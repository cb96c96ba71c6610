"""A real browser, and the pages that it is shown."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from activeprune.cli import main
from activeprune.report.gathering import Gathered
from activeprune.report.report import Report
from activeprune.report.writing import draw_page

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@dataclass
class Tab:
    """A page in the browser, and all that it complained of or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def draw(self) -> None:
        """Brings every plot into sight, which is when it is drawn, and goes back to the top."""
        for plot in self.page.locator(".plot").all():
            plot.scroll_into_view_if_needed()
            self.page.wait_for_function("plot => 'drawn' in plot.dataset", arg=plot.element_handle())
        self.page.evaluate("scrollTo(0, 0)")

    def models(self, run: str = "run-1", **tags: str) -> list[dict[str, Any]]:
        """What is known of the parts of a run's plots that have these tags and no other."""
        return self.page.evaluate(
            """([run, tags]) => Bokeh.documents.flatMap((document) =>
              document.roots().flatMap((root) => [...root.references()]
                .filter((model) => (model.tags || []).some((tag) =>
                  Object.entries(tags).every(([name, value]) => tag[name] === value) &&
                  Object.keys(tag).length === Object.keys(tags).length))
                .map((model) => ({
                  visible: model.visible,
                  colour: model.glyph && model.glyph.line_color ? model.glyph.line_color.value : null,
                  mean: model.data && model.data.mean ? [...model.data.mean] : null,
                  value: model.data && model.data.value ? [...model.data.value] : null,
                }))))""",
            [run, tags],
        )


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no chromium: make test-browser says how to get one")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield started
        started.close()


@pytest.fixture
def show(browser: Browser) -> Iterator[Callable[..., Any]]:
    """Opens a file; at the end of the test nothing must have been complained of, and nothing asked for but the file."""
    tabs: list[Tab] = []

    @contextmanager
    def opened(path: Path, size: dict[str, int] = DESKTOP, **options: Any) -> Iterator[Tab]:
        context = browser.new_context(viewport=size, **options)
        tab = Tab(context.new_page())
        tabs.append(tab)
        tab.page.on(
            "console", lambda said: tab.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
        tab.page.on("request", lambda asked: tab.requests.append(asked.url))
        tab.page.goto(path.as_uri())
        try:
            yield tab
        finally:
            context.close()

    yield opened
    for tab in tabs:
        assert tab.complaints == []
        assert {url.partition("#")[0] for url in tab.requests if not url.startswith("data:")} <= {tab.requests[0]}


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was computed, and its page."""
    out = tmp_path_factory.mktemp("runs") / "smoke"
    changes = ["seeds=2", "measure=[dnr]", "epochs=2ep", "probe_every=1ep"]
    sets = [part for change in changes for part in ("--set", change)]
    assert main(["run", "smoke", "--out", str(out), "--quiet", *sets]) == 0
    assert main(["report", str(out), "--no-figures"]) == 0
    return out


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def write(*runs: Gathered, **options: Any) -> Path:
        return draw_page(Report(runs), tmp_path_factory.mktemp("page"), **options)

    return write


@pytest.fixture(scope="session")
def table1(written: Callable[..., Path]) -> Path:
    from tests.report.synthetic import run

    return written(run("table1", variants=["plain", "plain_rewind", "ap_lite", "ap_pro", "no_rewind", "solo"]))
