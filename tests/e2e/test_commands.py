"""The commands of the README on the smallest run: train, eval, replay, report, check-env."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest


def ferrata(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ferrata", *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    done = ferrata("train", "office-smoke", "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.mark.slow
def test_training_leaves_a_policy_and_a_report(run: Path) -> None:
    assert (run / "policy" / "model.safetensors").is_file()
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "unseen" in page
    assert not re.search(r"(src|href)=\"https?:", page)


@pytest.mark.slow
def test_a_policy_and_a_run_can_be_evaluated(run: Path) -> None:
    out = run.parent / "result.json"
    done = ferrata(
        "eval", str(run), "--env", "office", "--tier", "1", "--tasks", "9", "--json", str(out), cwd=run.parent
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert result["n"] == 9
    assert result["decoding"] == "greedy"
    assert set(result["by_tier"]) == {"1"}
    again = ferrata("eval", str(run / "policy"), "--tier", "1", "--tasks", "9", "--json", str(out), cwd=run.parent)
    assert again.returncode == 0, again.stderr
    assert json.loads(out.read_text())["outcomes"] == result["outcomes"]


@pytest.mark.slow
def test_trajectories_can_be_read(run: Path) -> None:
    listed = ferrata("replay", str(run), cwd=run.parent)
    assert listed.returncode == 0, listed.stderr
    one = ferrata("replay", str(run), "1", cwd=run.parent)
    assert one.returncode == 0, one.stderr
    assert "turn 1" in one.stdout.lower()
    none = ferrata("replay", str(run), "99999", cwd=run.parent)
    assert none.returncode == 2
    assert "Traceback" not in none.stderr


@pytest.mark.slow
def test_the_office_fulfils_its_contract(tmp_path: Path) -> None:
    done = ferrata("check-env", "office", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
