"""The command on the page runs just this study again."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from activeprune.cli import main, studies
from activeprune.core.errors import InputError
from activeprune.experiment.plan.reading import read_study
from activeprune.report.page.reproduce import reproduction

from .pages import page_of
from .synthetic import SMALL, run, undone

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


def test_a_name_that_says_it_all_needs_no_changes() -> None:
    assert reproduction(read_study("table1"), "table1").commands[0] == "activeprune run table1"


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
