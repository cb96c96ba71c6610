"""Fills the tables of a Markdown file such as results/README.md in from the records of the folders beside it.

Between a comment that names a folder, a table and, if not all, its rows, and the comment `<!-- end -->`:

    <!-- table1 paired: ap_lite − plain_rewind; ap_pro − plain_rewind -->

The folder is relative to the file's own.

With --check nothing is written, and what is not up to date ends in an error: python tools/results.py --help
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from activeprune.core.errors import InputError
from activeprune.report.layout import Table, markdown, plain
from activeprune.report.records import RECORDS, read_records
from activeprune.report.tables import section

BLOCK = re.compile(
    r"(?P<begin><!-- (?P<folder>[\w/-]+) (?P<table>\w+)(?:: (?P<rows>.+?))? -->\n).*?(?=<!-- end -->)", re.S
)


def filled(path: Path) -> str:
    """A file's text with its tables as the records have them."""
    return BLOCK.sub(lambda block: block["begin"] + _table(path.parent, block), path.read_text(encoding="utf-8"))


def _table(folder: Path, block: re.Match[str]) -> str:
    tables = _tables(folder / block["folder"])
    if block["table"] not in tables:
        raise InputError(f"{block['begin'].strip()}: the tables are {', '.join(tables)}")
    found = tables[block["table"]]
    if block["rows"]:
        wanted = block["rows"].split("; ")
        found = replace(found, rows=tuple(row for row in found.rows if plain(row[0]) in wanted))
        if missing := {*wanted} - {plain(row[0]) for row in found.rows}:
            raise InputError(f"{block['begin'].strip()}: there is no row {', '.join(sorted(missing))}")
    lines = markdown(found).splitlines()
    if block["rows"]:  # what is bold is the best of all rows
        lines = [line.replace("**", "") for line in lines]
    return "".join(f"{line}\n" for line in lines if line.startswith("|"))


@lru_cache
def _tables(folder: Path) -> dict[str, Table]:
    (run,) = read_records(folder / RECORDS)
    return {table.name: table for table in section(run).tables}


def main() -> None:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; an error if a table is not up to date")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="such as results/README.md")
    asked = parser.parse_args()
    for path in asked.files:
        try:
            text = filled(path)
        except (InputError, OSError) as error:
            raise SystemExit(f"{path}: {error}") from None
        if not asked.check:
            path.write_text(text, encoding="utf-8")
        elif text != path.read_text(encoding="utf-8"):
            raise SystemExit(f"{path}: its tables are not those of the records; python tools/results.py {path}")


if __name__ == "__main__":
    main()
