"""`ferrata audit-rewards`: what is printed, written and returned."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ferrata.cli import auditing_rewards
from ferrata.cli.main import app
from ferrata.evaluation.exploiters import EXPLOITERS
from ferrata.recipe import RewardPhase, RewardSection

from . import shelves
from .shelves import PaysEveryQuery, audit


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name under which the environments of shelves.py can be asked for."""
    monkeypatch.setitem(sys.modules, "shelves", shelves)
    return "shelves"


def test_the_command_passes_what_is_sound(module: str) -> None:
    result = CliRunner().invoke(app, ["audit-rewards", f"{module}:Shelf", "--tasks", "6"])
    assert result.exit_code == 0, result.output
    assert "honest but clumsy" in result.output
    assert "No exploiter earns as much" in result.output


def test_the_command_names_the_hole_and_fails(module: str, tmp_path: Path) -> None:
    recipe, file = tmp_path / "holed.toml", tmp_path / "audit.json"
    recipe.write_text("[rewards]\nprocess = 0.05\nrepeat = 0.0\nnear_repeat = 0.0\n")
    arguments = [f"{module}:PaysEveryQuery", "--recipe", str(recipe), "--tasks", "6", "--json", str(file)]
    result = CliRunner().invoke(app, ["audit-rewards", *arguments])
    assert result.exit_code == 1
    assert "HOLE. 'repeat a query' in family 'weight' (tier 1) is paid +0.040" in " ".join(result.output.split())
    written = json.loads(file.read_text())
    assert written["holes"][0]["component"] == "process"
    assert len(written["results"]) == len(EXPLOITERS) + 3


def test_a_hole_of_one_phase_is_painted_in_its_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    section = RewardSection(process=0.0, phases=(RewardPhase(name="late", from_update=9, process=0.2),))
    painted: list[set[str]] = []
    monkeypatch.setattr(auditing_rewards, "_table", lambda title, rows, broken: painted.append(broken) or title)
    found = audit(PaysEveryQuery, section)
    auditing_rewards.show(Console(file=io.StringIO()), found)
    assert painted == [set(), {hole.player for hole in found.holes}]
    assert painted[1]
