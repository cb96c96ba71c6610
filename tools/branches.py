"""How many branches of core, neurons and experiment the tests take, folder by folder: make coverage.

It reads what `coverage run` measured, names each branch that no test took, and ends in an error where a folder has less
than the share that is asked for.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coverage import Coverage

FOLDERS = ("core", "neurons", "experiment")
WANTED = 0.95  # of the branches of each folder


def measured(folder: str) -> dict[str, dict[str, Any]]:
    """What coverage knows of each file of a folder."""
    data = Coverage()
    data.load()
    with TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        data.json_report(outfile=str(report), include=[f"*/activeprune/{folder}/*"])
        files: dict[str, dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["files"]
    return files


def main() -> None:
    """Prints a line a folder and a line a branch."""
    too_few = []
    for folder in FOLDERS:
        files = measured(folder)
        taken = sum(told["summary"]["covered_branches"] for told in files.values())
        there = sum(told["summary"]["num_branches"] for told in files.values())
        print(f"{folder}: {taken} of {there} branches, {100 * taken / there:.1f} %")
        for path, told in files.items():
            for begin, end in told["missing_branches"]:
                print(f"    {path}:{begin} never goes to {end if end > 0 else 'the end of its function'}")
        if taken < WANTED * there:
            too_few.append(folder)
    if too_few:
        raise SystemExit(f"less than {100 * WANTED:g} % of the branches: {', '.join(too_few)}")


if __name__ == "__main__":
    main()
