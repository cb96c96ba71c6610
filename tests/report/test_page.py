"""The page of a report says what the runs found, no more and no less, and asks nobody for anything."""

import json
import re
from dataclasses import replace
from hashlib import md5
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest

from activeprune.experiment.store.artifacts import probe_part
from activeprune.report.figures import FIGURES, caption, rendered
from activeprune.report.gathering import Gathered
from activeprune.report.page import page, reproduce
from activeprune.report.page.swatches import SCHEMES, palette
from activeprune.report.report import Live, Report
from activeprune.report.trainings import Reported, Work

from .pages import Read, page_of, provenance_rows
from .synthetic import SMALL, failed, run, undone

HERE = Path(reproduce.__file__).parent
SIX = ["plain", "plain_rewind", "ap_lite", "ap_pro", "no_rewind", "solo"]
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&$$x$$ {{ 7 * 7 }}"


@pytest.fixture(scope="module")
def small() -> Gathered:
    return run("table1", **SMALL)


@pytest.fixture(scope="module")
def shown(small: Gathered) -> Read:
    return page_of(small)


def test_provenance_has_the_dead_neurons_and_where_the_probes_are(small: Gathered, shown: Read) -> None:
    rows = {row.key: row for row in provenance_rows(shown)}
    for one in small.trainings:
        kinds = [(of, what) for of in ("unit", "channel") for what in ("dynamic", "static")]
        rates = "".join(f"{100 * one.after[of][what]:.2f}" for of, what in kinds)
        assert f"{100 * one.accuracy:.2f}{rates}" in rows[one.key].text
        assert rows[one.key].accuracy == one.accuracy
    part = probe_part(small.study.looked_at_every)
    assert part in [one.text for one in shown.all("code")]
    bare = page_of(run("table1", lambda one: replace(one, probes=(), after=None), **SMALL))
    assert part not in [one.text for one in bare.all("code")]
    assert not any("dead units" in one.text for one in bare.all("th"))


def test_the_plots_have_the_numbers_of_the_run(small: Gathered, shown: Read) -> None:
    (told,) = shown.payload["runs"]
    assert next(plot["target_id"] for plot in told["plots"]) == "run-1-accuracy-0"
    text = json.dumps(told["plots"][0])
    for one in small.trainings:
        assert f"{one.seed}: {100 * one.accuracy:.3f}" in text
    assert set(told["tables"]["training loss/ap_pro"]) == {"0", "1", "2"}


def test_links_lead_to_something(shown: Read) -> None:
    names = [one.attributes["id"] for one in shown.having("id")]
    assert len(names) == len(set(names))
    inside = [one.attributes["href"] for one in shown.having("href") if (one.attributes["href"] or "").startswith("#")]
    assert {link.removeprefix("#") for link in inside} <= set(names)


def test_nothing_is_loaded_from_anywhere(shown: Read) -> None:
    for one in shown.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert re.match(r"#|data:", one.attributes.get(name) or "#"), one
    assert not re.search(r"url\(|@import", (HERE / "page.css").read_text())
    for script in HERE.glob("*.js"):
        assert not re.search(r"https?:|fetch\(|import\(|XMLHttp", script.read_text())
    policy = next(one.attributes["content"] for one in shown.having("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "script-src 'unsafe" not in policy
    assert "http" not in policy


def test_the_printed_figures_keep_their_letters(small: Gathered, shown: Read) -> None:
    """Letters are shapes at a scale: places are rounded, scales are not, and nothing moves by more than that."""
    whole = rendered(FIGURES["accuracy"](small), "svg").decode()
    image = unquote(shown.all("img")[0].attributes["src"].partition(",")[2])
    assert re.findall(r"scale\([^)]*\)", image) == re.findall(r"scale\([^)]*\)", whole)
    before, after = (re.findall(r" d=.([^\"']*)", text) for text in (whole, image))
    for one, other in zip(before, after, strict=True):
        places = [[float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", path)] for path in (one, other)]
        assert places[1] == pytest.approx(places[0], abs=0.0501)


def test_the_page_is_the_same_twice(small: Gathered) -> None:
    assert page(Report([small])) == page(Report([small]))


@pytest.mark.slow
def test_25_cycles_of_6_variants_and_5_seeds_are_well_under_5_megabytes() -> None:
    """With keys as long as the store's, and all that it tells of a training."""
    long = run("table1", as_stored, cycles=25, report_cycles=list(range(1, 26)), variants=SIX)
    assert len(long.trainings) == 6 * 26 * 5
    keys = [md5(bytes([number % 256, number // 256])).hexdigest() for number in range(250)]
    behind = tuple(Work(key, (variant,), 61.5) for variant in SIX for key in keys)  # as many as there would be
    assert len(page(Report([replace(long, work=behind)])).encode()) < 4e6


def as_stored(one: Reported) -> Reported:
    def key(*of: object) -> str:
        return md5(repr((one.key, of)).encode()).hexdigest()

    told = {"engine": "captured", "pack": 5, "seconds": 61.5, "finished": "2026-11-16T01:30:46Z", "python": "3.11.7"}
    keys = {name: key(name) for name in ("masks", "before", "after")}
    return replace(one, key=key(), keys=keys, provenance={**told, "machine": "a machine", "activeprune": "0.1.0"})


def test_the_page_says_who_computed_it_when_and_with_what() -> None:
    shown = page_of(run("table1", as_stored, **SMALL))
    facts = shown.all("dl")[0].text
    for said in ("captured, 5 networks at once", "activeprune 0.1.0", "Python 3.11.7", "2026-11-16 01:30:46 UTC"):
        assert said in facts
    assert sum("A, captured, 5 networks at once" in row.text for row in provenance_rows(shown)) == 12


def test_titles_layers_and_failures_are_text_and_nothing_else() -> None:
    def spoilt(one: Reported) -> Reported:
        known = replace(one, key=HOSTILE, layers=dict.fromkeys((HOSTILE, "p1"), 0.5) if one.cycle else {})
        return (
            replace(failed(known), failure={"step": 3, "epoch": 0, "lr": 0.03, "loss": HOSTILE})
            if (one.cycle, one.seed) == (2, 1)
            else known
        )

    hostile = replace(run("table1", spoilt, **SMALL), title=HOSTILE, machines=(HOSTILE,), imports=(HOSTILE,))
    shown = page_of(hostile, hostile)
    assert not any((one.attributes.get("src") or "data:")[:5] != "data:" for one in shown.elements)
    assert not any(name.startswith("on") for one in shown.elements for name in one.attributes)
    assert len(shown.all("script")) == 3
    assert [one.text for one in shown.all("h2")][:2] == [f"{HOSTILE} (1)", f"{HOSTILE} (2)"]
    assert any(f"loss {HOSTILE}" in one.text for one in shown.all("li"))
    assert HOSTILE in json.dumps(shown.payload, ensure_ascii=False).replace('\\"', '"')


def test_headings_are_in_order_and_tables_say_what_they_are(shown: Read) -> None:
    levels = [int(one.tag[1]) for one in shown.elements if re.fullmatch("h[1-6]", one.tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert len(shown.all("caption")) == len(shown.all("table"))
    assert all("scope" in one.attributes for one in shown.all("th"))
    assert {"header", "main", "nav", "footer"} <= {one.tag for one in shown.elements}
    assert all(one.attributes.get("alt") for one in shown.all("img"))


def test_text_has_contrast_in_both_schemes() -> None:
    """4.5 : 1 for text, 3 : 1 for lines that mean something (WCAG 2.2)."""
    light, dark = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root(?:\.dark)? \{(.*?)\}", (HERE / "page.css").read_text(), re.DOTALL)[:2]
    )
    for scheme in (light, {**light, **dark}):
        for paper in ("paper", "tint", "mark"):
            assert contrast(scheme["ink"], scheme[paper]) >= 4.5
        for text in ("soft", "link", "warn"):
            assert contrast(scheme[text], scheme["paper"]) >= 4.5
    for scheme, colours in zip(SCHEMES.values(), re.findall(r"\{(--.*?)\}", palette()), strict=False):
        assert colours == "".join(f"--{variant.replace('_', '-')}:{colour};" for variant, colour in scheme.items())
    assert "--ap-" not in (HERE / "page.css").read_text()
    for variant in ("plain", "plain_rewind", "ap_lite", "ap_pro"):
        assert contrast(SCHEMES["light"][variant], light["paper"]) >= 3
        assert contrast(SCHEMES["dark"][variant], dark["paper"]) >= 3


def contrast(one: str, other: str) -> float:
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_half_finished_run_says_how_much_is_there() -> None:
    def half(one: Reported) -> Reported:
        return failed(one) if (one.cycle, one.seed) == (1, 1) else undone(one) if one.cycle == 2 else one

    shown = page_of(run("table1", half, **SMALL))
    about = next(one.text for one in shown.all("p") if one.attributes.get("class") == "about")
    assert about.endswith("6 of 12 reported trainings done, 2 failed")
    assert any("failed: ap_pro cycle 1 seed 1" in one.text for one in shown.all("li"))


def test_an_empty_run_is_a_page_without_figures() -> None:
    shown = page_of(run("table1", undone, **SMALL))
    assert not shown.all("figure")
    assert "0 of 12 reported trainings done" in shown.all("main")[0].text


def test_several_runs_have_a_table_of_contents() -> None:
    two = [run("table1", **SMALL), run("table1", method="lamp", chain="rewind", **SMALL)]
    shown = page_of(*two)
    runs = next(one for one in shown.all("nav") if one.attributes.get("aria-label") == "Runs")
    assert "lamp, chain rewind" in runs.text
    assert "global_magnitude, chain reinit" in runs.text
    assert [one["id"] for one in shown.payload["runs"]] == ["run-1", "run-2"]


def test_a_single_run_has_its_name_for_a_heading_once(small: Gathered, shown: Read) -> None:
    heads = [one.text for one in shown.elements if re.fullmatch("h[1-6]", one.tag)]
    assert heads.count(small.title) == 1


def test_a_figure_leads_to_its_numbers_where_a_table_has_them(shown: Read) -> None:
    links = [one.attributes["href"] for one in shown.all("a") if one.text == "The numbers"]
    assert links == ["#run-1-accuracy-table", "#run-1-dead-table"]


def test_a_printed_figure_has_its_own_caption(shown: Read) -> None:
    captions = {one.attributes["class"]: [] for one in shown.all("span") if "class" in one.attributes}
    for one in shown.all("span"):
        captions.setdefault(one.attributes.get("class"), []).append(one.text)
    assert any(text.startswith(caption("learning-curves")) for text in captions["of-image"])
    assert not any(text.startswith(caption("learning-curves")) for text in captions["of-plots"])


def test_the_caption_says_where_published_points_stand(shown: Read) -> None:
    said = [one.text for one in shown.all("figcaption") if "stand to the right of their λ" in one.text]
    assert len(said) == 1
    assert said[0].startswith(caption("accuracy"))
    unpublished = page_of(run("smoke", **SMALL), images=False)
    assert not any("Published" in one.text for one in unpublished.all("figcaption"))


def test_names_of_variants_are_told_in_words() -> None:
    shown = page_of(run("table1", undone, **{**SMALL, "variants": SIX}), images=False)
    (said,) = (one.text for one in shown.all("p") if one.attributes.get("class") == "notes names")
    assert said.startswith("plain_rewind is plain, rewound; ap_lite is AP-Lite; ap_pro is AP-Pro;")
    assert "no_rewind is AP-Lite, not rewound" in said


def test_a_long_table_says_how_many_rows_it_has() -> None:
    shown = page_of(run("table1", undone, seeds=2))
    said = [one.text for one in shown.all("p") if one.attributes.get("class") == "more notes"]
    assert "32 rows" in said


def test_a_live_page_says_when_it_was_written_and_a_last_one_does_not(small: Gathered, shown: Read) -> None:
    live = page_of(small, live=Live("12:34:56", 7))
    assert live.payload["live"] == 7
    assert any("Updated 12:34:56" in one.text for one in live.all("p"))
    assert "refresh" in {one.attributes["http-equiv"] for one in live.having("http-equiv")}
    assert not live.all("img")  # the printed figures take seconds
    assert shown.payload["live"] is None
    assert "refresh" not in {one.attributes["http-equiv"] for one in shown.having("http-equiv")}
