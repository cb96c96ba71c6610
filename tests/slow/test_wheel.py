"""The built wheel works in an empty environment, with everything it needs inside."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment.setdefault("UV_FIND_LINKS", os.environ.get("PIP_FIND_LINKS", ""))
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wheel_installs_and_runs_in_an_empty_environment(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    wheel, sdist = next(tmp_path.glob("*.whl")), next(tmp_path.glob("*.tar.gz"))
    names = zipfile.ZipFile(wheel).namelist()
    assert {"activeprune/py.typed", "activeprune/report/paper.json"} <= set(names)
    assert {
        "activeprune/experiment/studies/table1.yaml",
        "activeprune/experiment/trainings/resnet20-paper.yaml",
    } <= set(names)
    assert {f"activeprune/report/page/page.{kind}" for kind in ("html", "css", "js")} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith("tests") for name in names)
    assert sdist.stat().st_size < 2_000_000

    run(sys.executable, "-m", "venv", "empty", cwd=tmp_path)
    python = tmp_path / "empty" / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    installer = [uv, "pip", "install", "--python", python] if uv.exists() else [python, "-m", "pip", "install"]
    run(*installer, "--quiet", "--constraint", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    command = tmp_path / "empty" / "bin" / "activeprune"
    listed = json.loads(run(command, "list", "--json", cwd=tmp_path))
    assert "lamp" in {row["name"] for row in listed["methods"]}
    assert "table1" in {row["name"] for row in listed["paper"]}
    assert "table1" in {row["name"] for row in listed["studies"]}
    told = json.loads(run(command, "run", "table1", "--set", "seeds=1", "--dry-run", "--json", cwd=tmp_path))
    assert told["trainings"]["total"] == 53
    program = "import activeprune as ap, torch; m = torch.nn.Linear(4, 3)"
    program += "; print(ap.prune_cycle('lamp', m, ap.Masks.dense(m), 5).masks)"
    assert "7 of 12 weights alive" in run(python, "-c", program, cwd=tmp_path)
