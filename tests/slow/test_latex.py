"""The tables of a report as LaTeX sets them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from activeprune.report.report import Report
from activeprune.report.writing import write_tables
from tests.report.makers import made

pytestmark = pytest.mark.slow

DOCUMENT = r"""\documentclass{article}
\usepackage{array,booktabs,graphicx,longtable}
\begin{document}
\input{tables.tex}
\end{document}
"""
VARIANTS = ["plain", "plain_rewind", "ap_lite", "ap_pro", "no_rewind"]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
@pytest.mark.parametrize("cycles", [[2, 4], [2, 4, 5, 6, 9, 11, 13]], ids=["short", "long"])
def test_latex_sets_every_table_within_its_page(tmp_path: Path, cycles: list[int]) -> None:
    """Without an error, no line wider than the text, and no page longer: 13 cycles of five variants are 40 rows."""
    values = {(variant, cycle): [80.0 - cycle, 81.5 - cycle, 80.2 - cycle] for variant in VARIANTS for cycle in cycles}
    rates = {cell: [40.0, 39.0, 38.5] for cell in values}
    changes = {"variants": VARIANTS, "cycles": max(cycles), "report_cycles": cycles, "measure": "dnr"}
    run = made("table1", values, 'a_name & "another" 100 %', rates, **changes)
    write_tables(Report([run]), tmp_path)
    (tmp_path / "all.tex").write_text(DOCUMENT)
    for _ in range(2):  # longtable finds its widths in the first run
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    too_much = re.findall(r"Overfull \\[hv]box \(([\d.]+)pt", done.stdout)
    assert all(float(points) < 2 for points in too_much), too_much
