"""The page in a real browser: what it shows, that its switches switch, and that it complains of nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any
from xml.etree import ElementTree

import pytest

from activeprune.experiment.plan import behind, is_whole_training
from activeprune.experiment.runs import Run
from activeprune.report.report import Live
from activeprune.report.writing import PAGE
from tests.report.synthetic import failed, run, training, undone

from .conftest import DESKTOP, PHONE, SCREENSHOTS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
Show = Callable[..., Any]

SCHEMES = ("light", "dark")
SMALL = {"cycles": 2, "report_cycles": [1, 2], "seeds": 2, "variants": ["plain", "ap_pro"]}


def test_the_tables_numbers_are_those_of_the_store(show: Show, real: Path) -> None:
    rows = Run.opened(real).rows()
    with show(real / PAGE) as tab:
        shown = tab.page.locator("#run-1-accuracy-table td a")
        cells = {(row["variant"], row["cycle"]) for row in rows}
        assert shown.count() == len(cells)
        for link in shown.all():
            _, variant, cycle = link.get_attribute("href").split("-")
            own = [row["accuracy"] for row in rows if (row["variant"], row["cycle"]) == (variant, int(cycle))]
            assert link.inner_text().startswith(f"{100 * fmean(own):.2f}")


def test_an_accuracy_leads_to_the_keys_of_its_trainings(show: Show, real: Path) -> None:
    keys = {row["key"] for row in Run.opened(real).rows() if (row["variant"], row["cycle"]) == ("ap_pro", 2)}
    for script in (True, False):
        with show(real / PAGE, java_script_enabled=script) as tab:
            body = tab.page.locator("#r1-ap_pro-2")
            assert not body.is_visible()
            tab.page.locator("#run-1-accuracy-table a[href='#r1-ap_pro-2']").click()
            body.wait_for(state="visible")
            assert {row.locator("code").first.inner_text() for row in body.locator("tr[data-accuracy]").all()} == keys


def test_device_time_leads_to_the_keys_of_all_trainings_that_it_sums(show: Show, real: Path) -> None:
    """Also by the keyboard, and without scripts; the list is folded away in what is folded away itself."""
    run = Run.opened(real)
    steps = behind(cell.training for cell in run.plan.cells if cell.variant == "ap_pro")
    for script in (True, False):
        with show(real / PAGE, java_script_enabled=script) as tab:
            listed = tab.page.locator("#r1-ap_pro")
            assert not listed.is_visible()
            tab.page.locator("#run-1-effort-table a[href='#r1-ap_pro']").first.press("Enter")
            listed.wait_for(state="visible")
            keys = [line.split(" ")[0] for line in listed.inner_text().splitlines()]
            assert sorted(keys) == sorted(key for key, step in steps.items() if is_whole_training(step))


def test_the_pointer_on_a_point_is_told_the_stores_value(show: Show, real: Path) -> None:
    values = {
        row["seed"]: row["accuracy"]
        for row in Run.opened(real).rows()
        if (row["variant"], row["cycle"]) == ("plain", 0)
    }
    with show(real / PAGE) as tab:
        tab.draw()
        only(tab, "ap_pro")
        plot = tab.page.locator("#run-1-accuracy-0")
        plot.scroll_into_view_if_needed()
        at = tab.page.evaluate(
            """() => {
              const view = Bokeh.index.roots.find((one) => one.el.closest('#run-1-accuracy-0'));
              const frame = view.frame, box = view.canvas_view.el.getBoundingClientRect();
              const source = [...view.model.references()].find((one) => one.data && one.data.said && one.data.seeds);
              const { x, mean } = source.data;
              return [box.x + frame.x_scale.compute(x[0]), box.y + frame.y_scale.compute(mean[0])];
            }"""
        )
        tab.page.mouse.move(at[0] - 30, at[1])
        tab.page.mouse.move(*at)
        said = tab.page.get_by_text(f"{100 * fmean(values.values()):.3f} ±").first
        said.wait_for()
        assert tab.page.get_by_text(", ".join(f"{s}: {100 * v:.3f}" for s, v in values.items())).first.is_visible()


def only(tab: Any, variant: str) -> None:
    """Switches all variants off but one, so that no other point is under the pointer."""
    for box in tab.page.locator("input[name=variant]").all():
        box.set_checked(box.get_attribute("value") == variant)


def test_every_variant_can_be_switched_off_and_on(show: Show, table1: Path) -> None:
    with show(table1) as tab:
        tab.draw()
        plot = tab.page.locator("#run-1-accuracy-0")
        for box in tab.page.locator("#run-1 input[name=variant]").all():
            variant = box.get_attribute("value")
            lines = tab.models(variant=variant)
            assert len(lines) >= 10
            assert all(one["visible"] for one in lines)
            before = plot.screenshot()
            box.uncheck()
            assert plot.screenshot() != before
            assert not any(one["visible"] for one in tab.models(variant=variant))
            assert not any(one["visible"] for one in tab.models(variant=variant, show="band"))
            others = {"plain", "ap_pro"} - {variant}
            assert all(one["visible"] for other in others for one in tab.models(variant=other))
            box.check()
            assert all(one["visible"] for one in tab.models(variant=variant))


def test_everything_can_be_switched_off(show: Show, table1: Path) -> None:
    """Without a warning, of which `show` would know; and on again the axes are around what is visible."""
    with show(table1) as tab:
        tab.draw()
        boxes = tab.page.locator("#run-1 input[name=variant]").all()
        for box in boxes:
            box.uncheck()
        tab.draw()
        tab.page.locator("#scheme").select_option("dark")
        tab.page.locator("#run-1-learning-curves-0").screenshot()
        assert not any(one["visible"] for box in boxes for one in tab.models(variant=box.get_attribute("value")))
        boxes[0].check()
        around = """() => Bokeh.documents.flatMap((one) => one.roots().flatMap((root) => [...root.references()]))
            .filter((model) => (model.tags || []).some((tag) => tag.around)).map((model) => model.only_visible)"""
        assert set(tab.page.evaluate(around)) == {True}
        tab.page.reload()  # which does not remember what is drawn, but what is chosen
        tab.draw()


def test_a_phone_has_verdicts_on_one_line(show: Show, table1: Path) -> None:
    with show(table1, PHONE, has_touch=True, is_mobile=True) as tab:
        heights = tab.page.evaluate("[...document.querySelectorAll('.paired tbody tr')].map((one) => one.offsetHeight)")
        line = tab.page.evaluate("parseFloat(getComputedStyle(document.querySelector('.paired td')).lineHeight)")
        assert max(heights) < 3 * line


def test_bands_seeds_and_the_papers_points_can_be_switched(show: Show, table1: Path) -> None:
    with show(table1) as tab:
        tab.draw()
        for name, at_first in (("band", True), ("seeds", False), ("paper", True)):
            box = tab.page.locator(f"#run-1 input[name=show][value={name}]")
            assert box.is_checked() == at_first
            assert {one["visible"] for one in tab.models(variant="ap_lite", show=name)} == {at_first}
            before = tab.page.locator("#run-1-accuracy-0").screenshot()
            box.click()
            assert {one["visible"] for one in tab.models(variant="ap_lite", show=name)} == {not at_first}
            assert tab.page.locator("#run-1-accuracy-0").screenshot() != before


def test_another_density_has_other_curves(show: Show, table1: Path) -> None:
    with show(table1) as tab:
        tab.draw()
        tags = {"data": "validation accuracy (%)/ap_pro", "by": "cycle"}
        for cycle in (13, 2, 0):
            tab.page.locator("select[name=cycle]").select_option(str(cycle))
            (curve,) = tab.models(**tags)
            last = [training("ap_pro", cycle, seed).epochs[-1]["validation_accuracy"] for seed in range(5)]
            assert curve["mean"][-1] == pytest.approx(100 * fmean(last), rel=1e-6)


def test_the_map_of_layers_follows_its_variant(show: Show, table1: Path) -> None:
    with show(table1) as tab:
        tab.draw()
        tags = {"data": "map/dynamic DNR (%)", "by": "map_variant"}
        seen = []
        for variant in ("plain", "ap_pro"):
            tab.page.locator("select[name=map_variant]").select_option(variant)
            (found,) = tab.models(**tags)
            rate = training(variant, 13, 0).after["unit"]["layers"]["relu"]["dynamic"]
            assert found["value"][7] == pytest.approx(100 * rate, rel=1e-6)
            seen.append(found["value"])
        assert seen[0] != seen[1]


def test_everything_can_be_done_with_the_keyboard(show: Show, table1: Path) -> None:
    with show(table1) as tab:
        tab.page.keyboard.press("Tab")
        assert tab.page.evaluate("document.activeElement.textContent") == "Skip to the results"
        tab.page.keyboard.press("Enter")
        assert tab.page.url.endswith("#main")
        reached = set()
        for _ in range(400):
            tab.page.keyboard.press("Tab")
            name = tab.page.evaluate("document.activeElement.name || (document.activeElement.classList[0] || '')")
            reached.add(name)
            if name == "variant" and "outline" not in reached:
                assert tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
                reached.add("outline")
                before = tab.page.evaluate("document.activeElement.checked")
                tab.page.keyboard.press("Space")
                assert tab.page.evaluate("document.activeElement.checked") != before
            if name == "cycle" and "moved" not in reached:
                reached.add("moved")
                tab.page.keyboard.press("ArrowUp")
                assert tab.page.locator("select[name=cycle]").input_value() == "11"
            if tab.page.evaluate("document.activeElement === document.body"):
                break
        assert {"variant", "show", "cycle", "map_variant", "map_cycle", "copy"} <= reached
        summary = tab.page.locator("details.provenance > summary")
        summary.focus()
        tab.page.keyboard.press("Enter")
        assert tab.page.locator("details.provenance table").is_visible()


def test_dark_and_light_are_the_systems_or_ones_own(show: Show, table1: Path) -> None:
    papers = {}
    for scheme in SCHEMES:
        with show(table1, color_scheme=scheme) as tab:
            tab.draw()
            papers[scheme] = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
            system = {one["colour"] for one in tab.models(variant="plain") if one["colour"]}
            assert system == {{"light": "#000000", "dark": "#e8e6e1"}[scheme]}
            other = SCHEMES[1 - SCHEMES.index(scheme)]
            tab.page.locator("#scheme").select_option(other)
            chosen = {one["colour"] for one in tab.models(variant="plain") if one["colour"]}
            assert chosen == {{"light": "#000000", "dark": "#e8e6e1"}[other]}
    assert papers["light"] == "rgb(255, 255, 255)"
    assert papers["dark"] == "rgb(21, 23, 26)"


@pytest.mark.parametrize("name", ["real", "table1"])
def test_a_phone_scrolls_down_and_not_aside(show: Show, name: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(name)
    with show(path / PAGE if path.is_dir() else path, PHONE, has_touch=True, is_mobile=True) as tab:
        tab.draw()
        assert tab.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        for plot in tab.page.locator(".plot").all():
            assert plot.bounding_box()["width"] <= PHONE["width"]
        wide = tab.page.locator(".scroll").first
        wide.evaluate("one => one.scrollTo(200, 0)")
        first = wide.locator("tbody th").first.bounding_box()
        assert first["x"] == pytest.approx(wide.bounding_box()["x"], abs=1)


def test_on_paper_the_printed_figures_stand_in(show: Show, table1: Path) -> None:
    with show(table1) as tab:
        tab.draw()
        assert not any(image.is_visible() for image in tab.page.locator("img.static").all())
        tab.page.emulate_media(media="print")
        images = tab.page.locator("img.static")
        assert images.count() == 6
        for image in images.all():
            assert image.is_visible()
            image.scroll_into_view_if_needed()
            tab.page.wait_for_function(
                "image => image.complete && image.naturalWidth > 100", arg=image.element_handle()
            )
        assert not tab.page.locator(".switches").first.is_visible()
        assert tab.page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"


def test_a_figure_can_be_kept_as_svg(show: Show, table1: Path, tmp_path: Path) -> None:
    with show(table1) as tab:
        tab.draw()
        with tab.page.expect_download() as kept:
            tab.page.locator("#run-1-figure-accuracy .download a").click()
        kept.value.save_as(tmp_path / "kept.svg")
        assert kept.value.suggested_filename == "accuracy.svg"
        assert ElementTree.parse(tmp_path / "kept.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_without_scripts_the_printed_figures_are_there(show: Show, table1: Path) -> None:
    with show(table1, java_script_enabled=False) as tab:
        assert all(image.is_visible() for image in tab.page.locator("img.static").all())
        assert not tab.page.locator(".switches").first.is_visible()
        assert not tab.page.locator(".panels").first.is_visible()


def test_the_command_can_be_copied(show: Show, real: Path) -> None:
    with show(real / PAGE, permissions=["clipboard-read", "clipboard-write"]) as tab:
        tab.page.locator(".copy").click()
        tab.page.get_by_text(re.compile("Copied|Selected")).wait_for()
        assert tab.page.locator(".command code").inner_text().startswith("activeprune run smoke --set")


def test_a_live_page_keeps_its_switches_when_it_loads_again(show: Show, written: Callable[..., Path]) -> None:
    path = written(run("table1", **SMALL), live=Live("12:00:00", 2))
    with show(path) as tab:
        pause = tab.page.locator("#pause")
        pause.check()
        tab.page.get_by_text("Updated 12:00:00, paused").wait_for()
        tab.draw()
        tab.page.locator("input[name=variant][value=plain]").uncheck()
        tab.page.locator("select[name=cycle]").select_option("1")
        tab.page.locator("#scheme").select_option("dark")
        tab.page.evaluate("scrollTo(0, 700)")
        path.write_text(path.read_text().replace("12:00:00", "12:00:09"))
        tab.page.evaluate("document.activeElement.blur()")
        tab.page.evaluate("document.getElementById('pause').click()")  # which does not scroll there
        tab.page.get_by_text("Updated 12:00:09").wait_for()
        tab.page.evaluate("document.getElementById('pause').click()")
        assert tab.page.evaluate("scrollY") == 700
        assert not tab.page.locator("input[name=variant][value=plain]").is_checked()
        assert tab.page.locator("select[name=cycle]").input_value() == "1"
        assert tab.page.locator("#scheme").input_value() == "dark"
        tab.draw()
        assert not any(one["visible"] for one in tab.models(variant="plain"))


def test_a_live_page_keeps_what_is_open_focused_and_scrolled(show: Show, written: Callable[..., Path]) -> None:
    path = written(run("table1"), live=Live("12:00:00", 1))
    with show(path, PHONE) as tab:
        tab.page.locator("#pause").check()
        tab.page.evaluate(
            """() => {
              for (const one of document.querySelectorAll('details')) one.open = one.matches('.provenance');
              document.querySelector('.scroll').scrollTo(120, 0);
              document.querySelector('.tall').scrollTo(0, 90);
              document.querySelector('input[name=variant][value=ap_pro]').focus();
            }"""
        )
        path.write_text(path.read_text().replace("12:00:00", "12:00:09"))
        tab.page.evaluate("document.getElementById('pause').click()")
        tab.page.get_by_text("Updated 12:00:09").wait_for()
        tab.page.get_by_text(", next in").wait_for()
        tab.page.evaluate("document.getElementById('pause').click()")
        opened = "[...document.querySelectorAll('details')].map((one) => one.open === one.matches('.provenance'))"
        assert all(tab.page.evaluate(opened))
        assert tab.page.evaluate("document.querySelector('.scroll').scrollLeft") == 120
        assert tab.page.evaluate("document.querySelector('.tall').scrollTop") == 90
        assert tab.page.evaluate("document.activeElement.value") == "ap_pro"


def test_a_live_page_does_not_load_while_something_is_chosen(show: Show, written: Callable[..., Path]) -> None:
    path = written(run("table1", **SMALL), live=Live("12:00:00", 1))
    with show(path) as tab:
        tab.page.locator("select[name=cycle]").focus()
        tab.page.evaluate("window.first = true")
        tab.page.get_by_text("Updated 12:00:00, next after this choice").wait_for()
        assert tab.page.evaluate("window.first")
        path.write_text(path.read_text().replace("12:00:00", "12:00:09"))
        tab.page.locator("select[name=cycle]").blur()
        tab.page.get_by_text("Updated 12:00:09").wait_for()
        assert tab.page.get_by_role("status").inner_text() == "Updated 12:00:09"


def test_a_live_page_without_news_says_so_and_loads_less_often(show: Show, written: Callable[..., Path]) -> None:
    path = written(run("table1", undone, **SMALL), live=Live("2026-11-16 12:00:00", 1))
    with show(path) as tab:
        tab.page.get_by_text("No news since 2026-11-16 12:00:00, next in 2 s").wait_for()
        path.write_text(path.read_text().replace("12:00:00", "12:00:09"))
        tab.page.get_by_text("Updated 2026-11-16 12:00:09, next in 1 s").wait_for()


def test_the_claims_are_printed_and_folded_again(show: Show, written: Callable[..., Path]) -> None:
    path = written(run("table1", undone, **SMALL))
    for script in (True, False):
        with show(path, java_script_enabled=script) as tab:
            claims, line = tab.page.locator("#claims"), tab.page.get_by_text("are on the page as the screen shows it")
            assert not claims.is_visible()
            assert not line.is_visible()
            if script:
                tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
                assert claims.is_visible()
                assert not tab.page.locator("details.provenance table").is_visible()
                tab.page.evaluate("dispatchEvent(new Event('afterprint'))")
                assert not claims.is_visible()
            tab.page.emulate_media(media="print")
            assert claims.bounding_box()["height"] > 100
            assert line.is_visible()


def test_hostile_names_are_shown_and_do_nothing(show: Show, written: Callable[..., Path]) -> None:
    name = "</script><img src=x onerror=alert(1)>$$x$$"

    def spoilt(one: Any) -> Any:
        return replace(one, layers={name: 0.5, "\\(y\\)": 0.4} if one.cycle else {})

    path = written(replace(run("table1", spoilt, **SMALL), title=name))
    with show(path) as tab:
        tab.page.on("dialog", lambda dialog: tab.complaints.append(dialog.message))
        tab.draw()
        assert tab.page.locator("h1").inner_text() == name


def half(one: Any) -> Any:
    if (one.variant, one.cycle, one.seed) == ("ap_pro", 5, 1):
        return failed(one)
    return undone(one) if one.cycle > 5 or (one.cycle == 5 and one.seed > 2) else one


@pytest.fixture(scope="session")
def pages(real: Path, table1: Path, written: Callable[..., Path]) -> dict[str, Path]:
    other = replace(run("table1", method="lamp", chain="rewind"), title="table1-lamp")
    return {
        "smoke": real / PAGE,
        "table1": table1,
        "two": written(run("table1"), other),
        "half": written(run("table1", half)),
        "empty": written(run("table1", undone)),
    }


@pytest.mark.parametrize(("size", "scheme"), [*product(("desktop", "phone"), SCHEMES)])
@pytest.mark.parametrize("name", ["smoke", "table1", "two", "half", "empty"])
def test_how_it_looks(show: Show, pages: dict[str, Path], name: str, size: str, scheme: str) -> None:
    """Kept for eyes; that it draws without a complaint is checked on the way."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with show(pages[name], {"desktop": DESKTOP, "phone": PHONE}[size], color_scheme=scheme) as tab:
        tab.draw()
        kept = SCREENSHOTS / f"{name}-{size}-{scheme}.png"
        tab.page.screenshot(path=kept, full_page=True)
        print(kept)
        assert kept.stat().st_size > 10_000
