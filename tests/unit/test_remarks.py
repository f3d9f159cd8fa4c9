"""What a person is told of a recipe before it runs: what would never come, and what would come to nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ferrata import load_recipe
from ferrata.cli.main import app
from ferrata.cli.plan import plan
from ferrata.recipe import Recipe
from ferrata.training.remarks import remarks

TIERS = ["env.tiers=[1,2,3]", "ladder.enabled=true", "rollout.max_turns=100"]


def recipe(*overrides: str) -> Recipe:
    return load_recipe("office-smoke", [*TIERS, *overrides])


@pytest.mark.parametrize(
    ("updates", "ahead", "opened"), [(21, 0, 0), (20, 0, 2), (10, 0, 1), (1, 1, 1), (22, 1, 0), (21, 1, 2), (11, 1, 1)]
)
def test_a_run_that_is_too_short_for_its_ladder_is_told(updates: int, ahead: int, opened: int) -> None:
    settings = [f"rl.updates={updates}", f"rl.staleness={ahead}", "evaluation.every=10", "ladder.evaluations=1"]
    expected = (
        "A rung of the ladder takes 10 updates at least (evaluation.every x ladder.evaluations), so with rl.updates = "
        f"{updates} it opens {opened} of 3 tiers at most: {21 + ahead} updates are the fewest in which all are played."
    )
    assert remarks(recipe(*settings)) == [expected] * bool(opened)


def test_what_begins_after_the_end_is_told() -> None:
    phases = 'rewards.phases=[{name="soon", from_update=3}, {name="late", from_update=31}]'
    told = remarks(recipe("rl.updates=30", "ladder.schedule=[30,31]", phases))
    assert told == [
        "The ladder's schedule opens a tier at update 31, but rl.updates = 30.",
        "Reward phase 'late' begins at update 31, but rl.updates = 30.",
    ]
    assert remarks(recipe("rl.updates=31", "ladder.schedule=[30,31]", phases)) == []


@pytest.mark.parametrize(("updates", "told"), [(2, True), (3, False)])
def test_a_run_that_ends_while_the_value_head_warms_up_is_told(updates: int, told: bool) -> None:
    ppo = load_recipe("office-smoke", ["rl.algorithm=ppo", f"rl.updates={updates}"])
    expected = (
        "The policy will not change: in the first rl.value.warmup = 2 updates the value head learns alone, and "
        f"rl.updates = {updates}."
    )
    assert remarks(ppo) == [expected] * told
    steps = (updates - 2) * ppo.rl.epochs * ppo.rl.minibatches
    assert f"{updates} updates, {steps} optimizer steps" in dict(plan(ppo)).values()
    assert remarks(load_recipe("office-smoke", [f"rl.updates={updates}"])) == []


@pytest.mark.parametrize(("algorithm", "told"), [("ppo", True), ("reinforce++", True), ("grpo", False)])
def test_replacing_groups_that_teach_is_told(algorithm: str, told: bool) -> None:
    found = remarks(load_recipe("office-smoke", [f"rl.algorithm={algorithm}", "rl.redraws=2", "rl.updates=9"]))
    assert len(found) == told
    assert all(f"rl.algorithm = '{algorithm}' learns from every group" in text for text in found)


def test_without_rl_nothing_is_said_of_it() -> None:
    assert remarks(load_recipe("office-smoke", ['stages=["sft"]', "rl.algorithm=ppo", "rl.redraws=1"])) == []


def test_a_ladder_whose_last_cap_is_too_low_for_the_tasks_is_told_in_a_dry_run(tmp_path: Path) -> None:
    settings = ["rollout.max_turns=60", "ladder.enabled=true", "ladder.turn_caps=[2]", "policy.threads=1"]
    result = CliRunner().invoke(app, ["train", "office-smoke", *settings, "--out", str(tmp_path / "run"), "--dry-run"])
    told = [
        line for line in result.output.splitlines() if "ladder.turn_caps, 2, and no training episode can be" in line
    ]
    assert len(told) == 1
    assert "fits into these budgets" not in result.output
    plain = CliRunner().invoke(
        app, ["train", "office-smoke", *settings, "ladder.enabled=false", "--out", str(tmp_path / "run"), "--dry-run"]
    )
    assert "fits into these budgets" in plain.output


@pytest.mark.parametrize(
    ("overrides", "amount"),
    [
        (["env.tiers=[1]", "ladder.turn_caps=[30,60]"], "no further tier; turn cap 30, 60"),
        (["ladder.schedule=[5,9]"], "a further tier at update 5, 9"),
        (["evaluation.every=1", "ladder.evaluations=1"], "a further tier after 1 update at the soonest"),
        (["evaluation.every=3", "ladder.evaluations=2"], "a further tier after 6 updates at the soonest"),
    ],
)
def test_the_plan_says_when_the_ladder_can_climb(overrides: list[str], amount: str) -> None:
    assert dict(plan(recipe(*overrides)))["ladder"] == amount
