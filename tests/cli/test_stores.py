"""`activeprune store`, as a person types it."""

import json
from pathlib import Path

from activeprune.cli import main
from activeprune.experiment.store import FolderStore
from tests.cli.makers import SMALL, Captured, refused


def test_a_store_is_looked_after(finished: Path, tmp_path: Path, capsys: Captured) -> None:
    store = str(finished.parent / ".store")
    assert main(["store", "ls", store, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted(row["kind"] for row in rows) == ["prune", "prune", "train", "train", "train"]
    assert main(["store", "verify", store]) == 0
    assert main(["store", "gc", store]) == 0
    assert "0.0 MB freed" in capsys.readouterr().out
    packed = str(tmp_path / "packed.tar")
    assert main(["store", "pack", store, packed]) == 0
    assert main(["store", "unpack", packed, str(tmp_path / "elsewhere" / ".store")]) == 0
    assert "5 added, 0 were there" in capsys.readouterr().out
    arguments = ["run", "smoke", "--out", str(tmp_path / "elsewhere" / "run"), *SMALL, "--dry-run", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["trainings"]["missing"] == 0  # records and masks are enough


def test_damage_is_found_and_is_exit_code_1(tmp_path: Path, capsys: Captured) -> None:
    assert main(["run", "smoke", "--out", str(tmp_path / "run"), *SMALL]) == 0
    path = next((tmp_path / ".store" / "objects").rglob("record.json"))
    path.write_bytes(path.read_bytes() + b" ")
    assert main(["store", "verify", str(tmp_path / ".store")]) == 1
    assert "1 damaged" in capsys.readouterr().out


def test_what_is_no_store_is_refused(tmp_path: Path, capsys: Captured) -> None:
    for command in ("ls", "verify", "gc"):
        assert f"{tmp_path} is no store" in refused(["store", command, str(tmp_path)], capsys)


def test_what_somebody_else_told_of_an_entry_is_only_shown(tmp_path: Path, capsys: Captured) -> None:
    told = {"kind": "\x1b[2J", "seconds": "long", "finished": ["x"], "key": 5, "bytes": "many"}
    FolderStore(tmp_path).put("ab" * 16, {"record.json": b"{}"}, told)
    assert main(["store", "ls", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "ab" * 16 in shown
    assert "\\x1b[2J" in shown
    assert "\x1b" not in shown
