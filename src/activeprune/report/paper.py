"""The numbers that the paper prints, for comparison with one's own."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def published() -> dict[str, Any]:
    """Tables 1-6, ablations, q sweeps and dynamic dead-neuron rates of the paper, in per cent, and its claims.

    >>> published()["table1"]["rows"]["ap_pro"][-1]
    {'lambda': 5.72, 'mean': 84.1, 'std': 1.1}
    """
    text = files("activeprune.report").joinpath("paper.json").read_text(encoding="utf-8")
    numbers: dict[str, Any] = json.loads(text)
    return numbers


def tables() -> dict[str, str]:
    """The published tables by name, each in one line: network, data and method."""
    numbers = published()
    described = {}
    for name, table in numbers.items():
        if isinstance(table, dict) and "rows" in table:
            kind = table.get("metric") or ("accuracy against q" if "q" in table else "accuracy")
            method = table.get("method") or next(iter(table["rows"]))
            described[name] = f"{table['network']} on {table['dataset']}, {method}: {kind}"
    return described
