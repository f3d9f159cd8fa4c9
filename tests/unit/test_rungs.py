"""A ladder is looked at before anything is trained: what could never be trained, judged or reached is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ferrata import load_recipe, make_env
from ferrata.cli.main import app
from ferrata.envs.base import Environment
from ferrata.errors import RecipeError, UsageError
from ferrata.recipe import Recipe
from ferrata.records import Task
from ferrata.training.rungs import check_rungs, judged_by

Office = Callable[[Sequence[int], str], Environment]
TIERS = ["env.tiers=[1,2,3]", "ladder.enabled=true", "rollout.max_turns=100"]


def recipe(*overrides: str) -> Recipe:
    return load_recipe("office-smoke", [*TIERS, "evaluation.tasks=60", "evaluation.tasks_small=60", *overrides])


@pytest.fixture(scope="module")
def office() -> Iterator[Callable[[Sequence[int], str], Environment]]:
    """Draws tasks of these tiers with these tools."""
    with ExitStack() as opened:
        yield lambda tiers, tools: opened.enter_context(closing(make_env("office", tiers, tools=tools)))


@pytest.fixture(scope="module")
def unseen(office: Office) -> list[Task]:
    return office((1, 2, 3), "").tasks("eval", 60, seed=7)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("evaluation.tasks_small=2", "Rung 2 of the ladder could not be judged: .* none of tier 1"),
        ("ladder.newest=0.9", "On rung 2 of the ladder, with tiers .1, 2., .* a task of tier 1"),
        ('ladder.tools=["nope"]', "Rung 1 of the ladder has no tasks of tier 1. .*nope"),
        ('ladder.tools=["basic"]', "Rung 2 of the ladder has no tasks of tier 2"),
    ],
)
def test_a_rung_that_cannot_be_trained_or_judged_is_refused(
    office: Office, unseen: list[Task], override: str, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        check_rungs(recipe("rl.tasks_per_update=4", override), unseen, office)
    check_rungs(recipe("rl.tasks_per_update=4"), unseen, office)


@pytest.mark.parametrize("command", [["--dry-run"], []])
def test_it_is_refused_before_anything_is_trained_and_in_a_dry_run(tmp_path: Path, command: list[str]) -> None:
    settings = [*TIERS, 'ladder.tools=["nope"]', "policy.threads=1"]
    out = tmp_path / "run"
    result = CliRunner().invoke(app, ["train", "office-smoke", *settings, "--out", str(out), *command])
    assert result.exit_code == 2
    assert "Rung 1 of the ladder has no tasks of tier 1" in result.output
    assert not out.exists(), "nothing was trained"


def test_a_rung_is_judged_with_the_tools_that_it_is_trained_with(office: Office, unseen: list[Task]) -> None:
    tasks = judged_by(recipe(), unseen, office, (1,), "basic")
    trained = office((1,), "basic").tasks("train", 8)
    assert tasks
    assert {task.tools for task in tasks} == {task.tools for task in trained}
    own = judged_by(recipe(), unseen, office, (1, 2), "")
    assert own == [task for task in unseen if task.tier < 3], "without a tool set each task keeps its own"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["ladder.schedule=[5]"], "opens 1 more tiers, but env.tiers = .1, 2, 3. has 2 beyond the first"),
        (["ladder.schedule=[5,6,7]"], "opens 3 more tiers"),
        (['ladder.tools=["basic","basic","full","full"]'], "names 4 rungs, but env.tiers = .1, 2, 3. makes 3"),
        (["env.tiers=[1,1,2]"], "env.tiers = .1, 1, 2. names a tier twice"),
    ],
)
def test_a_ladder_that_does_not_fit_its_tiers_is_refused(overrides: list[str], sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        recipe(*overrides)


def test_without_a_ladder_nothing_is_asked_of_its_rungs() -> None:
    plain = load_recipe("office-smoke", ["rl.tasks_per_update=1"])

    def never(*_: Any) -> Any:
        raise AssertionError

    check_rungs(plain, [SimpleNamespace(tier=1)], never)
