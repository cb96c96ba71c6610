"""The page of a report says what the runs found, no more and no less, and asks nobody for anything."""

import json
import re
import shlex
import signal
from base64 import b64decode
from dataclasses import replace
from hashlib import md5
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from bokeh.models import DataRange1d

from activeprune.cli import main, reports, studies
from activeprune.core.errors import InputError
from activeprune.experiment.files import Sharing, in_use
from activeprune.experiment.plan import probe_part
from activeprune.experiment.reading import read_study
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.report.figures import FIGURES, caption, rendered
from activeprune.report.gathering import Gathered, gathered
from activeprune.report.live import LiveReport, Progress, ended_politely
from activeprune.report.page import PAGE, Live, page, reproduce, write_page
from activeprune.report.page.along_density import amount_ticks, dead_neurons
from activeprune.report.page.arrays import Arrays
from activeprune.report.page.reproduce import reproduction
from activeprune.report.page.swatches import SCHEMES, palette
from activeprune.report.records import RECORDS
from activeprune.report.report import Report
from activeprune.report.trainings import Reported, Work

from .pages import Read, page_of, provenance_rows, read
from .synthetic import failed, run, training, undone

HERE = Path(reproduce.__file__).parent
SIX = ["plain", "plain_rewind", "ap_lite", "ap_pro", "no_rewind", "solo"]
SMALL = {"cycles": 2, "report_cycles": [1, 2], "seeds": 2, "variants": ["plain", "ap_pro"]}
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
    part = probe_part(small.study.probed)
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


CHANGED = [
    ("table1", {}),
    ("demo", {"seeds": [3, 5], "device": "cpu"}),
    ("smoke", {"data.limit": 100, "measure": ["dnr"], "probe_every": "1ep"}),
    ("table2", {"method": "lamp", "chain": "rewind", "data.path": "/a folder/with 'quotes'"}),
    ("table4", {"method": {"name": "obd", "probes": 3}, "lr": 1e-5, "drops": ["3ep", "5ep"]}),
    ("figure1", {"training": "resnet20-standard"}),
    ("smoke", {"network": {"name": "resnet8", "shortcut": "pad"}, "exclude": "fc.weight"}),
]


@pytest.mark.parametrize(("name", "changes"), CHANGED)
def test_the_command_gives_the_same_study(name: str, changes: dict, tmp_path: Path, monkeypatch) -> None:
    """As the command line itself reads it: whatever it is told, it is about to run just this study."""
    study = read_study(name, changes)
    made = reproduction(study, "again")
    monkeypatch.chdir(tmp_path)
    if made.file is not None:
        Path("again.yaml").write_text(made.file)
    asked = []
    monkeypatch.setattr(studies, "started", lambda *given: asked.append(studies_of(*given)) or stop())
    program, *arguments = shlex.split(made.commands[0])
    assert program == "activeprune"
    assert main(arguments) == 2
    assert asked == [(study, Path("runs/again"))]
    assert shlex.split(made.commands[1]) == ["activeprune", "report", "runs/again"]


def studies_of(study, out, store, changes, grid) -> tuple:
    assert not grid
    return read_study(study, changes), out


def stop() -> None:
    raise InputError("enough")


def test_a_study_far_from_all_others_is_a_file() -> None:
    far = {"lr": 0.5, "momentum": 0.5, "weight_decay": 0.5, "epochs": "7ep", "batch": 3, "p": 0.5, "q": 0.1}
    far |= {"cycles": 3, "seeds": [9], "variants": ["solo"], "rule": "random"}
    made = reproduction(read_study("smoke", far), "far", ["my.module"])
    assert made.commands[0] == "activeprune --import my.module run far.yaml --out runs/far"
    assert "lr: 0.5" in made.file
    shown = page_of(replace(run("smoke", **far), title="my far run"), images=False)
    (link,) = (one for one in shown.all("a") if one.attributes.get("class") == "yaml")
    assert link.attributes["download"] == "my far run.yaml"
    assert any("activeprune run 'my far run.yaml' --out 'runs/my far run'" in one.text for one in shown.all("code"))


def test_several_runs_have_a_command_for_their_report() -> None:
    one, other = run("table1", undone, **SMALL), replace(run("table1", undone, **SMALL), imports=("my.module",))
    shown = page_of(one, replace(other, title="other"))
    said = "activeprune --import my.module report runs/table1 runs/other --out runs/together"
    assert said in [code.text for code in shown.all("code")]


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


def test_a_name_that_says_it_all_needs_no_changes() -> None:
    assert reproduction(read_study("table1"), "table1").commands[0] == "activeprune run table1"


def test_a_live_page_says_when_it_was_written_and_a_last_one_does_not(small: Gathered, shown: Read) -> None:
    live = page_of(small, live=Live("12:34:56", 7))
    assert live.payload["live"] == 7
    assert any("Updated 12:34:56" in one.text for one in live.all("p"))
    assert "refresh" in {one.attributes["http-equiv"] for one in live.having("http-equiv")}
    assert not live.all("img")  # the printed figures take seconds
    assert shown.payload["live"] is None
    assert "refresh" not in {one.attributes["http-equiv"] for one in shown.having("http-equiv")}


def watch(looks: list[set[str]], **given: Any) -> tuple[list[Any], LiveReport]:
    """A live report of a run that is seen like this, one after the other, and all that it does."""
    done: list[Any] = []
    seen = iter(looks)
    does = {
        "look": lambda _: of(next(seen)),
        "busy": lambda _: True,
        "write": lambda _: done.append("page"),
        "finish": lambda _: done.append("last"),
        "wait": lambda _, seconds: done.append(seconds),
        "tell": lambda _, line: done.append(line),
        "clock": lambda _: 0.0,
    }
    asked = {name: lambda _, *more, do=do: do(done, *more) for name, do in given.items()}
    return done, type("Seen", (LiveReport,), {**does, **asked})([], list, Path(), every=3)


def test_a_live_report_is_written_when_there_is_something_new() -> None:
    done, live = watch([{"a", "b"}, {"a", "b"}, {"a"}, {"a"}, set()])
    live.follow()
    assert done == ["page", 3.0, 3.0, "page", 3.0, 3.0, "last"]


def test_an_interrupted_live_report_ends_with_a_page_that_stays() -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for where in ("wait", "write", "busy"):
        done, live = watch([{"a"}], **{where: interrupted})
        live.follow()
        assert done[-2:] == ["writing the last page", "last"]


def test_a_run_that_nobody_works_on_is_told_of_once_until_there_is_news() -> None:
    done, live = watch([{"a", "b"}] * 3 + [{"a"}] * 2 + [set()], busy=lambda _: False)
    live.follow()
    nobody = "nobody is working on this run now"
    assert done == ["page", nobody, 3.0, 3.0, 3.0, "page", nobody, 3.0, 3.0, "last"]


def test_a_page_that_cannot_be_written_is_tried_again() -> None:
    def full(done: list[Any]) -> None:
        done.append("page")
        if done.count("page") < 3:
            raise InputError("the disk is full")

    done, live = watch([{"a"}] * 4 + [set()], write=full)
    live.follow()
    told = "the page is not written: the disk is full; it is tried again"
    assert done == ["page", told, 3.0, "page", 3.0, "page", 3.0, 3.0, "last"]


def test_a_live_report_rests_four_times_as_long_as_it_writes() -> None:
    times = iter([10.0, 12.5, 20.0, 20.1])
    done, live = watch([{"a", "b"}, {"a", "b"}, {"a"}, set()], clock=lambda _: next(times))
    live.follow()
    assert done == ["page", 10.0, 10.0, "page", 3.0, "last"]


def test_being_asked_to_end_is_an_interruption() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_politely():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_folder_is_in_use_while_a_process_shares_it(tmp_path: Path) -> None:
    assert not in_use(tmp_path)
    with Sharing(tmp_path) as folder:
        assert in_use(tmp_path)
        folder.share()
        assert in_use(tmp_path)
    assert not in_use(tmp_path)


def of(missing: set[str]) -> Progress:
    return Progress(frozenset(missing), over=not missing)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tiny"
    small = ["--set", "cycles=1", "--set", "variants=[plain,ap_pro]"]
    assert main(["run", "smoke", "--out", str(out), "--processes", "1", "--quiet", *small]) == 0
    return out


def test_report_writes_the_page_and_names_it_last(finished: Path, capsys, monkeypatch) -> None:
    opened = []
    monkeypatch.setattr(reports.webbrowser, "open", opened.append)
    assert main(["report", str(finished), "--no-figures", "--open"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"the page is {finished / PAGE}"
    assert opened == [(finished / PAGE).as_uri()]
    first = (finished / PAGE).read_bytes()
    assert write_page(Report([gathered(Run.opened(finished))]), finished).read_bytes() == first
    (finished / PAGE).unlink()
    assert main(["report", str(finished), "--no-figures", "--no-page"]) == 0
    assert not (finished / PAGE).exists()


def test_the_page_has_the_keys_and_accuracies_of_the_store(finished: Path) -> None:
    opened = Run.opened(finished)
    shown = page_of(gathered(opened))
    told = {(row.key, row.accuracy) for row in provenance_rows(shown)}
    assert told == {(row["key"], row["accuracy"]) for row in opened.rows()}
    masks = {cell.masks.key for cell in opened.plan.cells if cell.masks is not None}
    assert masks <= {one.text for one in shown.all("code")}
    assert "activeprune 0." in shown.all("dl")[0].text
    assert "torch 2." in shown.all("dl")[0].text


def test_a_live_report_follows_a_run(tmp_path: Path, capsys, monkeypatch) -> None:
    going = started("smoke", tmp_path / "run", changes={"cycles": 1, "variants": "plain"})
    going.write_study()
    pages = []

    def wait(_: LiveReport, seconds: float) -> None:
        assert seconds >= 3
        pages.append(read((tmp_path / "run" / PAGE).read_text()))
        going.go()

    monkeypatch.setattr(LiveReport, "wait", wait)
    monkeypatch.setattr(LiveReport, "now", lambda _: "2026-11-16 01:02:03")
    assert main(["report", str(going.out), "--live", "--every", "3", "--no-figures"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"the page is {going.out / PAGE}")
    first, last = (f"2026-11-16 01:02:03: {count} of 2 reported trainings" for count in (0, 2))
    assert lines[1:] == [first, "nobody is working on this run now", last]
    assert [one.payload["live"] for one in pages] == [3]
    last = read((going.out / PAGE).read_text())
    assert last.payload["live"] is None
    assert last.all("img")
    assert "complete: 2 reported trainings" in last.all("main")[0].text


def test_a_second_interruption_leaves_a_page_that_stays(tmp_path: Path, capsys, monkeypatch) -> None:
    going = started("smoke", tmp_path / "run", changes={"cycles": 1, "variants": "plain"})
    going.write_study()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LiveReport, "wait", interrupted)
    monkeypatch.setattr("activeprune.report.live.draw_figures", interrupted)
    assert main(["report", str(going.out), "--live"]) != 0
    assert "writing the last page" in capsys.readouterr().err.splitlines()
    assert read((going.out / PAGE).read_text()).payload["live"] is None
    assert (going.out / RECORDS).is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--live", "--json"], "--live writes a page"),
        (["--live", "--no-page"], "--live writes a page"),
        (["--live", "--every", "0"], "--every"),
    ],
)
def test_what_does_not_go_together_is_one_line(finished: Path, arguments: list[str], message: str, capsys) -> None:
    assert main(["report", str(finished), *arguments]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


def test_folders_that_are_no_runs_and_runs_without_a_folder_are_one_line(
    finished: Path, tmp_path: Path, capsys
) -> None:
    assert main(["report", str(tmp_path), "--live"]) == 2
    assert "holds no run" in capsys.readouterr().err
    assert main(["report", str(finished), str(finished), "--live"]) == 2
    assert "--out DIR is needed" in capsys.readouterr().err


def test_runs_of_different_studies_and_an_empty_one_share_a_page(finished: Path, tmp_path: Path) -> None:
    empty = started("table1", tmp_path / "empty", changes={"seeds": 2})
    empty.write_study()
    assert main(["report", str(finished), str(empty.out), "--out", str(tmp_path / "both"), "--no-figures"]) == 0
    shown = read((tmp_path / "both" / PAGE).read_text())
    assert [one.text for one in shown.all("h2")] == ["tiny", "empty", "All runs"]
    assert "0 of 64 reported trainings done" in shown.all("main")[0].text


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
