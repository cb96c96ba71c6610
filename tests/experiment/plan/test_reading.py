"""Studies as files: what they say, and what they refuse."""

from pathlib import Path

import pytest
import yaml

import activeprune as ap
from activeprune.experiment.plan.reading import (
    STUDIES,
    TRAININGS,
    assignments,
    parsed,
    read_grid,
    read_study,
    study_names,
    written,
)  # fmt: skip
from activeprune.training import Training

PAPERS_AND_OURS = {
    *(f"table{n}" for n in range(1, 7)), "ablation-resnet20", "ablation-vgg19", "dnr-resnet20", "dnr-vgg19",
    "one-shot-resnet20", "resnet20-standard", "demo", "smoke", "figure1", "figure2", "grid-search", "q-sweep-resnet20",
    "q-sweep-vgg19",
}  # fmt: skip


def test_every_study_is_there_and_says_what_it_is() -> None:
    assert set(study_names()) >= PAPERS_AND_OURS
    assert all(about and not about.startswith("#") for about in study_names().values())


@pytest.mark.parametrize("name", sorted(path.stem for path in STUDIES.glob("*.yaml")))
def test_a_study_survives_being_written_down(name: str, tmp_path: Path) -> None:
    for study in read_grid(name).values():
        (tmp_path / "copy.yaml").write_text(written(study))
        assert read_study(tmp_path / "copy.yaml") == study


def test_table_1_is_the_papers_paragraph() -> None:
    study = read_study("table1")
    training = study.training
    assert (training.network.name, training.data.name, training.lr, training.batch) == (
        "resnet20",
        "cifar10",
        0.03,
        128,
    )
    assert (str(training.epochs), str(training.warmup)) == ("100ep", "55ep")
    assert [str(drop) for drop in training.drops] == ["55ep", "70ep"]
    assert (study.p, study.q, study.cycles, study.seeds) == (0.2, 0.02, 13, (0, 1, 2, 3, 4))
    assert study.reported == (2, 4, 5, 6, 9, 11, 13)
    assert study.variants == ("plain", "plain_rewind", "ap_lite", "ap_pro")


def test_the_papers_trainings() -> None:
    """Against the published settings: epochs, batch and highest rate of tables 1 to 6."""
    published = {1: (100, 128, 0.03), 2: (160, 64, 0.1), 3: (300, 256, 0.1), 4: (200, 128, 0.1), 5: (90, 1024, 0.4),
                 6: (50, 1024, 1e-4)}  # fmt: skip
    for table, numbers in published.items():
        training = read_study(f"table{table}").training
        assert (training.epochs.count, training.batch, training.lr) == numbers
    assert all(read_study(f"table{n}").from_epoch == 6 for n in (5, 6))


def test_another_training_can_be_chosen() -> None:
    chosen = read_study("table1", {"training": "resnet20-standard", "seeds": 1})
    assert (chosen.training.lr, str(chosen.training.epochs), chosen.seeds) == (0.1, "160ep", (0,))
    assert read_study("resnet20-standard") == read_study("table1", {"training": "resnet20-standard"})


def test_changes_reach_where_they_belong() -> None:
    study = read_study(
        "table1",
        assignments(["lr=1e-3", "data.path=/somewhere", "data.limit=2000", "seeds=[3, 5]", "network.shortcut=pad",
                     "method=lamp", "variants=[plain]", "report_cycles=[1]", "epochs=1"]),
    )  # fmt: skip
    assert study.training.lr == 1e-3
    assert (study.training.data.name, study.training.data.path, study.training.data.limit) == (
        "cifar10", Path("/somewhere"), 2000,
    )  # fmt: skip
    assert study.training.network.options == (("shortcut", "pad"),)
    assert (study.seeds, study.method.name, study.reported) == ((3, 5), "lamp", (1,))


def test_a_pattern_needs_no_quotation_marks() -> None:
    """Though YAML would take it for an alias."""
    assert assignments(["exclude=*.conv1", "include= *", "device="]) == {
        "exclude": "*.conv1",
        "include": "*",
        "device": "",
    }
    assert read_study("smoke", assignments(["exclude=*.conv1"])).exclude == ("*.conv1",)
    with pytest.raises(ap.InputError, match=r"an alias .* and a pattern in quotation marks: '\*\.conv1'$"):
        assignments(["exclude=[*.conv1, *.conv2]"])
    assert assignments(["exclude=['*.conv1', fc]"]) == {"exclude": ["*.conv1", "fc"]}


WRONG = [
    ("lrr=0.1", "unknown key 'lrr': did you mean 'lr'?"),
    ("data.limt=5", "unknown option of 'cifar10' 'limt': did you mean 'limit'?"),
    ("network.shortcat=pad", "unknown option of 'resnet20' 'shortcat': did you mean 'shortcut'?"),
    ("network=resnet21", "unknown network 'resnet21': did you mean 'resnet20'?"),
    ("data.name=cifar11", "unknown data set 'cifar11': did you mean 'cifar10'?"),
    ("method=lmap", "unknown method 'lmap': did you mean 'lamp'?"),
    ("method.probes=3", "unknown option of 'global_magnitude' 'probes'"),
    ("variants=[plane]", "variants.0 = 'plane'"),
    ("variants=[]", "variants = []: at least one"),
    ("variants=[plain, plain]", "variants = ['plain', 'plain']: at least one, and none twice"),
    ("chain=renit", "chain = 'renit'"),
    ("p=0", "q = 0.02 is larger than p = 0.0"),
    ("p=20", "p = 20.0 is not a share between 0 and 1"),
    ("p=-0.1", "p = -0.1 is not a share"),
    ("q=0.3", "q = 0.3 is larger than p = 0.2"),
    ("q=0", "q = 0: variant ap_lite needs a share for AP"),
    ("cycles=0", "cycles = 0: at least 1 is needed"),
    ("cycles=2.5", "cycles = 2.5"),
    ("report_cycles=[14]", "report_cycles = [14]: there are 13 cycles"),
    ("report_cycles=[0]", "report_cycles.0 = 0"),
    ("report_cycles=[1, 1]", "none twice"),
    ("seeds=0", "seeds = 0: at least one is needed"),
    ("seeds=1,2", "seeds = '1,2': a list such as [a, b] is needed"),
    ("seeds=-1", "seeds = -1: at least one is needed"),
    ("variants=[palin]", "variants.0 = 'palin': unknown value 'palin': did you mean 'plain'?"),
    ("data=[]", "a name is needed, or a name and options such as {name: x, option: value}"),
    ("data.content=abc", "data set cifar10 is not known by the content of a folder"),
    ("report_cycles=[]", "report_cycles = []: at least one, and none twice"),
    ("cycles=1000", "cycles = 1000: at most 200 is possible"),
    ("score_batches=3", "score_batches = 3: method global_magnitude looks at no batches"),
    ("betas=[0.5, 0.9]", "betas = (0.5, 0.9): it belongs to adam, not to sgd"),
    ("seeds=[1, 1]", "seeds = [1, 1]: at least one, and none twice"),
    ("seeds=[-1]", "seeds.0 = -1"),
    ("rewind_epoch=5", "rewind_epoch and movement_from belong to chain rewind, not to reinit"),
    ("movement_from=rewind", "belong to chain rewind"),
    ("method=synflow", "chain = reinit: method synflow needs chain = at_init"),
    ("method=imp", "chain = reinit: method imp needs chain = rewind"),
    ("chain=at_init", "chain = at_init: method global_magnitude needs trained weights"),
    ("retrain=s_cyc", "lr_high = None: s_cyc needs one of at least lr"),
    ("lr_high=0.3", "lr_high = 0.3: s_cyc needs one of at least lr = 0.03, others none"),
    ("rule=app", "unknown rule 'app': did you mean 'ap'?"),
    ("lr=0", "lr = 0: more than 0 is needed"),
    ("batch=big", "batch = 'big'"),
    ("epochs=ten", 'such as "80ep"'),
    ("training=resnet20-stndard", "unknown training 'resnet20-stndard': did you mean 'resnet20-standard'?"),
    ("lr", "'lr' is no assignment: key=value"),
    ("lr=[", "cannot be read as YAML"),
    ("keep=some", "keep = 'some'"),
    ("rates=finetune", "unknown key 'rates'"),
    ("extends=table2", "extends cannot be changed from outside"),
    ("grid={lr: [1]}", "grid cannot be changed from outside"),
    ("training=3", "unknown training '3'"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[change for change, _ in WRONG])
def test_a_bad_study_names_the_key_the_value_and_what_is_allowed(change: str, message: str) -> None:
    with pytest.raises(ap.InputError) as caught:
        read_study("table1", assignments([change]))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


RIGHT = ["lr=0.1", "data.limit=5", "network.shortcut=pad", "method=lamp", "variants=plain", "chain=rewind", "p=1",
         "q=0.2", "cycles=20", "report_cycles=13", "seeds=1", "seeds=[7]", "rule=negative", "scope=layer",
         "exclude=fc", "epochs=500it", "keep=frontier", "precision=fp32", "early_stop=last"]  # fmt: skip


@pytest.mark.parametrize("change", RIGHT)
def test_its_correct_neighbour_is_accepted(change: str) -> None:
    read_study("table1", assignments([change]))


def test_nothing_has_moved_before_a_training() -> None:
    with pytest.raises(ap.InputError, match="variants = plain_rewind: nothing has moved before a training"):
        read_study("table1", {"method": "synflow", "chain": None})


def test_a_cycle_removes_something() -> None:
    with pytest.raises(ap.InputError, match="p = 0: a cycle must remove something"):
        read_study("table1", {"p": 0, "q": 0, "variants": "plain"})


def test_pretrained_weights_are_never_drawn_anew() -> None:
    with pytest.raises(ap.InputError, match="pretrained weights and chain = reinit"):
        read_study("table6", {"method": "lamp", "chain": "reinit", "rewind_epoch": None})


def test_a_retraining_that_cannot_be_is_refused_before_anything_is_planned() -> None:
    with pytest.raises(ap.InputError, match=r"lr_high = 0.001: s_cyc needs one of at least lr = 0.03"):
        read_study("table1", {"retrain": "s_cyc", "lr_high": 0.001})


def test_only_a_network_that_goes_on_from_trained_weights_is_finetuned() -> None:
    assert read_study("smoke", {"retrain": "finetune", "variants": ["plain"]}).retrain == "finetune"
    with pytest.raises(ap.InputError, match="retrain = finetune: only plain under reinit or continue goes on"):
        read_study("smoke", {"retrain": "finetune", "variants": ["ap_pro"]})


def test_what_belongs_to_another_optimiser_is_refused() -> None:
    with pytest.raises(ap.InputError, match=r"momentum = 0\.5: it belongs to sgd, not to adam"):
        read_study("table1", {"optimizer": "adam", "momentum": 0.5})
    read_study("table1", {"optimizer": "adam"})


def test_algorithm_2_as_printed_needs_a_share_for_x() -> None:
    with pytest.raises(ap.InputError, match=r"q = 0\.2: variant ap_lite_literal leaves nothing for X"):
        read_study("table1", {"q": 0.2, "variants": ["ap_lite_literal"]})


def test_the_order_of_changes_does_not_matter() -> None:
    one = read_study("table1", {"data.limit": 99, "data": "digits", "method.probes": 3, "method": "obd"})
    two = read_study("table1", {"method": "obd", "method.probes": 3, "data": "digits", "data.limit": 99})
    assert one == two
    assert (one.training.data.limit, one.method.options) == (99, (("probes", 3),))


def test_folders_are_the_same_wherever_a_study_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = read_study("table1", {"data.path": "data"})
    monkeypatch.chdir("/")
    assert study.training.data.path == tmp_path / "data"
    (tmp_path / "written.yaml").write_text(written(study))
    assert read_study(tmp_path / "written.yaml") == study


def test_unknown_studies_and_files(tmp_path: Path) -> None:
    with pytest.raises(ap.InputError, match=r"unknown study 'tabel1': did you mean 'table1'\?"):
        read_study("tabel1")
    with pytest.raises(ap.InputError, match=r"no such file: .*nowhere\.yaml"):
        read_study(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr: [", "is no YAML"),
        ("- 1", "must hold keys and values"),
        ("", "must hold keys and values"),
        ("extends: mine", "unknown study 'mine'"),
        ("extends: table1\nlrr: 1", "mine.yaml: unknown key 'lrr': did you mean 'lr'?"),
        ("extends: table1\nlr: 0.1\nlr: 0.2", "is no YAML: key 'lr' stands there twice"),
        ("extends: table1\nlr: !!python/object/apply:os.abort []", "could not determine a constructor for the tag"),
        ("extends: table1\nlr: 2020-13-01", "is no YAML: month must be in 1..12"),
        ("extends: table1\nlr: !!int a", "is no YAML"),
        ("extends: table1\nlr: !!bool a", "is no YAML"),
        ("extends: table1\nlr: !!timestamp a", "is no YAML"),
        ("extends: table1\nseeds: " + "9" * 5000, "is no YAML"),
        ("extends: table1\nlr: " + "[" * 5000, "is no YAML"),
    ],
)
def test_a_file_that_cannot_be_read_as_a_study(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ap.InputError) as caught:
        read_study(tmp_path / "mine.yaml")
    assert message in str(caught.value)


def test_a_file_of_ones_own_extends_a_study_of_the_library(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: table1\nlr: 0.05\n")
    (tmp_path / "theirs.yaml").write_text("extends: mine\nbatch: 64\n")
    study = read_study(tmp_path / "theirs.yaml")
    assert (study.training.lr, study.training.batch, study.cycles) == (0.05, 64, 13)
    (tmp_path / "again.yaml").write_text("extends: mine.yaml\n")  # beside it, not where the command runs
    assert read_study(tmp_path / "again.yaml").training.lr == 0.05
    (tmp_path / "mine.yaml").write_text("extends: theirs\n")
    with pytest.raises(ap.InputError, match="extends itself: theirs → mine → theirs"):
        read_study(tmp_path / "theirs.yaml")


@pytest.mark.parametrize("path", sorted(TRAININGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_training_of_the_library_is_what_its_file_says(path: Path) -> None:
    assert read_study(path, {"chain": "rewind"}).training == Training.read(yaml.safe_load(path.read_text()))


def test_a_grid_is_every_combination() -> None:
    found = read_grid("q-sweep-resnet20", {"seeds": 2})
    assert [study.q for study in found.values()] == [0.01, 0.02, 0.03, 0.05]
    assert all(study.seeds == (0, 1) for study in found.values())
    assert len(read_grid("table1", grid={"lr": [0.1, 0.2], "batch": [64, 128, 256]})) == 6
    with pytest.raises(ap.InputError, match="is a grid of 4 studies, not one"):
        read_study("q-sweep-resnet20")
    assert read_study("q-sweep-resnet20", {"q": 0.02}).q == 0.02


@pytest.mark.parametrize("values", ["ab", [], 3])
def test_a_grid_needs_lists(values: object) -> None:
    with pytest.raises(ap.InputError, match=r"grid: lr = .*: a list of values is needed"):
        read_grid("table1", grid={"lr": values})


def test_a_grid_of_wrong_keys_is_refused() -> None:
    with pytest.raises(ap.InputError, match="unknown key 'lrr'"):
        read_grid("table1", grid={"lrr": [1]})


def test_another_training_replaces_every_key_of_the_first() -> None:
    chosen = read_study("table1", {"training": "resnet8-digits"})
    assert (chosen.training.augment, chosen.training.network.name, chosen.training.precision) == (
        "none",
        "resnet8",
        "fp32",
    )
    assert read_study("table6", {"training": "resnet20-standard"}).training.schedule == "drops"
    here = read_study("table1", {"data.path": "/data", "training": "resnet20-standard"})
    assert str(here.training.data.path) == "/data"


def test_a_rewind_must_end_before_the_training_does() -> None:
    for epochs in (2, 6):
        with pytest.raises(ap.InputError, match=f"rewind_epoch = 6: a training of {epochs}ep needs an earlier one"):
            read_study("table5", {"epochs": epochs})


def test_a_grid_and_a_change_of_the_same_key_or_a_value_twice() -> None:
    with pytest.raises(ap.InputError, match="lr stands in the grid and among the changes"):
        read_grid("table1", {"lr": 0.1}, {"lr": [0.1, 0.2]})
    with pytest.raises(ap.InputError, match="one stands there twice"):
        read_grid("table1", grid={"lr": [0.1, 0.1]})


@pytest.mark.parametrize("merged", [False, True])
def test_no_file_unfolds_into_more_than_it_holds(tmp_path: Path, merged: bool) -> None:
    lines, before = ["extends: table1", "data: &a0 {name: cifar10}" if merged else "lr: &a0 [1]"], "a0"
    for n, key in enumerate(["p", "q", "cycles", "seeds", "drops", "batch", "epochs", "momentum", "warmup"], start=1):
        several = ", ".join([f"*{before}"] * 9)
        lines.append(f"{key}: &a{n} {{<<: [{several}]}}" if merged else f"{key}: &a{n} [{several}]")
        before = f"a{n}"
    (tmp_path / "mine.yaml").write_text("\n".join(lines))
    with pytest.raises(ap.InputError, match=r"mine\.yaml is no YAML: an alias") as caught:
        read_study(tmp_path / "mine.yaml")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("seeds=1000000000", "seeds = 1000000000: at most 10,000 are possible"),
        ("seeds=1" + 30 * "0", "at most 10,000 are possible"),
        ("epochs=1" + 30 * "0", "at most 1,000,000,000 are possible"),
        ("warmup=1" + 30 * "0" + "it", "at most 1,000,000,000 are possible"),
        ("drops=[1" + 30 * "0" + "ep]", "at most 1,000,000,000 are possible"),
        ("lr=1e400", "a finite number is needed"),
        ("epochs=-1", "a length is a number of epochs"),
    ],
)
def test_absurd_numbers_are_refused_before_they_cost_anything(change: str, message: str) -> None:
    with pytest.raises(ap.InputError) as caught:
        read_study("table1", assignments([change]))
    assert message in str(caught.value)


def test_a_grid_of_more_studies_than_anybody_wants_is_refused_before_they_are_made() -> None:
    many = {key: [n / 1000 for n in range(1, 99)] for key in ("lr", "weight_decay", "momentum", "label_smoothing")}
    with pytest.raises(ap.InputError, match=r"a grid of 92,236,816 studies: at most 1,000 are possible"):
        read_grid("table1", grid=many)


def test_a_text_of_somebody_else_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\ndef load(path=None): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    study = written(read_study("smoke"))
    for change in ("data: 'trap:load'", "data: {path: /, name: 'trap:load'}", "network: 'trap:load'"):
        key = change.partition(":")[0]
        lines = [line for line in study.splitlines() if not line.startswith((f"{key}:", "  "))]
        with pytest.raises(ap.InputError, match=r"file: (data|network) 'trap:load' is code: --import trap"):
            parsed("\n".join([*lines, change]), "file", modules=[])
    assert not (tmp_path / "sprung").exists()


def test_a_grid_is_keys_with_lists(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text("extends: smoke\ngrid: 3\n")
    with pytest.raises(ap.InputError, match="grid = 3: keys with lists of values are needed"):
        read_grid(tmp_path / "odd.yaml")


def test_a_study_that_was_written_is_read_again_and_nothing_else_is() -> None:
    study = read_study("smoke")
    assert parsed(written(study), "here") == study
    with pytest.raises(ap.InputError, match=r"^runs/x\.json is no YAML: "):
        parsed("{", "runs/x.json")
    with pytest.raises(ap.InputError, match=r"^runs/x\.json holds no study$"):
        parsed("- 1\n", "runs/x.json")
