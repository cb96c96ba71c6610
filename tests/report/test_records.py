"""What a report is made of, written to one file and read back."""

import gzip
import json
from pathlib import Path

import pytest

from activeprune.core.errors import InputError
from activeprune.report.gathering import Gathered
from activeprune.report.records import RECORDS, read_records, write_records
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
    for mine, theirs in zip(write_tables([one], tmp_path / "a"), write_tables([again], tmp_path / "b"), strict=True):
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
