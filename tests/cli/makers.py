"""Command lines that are quick, and what they print."""

import json

import pytest

from activeprune.cli import main
from activeprune.training import Training

Captured = pytest.CaptureFixture[str]
SMALL = ["--set", "variants=[plain,ap_lite]", "--set", "cycles=1", "--processes", "1", "--quiet"]
DIGITS = ["dnr", "resnet8", "--data", "digits"]


def training(**keys) -> Training:
    return Training.read({"network": "resnet8", "data": "digits", "lr": 1.0, "epochs": 1, "batch": 128, **keys})


def refused(arguments: list[str], capsys: Captured) -> str:
    """What is said to bad input: one line, and exit code 2."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("activeprune: ")
    assert captured.err.count("\n") == 1
    return captured.err


def told(arguments: list[str], capsys: Captured) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)
