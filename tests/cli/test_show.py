"""Tables in a log."""

import pytest

from activeprune.cli.show import LOG_WIDTH, print_table
from tests.cli.makers import Captured


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 14, 25, 60])
def test_numbers_of_many_columns_are_not_broken(columns: int, capsys: Captured) -> None:
    """What does not fit stands below, behind the first column, in the same order."""
    heads = [f"λ {cycle}.00 %" for cycle in range(columns)]
    rows = [
        {"variant": name, **{head: f"{i}.00 ± 1.25" for i, head in enumerate(heads)}} for name in ("plain", "ap_pro")
    ]
    print_table(rows)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= LOG_WIDTH for line in lines)
    for name, wanted in {"variant": heads, "plain": [*rows[0].values()][1:], "ap_pro": [*rows[1].values()][1:]}.items():
        own = [line for line in lines if line.startswith(name)]
        assert " ".join(" ".join(line.split()[1:]) for line in own) == " ".join(wanted)
        assert len(own) == len(lines) / 3


def test_sentences_and_what_is_wider_than_all_are_broken(capsys: Captured) -> None:
    print_table([{"name": "one", "what it is": "a word " * 40, "more": "x"}])
    assert capsys.readouterr().out.split().count("word") == 40
    print_table([{"name": "one", "what it is": "w" * 200, "more": "x", "and": "y"}])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "what", "it", "is", "more", "and"]
    assert sum(line.count("w") for line in lines[1:]) == 200
    print_table([{"alone": "w" * 200}])
    assert capsys.readouterr().out.count("w") == 200
