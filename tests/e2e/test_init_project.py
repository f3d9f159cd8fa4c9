"""A project that `ferrata init` wrote, in the hands of a person: its tests, its checks, its recipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ferrata


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(ferrata.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project") / "depot"
    done = python(folder.parent, "-m", "ferrata", "init", "depot")
    assert done.returncode == 0, done.stderr
    return folder


def test_its_tests_pass(project: Path) -> None:
    done = python(project, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert "16 passed" in done.stdout


def test_its_checks_pass(project: Path) -> None:
    done = python(project, "-m", "ferrata", "check-env", "depot.environment:Depot", "--tasks", "6", "--fuzz", "300")
    assert done.returncode == 0, done.stdout
    assert "Every check passed (15 of 15 made)." in done.stdout


def test_its_tests_notice_a_broken_judge(project: Path, tmp_path: Path) -> None:
    broken = tmp_path / "depot"
    subprocess.run(["cp", "-r", str(project), str(broken)], check=True)
    source = broken / "depot" / "environment.py"
    source.write_text(source.read_text().replace("self.finish(success=right)", "self.finish(success=True)"))
    done = python(broken, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 1
    assert "must fail, but it succeeded" in done.stdout


def test_training_accepts_its_recipe(project: Path) -> None:
    done = python(project, "-m", "ferrata", "train", "recipe.toml", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "depot.environment:Depot, tiers 1, 2" in done.stdout
