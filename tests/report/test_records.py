"""What a report is made of, written to one file and read back."""

import gzip
import json
from pathlib import Path

import pytest

from activeprune.core.errors import InputError
from activeprune.experiment import imports
from activeprune.report import records
from activeprune.report.gathering import Gathered
from activeprune.report.records import RECORDS, read_records, write_records
from activeprune.report.report import Report
from activeprune.report.writing import write_tables
from tests.report.makers import made
from tests.report.synthetic import failed, run, undone

RUNS = {
    "whole": lambda: run(seeds=2),
    "failed": lambda: run(change=lambda t: failed(t) if t.cycle == 4 else t, seeds=2),
    "half": lambda: run(change=lambda t: undone(t) if t.cycle > 4 else t, seeds=1),
    "made": lambda: made("table1", {("plain", 2): [90.0, "failed", None]}),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_is_read_is_what_was_written(name: str, tmp_path: Path) -> None:
    one = RUNS[name]()
    assert read_records(write_records([one, one], tmp_path)) == [one, one]


def test_tables_from_records_are_those_of_the_run(tmp_path: Path) -> None:
    one = run(seeds=3)
    (again,) = read_records(write_records([one], tmp_path))
    for mine, theirs in zip(
        write_tables(Report([one]), tmp_path / "a"), write_tables(Report([again]), tmp_path / "b"), strict=True
    ):
        assert mine.read_bytes() == theirs.read_bytes()
    assert [*again.trainings[-1].layers] == [*one.trainings[-1].layers]  # in their order


def test_the_same_bytes_again_and_a_shared_training_once(tmp_path: Path) -> None:
    one = run(seeds=1)
    shared = Gathered(one.title, one.study, (*one.trainings, one.trainings[0]), one.work, one.machines)
    paths = [write_records([shared], tmp_path / name) for name in "ab"]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    told = json.loads(gzip.decompress(paths[0].read_bytes()))["runs"][0]
    assert len(told["trainings"]) == len(one.trainings) == len(told["cells"]) - 1


TEXTS = {
    "lists without end": "[" * 200_000,
    "half": "{", "no object": "[]", "no runs": '{"format": 2}', "no run": '{"format": 2, "runs": [{"title": 3}]}',
    "an earlier format": '{"format": 1, "runs": []}', "a later format": '{"format": 9, "runs": []}',
}  # fmt: skip


@pytest.mark.parametrize("what", ["empty", "not compressed", "cut", *TEXTS])
def test_other_files_are_refused_in_one_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / RECORDS
    whole = gzip.compress(TEXTS.get(what, '{"format": 2, "runs": []}').encode())
    path.write_bytes({"empty": b"", "not compressed": b"{}", "cut": whole[:-6]}.get(what, whole))
    with pytest.raises(InputError, match=r"records\.json\.gz") as caught:
        read_records(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_records(tmp_path / RECORDS)


def kept(tmp_path: Path, **changed: object) -> Path:
    """Records of a run with some of its keys changed."""
    path = write_records([run(seeds=1)], tmp_path)
    told = json.loads(gzip.decompress(path.read_bytes()))
    told["runs"][0].update(changed)
    path.write_bytes(gzip.compress(json.dumps(told).encode()))
    return path


def test_nothing_that_records_name_is_imported_or_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\ndef load(path=None): ...\n")
    (tmp_path / "precious").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    study = "{network: resnet8, lr: 0.1, epochs: 1, batch: 8, data: {name: '%s', path: '%s'}}"
    for name in ("trap:load", "shutil:rmtree"):
        with pytest.raises(InputError, match=f"data '{name}' is code"):
            read_records(kept(tmp_path, study=study % (name, tmp_path / "precious")))
    assert not (tmp_path / "sprung").exists()
    assert (tmp_path / "precious").is_dir()


def test_a_module_that_was_asked_for_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_data.py").write_text("def load(path=None): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(imports, "_asked", ["own_data"])
    study = "{network: resnet8, lr: 0.1, epochs: 1, batch: 8, data: 'own_data:load'}"
    (read,) = read_records(kept(tmp_path, study=study))
    assert read.study.training.data.name == "own_data:load"


def test_a_small_file_does_not_unfold_into_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LARGEST", 100_000)
    path = tmp_path / RECORDS
    path.write_bytes(gzip.compress(b" " * 100_001))
    with pytest.raises(InputError, match="unfolds to more than 100,000 bytes"):
        read_records(path)


@pytest.mark.parametrize(
    "changed",
    [
        {"title": 5}, {"title": None}, {"machines": [1]}, {"machines": 7}, {"imports": [None]}, {"work": [{"key": 1}]},
        {"work": 3}, {"cells": [["plain", "first", 0, 0]]}, {"cells": [["plain", 1, 0, 999]]}, {"study": "[" * 5000},
        {"study": 5}, {"trainings": [{"epochs": {}, "looks": [], "key": {}}]},
    ],
)  # fmt: skip
def test_records_of_other_types_are_refused_in_one_line(tmp_path: Path, changed: dict) -> None:
    with pytest.raises(InputError, match=r"records\.json\.gz") as caught:
        read_records(kept(tmp_path, **changed))
    assert "\n" not in str(caught.value)
