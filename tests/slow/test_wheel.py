"""The built wheel and the source archive have everything inside, and the wheel works in an empty environment."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import activeprune as ap

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment.setdefault("UV_FIND_LINKS", os.environ.get("PIP_FIND_LINKS", ""))
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both, built without the network: the wheel from the source archive."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def tracked() -> set[str]:
    """The files of this checkout, new ones among them, but for those that git ignores."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a checkout and git")
    asked = ("ls-files", "--cached", "--others", "--exclude-standard", "-z")
    return {name for name in run("git", *asked, cwd=ROOT).split("\0") if name and (ROOT / name).exists()}


@pytest.mark.slow
def test_the_wheel_has_the_sources_and_nothing_else(wheel: Path) -> None:
    files = tracked()
    told, inside = set(), {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if ".dist-info/" in name:
                told.add(name.partition("/")[2])
            else:
                inside[f"src/{name}"] = archive.read(name)
    assert set(inside) == {name for name in files if name.startswith("src/")}
    assert all(data == (ROOT / name).read_bytes() for name, data in inside.items())
    assert told == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert {Path(name).suffix for name in inside} == {
        *(".py", ".typed"), ".yaml", ".json", *(".html", ".css", ".js"), *(".cu", ".cuh"),
    }  # fmt: skip


@pytest.mark.slow
def test_the_source_archive_has_all_that_the_tests_need(dist: Path) -> None:
    """That is everything but the pages under results/, which can be made anew, and what checks a change."""
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    pages = {f"results/{folder.parent.name}/report.html" for folder in ROOT.glob("results/*/records.json.gz")}
    assert names - {"PKG-INFO"} == {name for name in tracked() - pages if not name.startswith(".ci/")}
    assert sdist.stat().st_size < 10_000_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wheel_installs_and_runs_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "empty", cwd=tmp_path)
    python = tmp_path / "empty" / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    installer = [uv, "pip", "install", "--python", python] if uv.exists() else [python, "-m", "pip", "install"]
    run(*installer, "--quiet", "--constraint", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    command = tmp_path / "empty" / "bin" / "activeprune"
    assert run(command, "--version", cwd=tmp_path) == f"activeprune {ap.__version__}\n"
    listed = json.loads(run(command, "list", "--json", cwd=tmp_path))
    assert "lamp" in {row["name"] for row in listed["methods"]}
    assert "table1" in {row["name"] for row in listed["paper"]}
    assert "table1" in {row["name"] for row in listed["studies"]}
    told = json.loads(run(command, "run", "table1", "--set", "seeds=1", "--dry-run", "--json", cwd=tmp_path))
    assert told["trainings"]["total"] == 53
    run(command, "run", "smoke", "--quiet", cwd=tmp_path)
    run(command, "report", "runs/smoke", cwd=tmp_path)
    assert {"report.html", "tables.md", "records.json.gz"} <= {
        path.name for path in (tmp_path / "runs/smoke").iterdir()
    }
    program = "import activeprune as ap, torch; m = torch.nn.Linear(4, 3)"
    program += "; print(ap.prune_cycle('lamp', m, ap.Masks.dense(m), 5).masks)"
    assert "7 of 12 weights alive" in run(python, "-c", program, cwd=tmp_path)
