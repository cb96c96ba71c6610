"""`activeprune bench`, as a person types it; what is measured is in tests/bench."""

import pytest

from tests.cli.makers import Captured, refused


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["bench"], "Missing command"),
        (["bench", "prune", "--repeats", "0"], "--repeats"),
        (["bench", "prune", "--repeats", "many"], "--repeats"),
        (["bench", "prune", "--network", "vgg"], "unknown network to measure 'vgg': did you mean 'vgg19'?"),
        (["bench", "prune", "--device", "abacus"], "device 'abacus' cannot be used here"),
        (["bench", "prune", "--device", "meta"], "device 'meta' cannot be used here"),
        (["bench", "dnr", "--network", "vit"], "unknown network to measure 'vit'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(command: list[str], says: str, capsys: Captured) -> None:
    assert says in refused(command, capsys)
