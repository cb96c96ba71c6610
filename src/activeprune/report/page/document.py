"""The page as a whole: what its template needs of each run."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

from bokeh.resources import Resources
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...experiment.plan.reading import written
from ...experiment.plan.study import Study
from ...experiment.store.artifacts import probe_part
from ..cells import bare, columns
from ..figures import Printed
from ..gathering import Gathered
from ..looks import LOOKS
from ..reference import points
from ..report import Live, Report
from ..tables import about
from ..wording import counted, duration
from .arrays import Arrays
from .figures import ALONG_DENSITY, ALONG_TIME, OF_LAYERS, drawn
from .provenance import DEAD, anchor, behind, dates, engines, machines, provenance, versions
from .reproduce import reproduced_together, reproduction, run_folder
from .swatches import SCHEMES, palette, swatch
from .tables import linked, shown

HERE = Path(__file__).parent
SCRIPTS = ("pointing.js", "keys.js", "numbers.js", "page.js")
NOTHING_ELSE = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def page(report: Report, live: Live | None = None, images: bool = True) -> str:
    """All runs in one page: the same bytes for the same results, unless it is live.

    `images` are the printed figures, for paper; they take seconds, and a live page has none.
    """
    read, together = report.runs, report.together
    printed = report.printed if images and live is None else [None] * len(read)
    script, library = "".join(map(_text, SCRIPTS)), "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
    numbers = {run.title: number for number, run in enumerate(read, 1)}
    shown_runs, payload = [], []
    for run, section, figures in zip(read, report.sections, printed, strict=True):
        view, data = _run(run, numbers[run.title], figures)
        tables = [shown(table, numbers, run.title) for table in section.tables]
        shown_runs.append({**view, "tables": tables, "gaps": [linked(note, numbers) for note in section.notes]})
        payload.append(data)
    tables = [shown(table, numbers) for table in together.tables]
    text: str = _template().render(
        title=", ".join(run.title for run in read) or "no runs",
        runs=shown_runs,
        together={"title": together.title, "tables": tables[:-1], "claims": tables[-1], "open": _tested(together)},
        command=reproduced_together([(run.title, run.imports) for run in read]) if len(read) > 1 else None,
        live=live,
        style=Markup(palette() + _text("page.css")),
        payload=packed({"runs": payload, "schemes": SCHEMES, "live": None if live is None else live.every}),
        library=Markup(library),
        script=Markup(script),
        policy=policy(library, script),
    )
    return text


def policy(*scripts: str) -> str:
    """What the page may do: run just these scripts, show what is inside it, and ask nobody for anything."""
    hashes = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return f"default-src 'none'; script-src {hashes}; {NOTHING_ELSE}"


def _run(run: Gathered, number: int, printed: Printed | None) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays = Arrays()
    along, plots = drawn(run, number, {**ALONG_DENSITY, **ALONG_TIME}, arrays, printed)
    layers, maps = drawn(run, number, OF_LAYERS, arrays, printed)
    view = {
        "id": f"run-{number}",
        "title": run.title,
        "about": about(run.study),
        "state": _state(run),
        "facts": _facts(run),
        "history": _history(run, number),
        "yaml": written(run.study),
        "variants": [(variant, LOOKS[variant].label, swatch(variant)) for variant in run.study.variants],
        "names": _names(run),
        "cycles": _cycles(run),
        "published": any(points(found, run.study) for found in (run.published, run.published_rates)),
        "seeds": len(run.study.seeds),
        "figures": along,
        "timed": any(figure.name in ALONG_TIME for figure in along),
        "layers": layers,
        "provenance": provenance(run, number),
        "dead": [head for head, *_ in DEAD] if any(t.after is not None for t in run.trainings) else [],
        "behind": behind(run, number),
        "all": anchor(number),
        "probes": _probes(run),
        "machines": machines(run),
        "trainings": len(run.trainings),
        "reproduction": reproduction(run.study, run_folder(run.title), run.imports),
        "versions": versions(run),
    }
    return view, {"id": f"run-{number}", "plots": plots + maps, **arrays.as_dict()}


def _probes(run: Gathered) -> str | None:
    """The part of the store that has them, where there are any."""
    every = run.study.looked_at_every
    return probe_part(every) if every is not None and any(training.probes for training in run.trainings) else None


def _names(run: Gathered) -> str:
    """What tables call variants, in words, where these are others."""
    labels = {variant: LOOKS[variant].label for variant in run.study.variants}
    return "; ".join(f"{name} is {label}" for name, label in labels.items() if name != label)


def _cycles(run: Gathered) -> list[tuple[int, str]]:
    """Those that something was found of, by λ."""
    done = {training.cycle for training in run.trainings if training.accuracy is not None}
    heads = {cycle: bare(head) for cycle, head in columns(run).items() if cycle in done}
    return [(cycle, head if "cycle" in head else f"{head} (cycle {cycle})") for cycle, head in heads.items()]


def _state(run: Gathered) -> str:
    """How much of it is there."""
    done = sum(training.accuracy is not None for training in run.trainings)
    failed = sum(training.failure is not None for training in run.trainings)
    reported = counted(len(run.trainings), "reported training")
    if done == len(run.trainings):
        return f"complete: {reported}"
    return f"{done} of {reported} done" + (f", {failed} failed" if failed else "")


def _facts(run: Gathered) -> dict[str, str]:
    """What was to be done."""
    study = run.study
    return {
        "network and data": f"{study.training.network.name}, {study.training.data.name}",
        "method": f"{study.method.name}, chain {study.which_chain}, rule {study.rule}",
        "pruning": f"p = {study.p:g}, q = {study.q:g} in each of {counted(study.cycles, 'cycle')}",
        "training": _settings(study),
        "variants": "; ".join(LOOKS[variant].label for variant in study.variants),
        "seeds": ", ".join(map(str, study.seeds)),
    }


def _history(run: Gathered, number: int) -> list[tuple[str, str, str]]:
    """What the store tells of how it was done, and where on the page that comes from."""
    done, every = run.in_all, f"run-{number}-provenance"
    facts = [
        ("versions", ", ".join(f"{name} {version}" for name, version in versions(run).items()), every),
        ("machines", "; ".join(run.machines), every),
        ("engine", engines(run), every),
        ("device time", f"{duration(done.seconds)} for {done.done} of {counted(done.trainings, 'training')}",
         anchor(number)),
        ("finished", dates(run), every),
    ]  # fmt: skip
    return [fact for fact in facts if fact[1]]


def _settings(study: Study) -> str:
    training = study.training
    rate = f"{training.optimizer}, learning rate {training.lr:g}, weight decay {training.weight_decay:g}"
    return f"{training.epochs}, batch {training.batch}, {rate}, {training.precision}"


def _tested(together: Any) -> bool:
    statuses = [record["status"] for record in together.tables[-1].records]
    return 2 * statuses.count("not run") < len(statuses)


def packed(value: Any) -> str:
    """JSON as the page's script unpacks it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _template() -> Any:
    loader = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return loader.get_template("page.html")


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
