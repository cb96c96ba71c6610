"""`activeprune bench prune`."""

import pytest
from torch import nn

from activeprune.bench import prune as bench_prune
from activeprune.cli import main
from tests.cli.makers import Captured, told


def test_every_step_is_timed_on_the_same_weights(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a small network, so that the numbers mean nothing but the path is the real one."""
    monkeypatch.setattr(bench_prune, "SIZES", {"small": lambda: [nn.Linear(30, 20), nn.Linear(20, 10)]})
    rows = told(["bench", "prune", "--repeats", "2"], capsys)["rows"]
    assert [row["step"] for row in rows] == ["torch.nn.utils.prune", "global_magnitude", "lamp", "AP's rule"]
    assert all(row["weights"] == 800 and row["seconds"] > 0 for row in rows)
    assert rows[1]["times_faster_than_torch"] == pytest.approx(rows[0]["seconds"] / rows[1]["seconds"])
    assert main(["bench", "prune", "--repeats", "1"]) == 0
    assert "× faster: than torch.nn.utils.prune" in capsys.readouterr().out
