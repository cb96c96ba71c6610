"""A report works each thing out once, however many tables, figures and pages need it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from activeprune.report import gathering, report
from activeprune.report.report import Report
from activeprune.report.writing import draw_figures, draw_page, write_tables

from .synthetic import SMALL, run


@pytest.mark.slow
def test_nothing_is_worked_out_twice(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def counted(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*given: Any) -> Any:
            calls[name] += 1
            return work(*given)

        return asked

    expected = {"comparisons": 2, "accuracies": 1, "dead_rates": 1, "layers_of_study": 1, "maps": 1}  # a run's
    of_all = {"told_apart": 1, "section": 2, "claims": 1}
    for module, names in ((gathering, expected), (report, of_all)):
        for name in names:
            monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    made = Report(run("dnr-resnet20", **SMALL) for _ in range(2))
    write_tables(made, tmp_path)
    draw_figures(made, tmp_path)
    draw_page(made, tmp_path)
    assert made.claims
    assert calls == {name: 2 * count for name, count in expected.items()} | of_all
