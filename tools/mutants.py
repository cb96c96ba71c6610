"""Changes the code that chooses weights in many small ways, and shows each change that no test notices: make mutants.

mutmut does it, in a copy of the project in build/mutants; `[tool.mutmut]` of pyproject.toml says on which files and
with which tests. It passes over decorated functions, and AP's rules and the masks' counts are such: in the copy a
decorator is written as the call that it stands for. What runs into its time limit is tried once more by itself. An
argument limits the run: 'activeprune.core.budget*'.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPY = ROOT / "build" / "mutants"
ITS_OWN = {"staticmethod", "classmethod", "overload"}  # decorators that mutmut understands or need not


# mutmut 3.8 asks a test for `_nodeid`, which pytest 9.2 no longer has.
STARTED = "import pytest; pytest.Item._nodeid = pytest.Item.nodeid; from mutmut.__main__ import cli; cli()"


def undecorated(source: str) -> str:
    """The same program with `f = decorator(f)` after each function instead of `@decorator` before it.

    >>> print(undecorated("@twice(2)\\ndef f() -> None:\\n    pass\\n"))
    def f() -> None:
        pass
    f = twice(2)(f)
    <BLANKLINE>
    """
    lines = source.splitlines()
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for function in sorted(functions, key=lambda node: -node.lineno):  # from the end: lines before it keep their place
        names = [ast.unparse(decorator) for decorator in function.decorator_list]
        if not names or ITS_OWN & set(names):
            continue
        assert function.end_lineno is not None
        call = f"{'('.join([*names, function.name])}{')' * len(names)}"
        lines.insert(function.end_lineno, f"{' ' * function.col_offset}{function.name} = {call}")
        del lines[function.decorator_list[0].lineno - 1 : function.lineno - 1]
    return "\n".join(lines) + "\n"


def copied(to: Path) -> None:
    """Puts what the tests need into a folder, the files to be changed undecorated."""
    shutil.rmtree(to, ignore_errors=True)
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", to)
    for name in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]["only_mutate"]:
        (to / name).write_text(undecorated((to / name).read_text(encoding="utf-8")), encoding="utf-8")


def mutmut(*arguments: str, quiet: bool = False) -> str:
    """What mutmut says, run in the copy."""
    environment = {**os.environ, "PYTHONPATH": str(COPY / "src")}
    command = [sys.executable, "-c", STARTED, *arguments]
    pipe = subprocess.PIPE if quiet else None
    return subprocess.run(command, cwd=COPY, env=environment, stdout=pipe, text=True, check=True).stdout or ""


def outcomes() -> dict[str, str]:
    """What became of every mutant that was tried, by name."""
    told = re.findall(r"^\s*(activeprune\S+): (.+)$", mutmut("results", "--all", "true", quiet=True), re.M)
    return {name: outcome for name, outcome in told if outcome != "not checked"}


def main() -> None:
    """Runs mutmut and prints what survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="mutants to try, with wildcards; all of them if none is given")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many at a time")
    asked = parser.parse_args()
    copied(COPY)
    mutmut("run", "--max-children", str(asked.processes), *asked.names)
    if late := [name for name, outcome in outcomes().items() if outcome == "timeout"]:
        mutmut("run", "--max-children", "1", *late)  # once more by themselves: the machine may have been busy
    tried = outcomes()
    found = {name: outcome for name, outcome in tried.items() if outcome != "killed"}
    for name, outcome in found.items():
        print(f"\n{outcome}: {mutmut('show', name, quiet=True)}")
    print(f"\n{len(tried) - len(found)} of {len(tried)} mutants were killed.")
    print("docs/testing.md tells which of the others change nothing that can be seen")


if __name__ == "__main__":
    main()
