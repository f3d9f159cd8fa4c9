"""Weights change with the training phase, and weights that make no sense are refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrata.errors import RecipeError, TaskError
from ferrata.recipe import RewardPhase, RewardSection
from ferrata.recipe_loading import dump_recipe, load_recipe
from ferrata.records import Event, EventKind, Task
from ferrata.rewards import RewardSpec

PHASES = """
[rewards]
process = 0.0

[[rewards.phases]]
name = "process"
from_update = 10
process = 0.08

[[rewards.phases]]
name = "efficiency"
from_update = 30
efficiency = -0.05
"""
STEP = [Event(EventKind.STEP), Event(EventKind.SUBGOAL, "a")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "phased.toml"
    path.write_text(PHASES)
    return path


@pytest.fixture
def spec(file: Path) -> RewardSpec:
    return RewardSpec(load_recipe(str(file)).rewards)


@pytest.mark.parametrize(
    ("update", "phase", "components"),
    [
        (0, "", {"efficiency": -0.01, "process": 0.0}),
        (9, "", {"efficiency": -0.01, "process": 0.0}),
        (10, "process", {"efficiency": -0.01, "process": 0.08}),
        (29, "process", {"efficiency": -0.01, "process": 0.08}),
        # What a phase leaves out is as in [rewards], not as in the phase before it.
        (30, "efficiency", {"efficiency": -0.05, "process": 0.0}),
        (10**6, "efficiency", {"efficiency": -0.05, "process": 0.0}),
    ],
)
def test_the_weights_are_those_of_the_phase(
    spec: RewardSpec, update: int, phase: str, components: dict[str, float]
) -> None:
    assert spec.at(update).phase == phase
    assert spec.at(update)(STEP) == components


def test_each_phase_has_a_version_of_its_own_that_depends_on_its_weights_alone(spec: RewardSpec) -> None:
    versions = [spec.at(update).version for update in (0, 10, 30)]
    assert len(set(versions)) == 3
    assert spec.version == versions[0] == RewardSpec(RewardSection(process=0.0)).version
    assert versions[1] == RewardSpec().version
    assert [phase.version for phase in spec.all_phases] == versions


def test_dominance_is_checked_in_every_phase() -> None:
    section = RewardSection(phases=(RewardPhase(name="late", from_update=5, process=0.3),))
    task = Task("office", "report", 2, "train", "do it", {}, ("a", "b", "c", "d"), 20)
    with pytest.raises(TaskError, match=r"in phase 'late': 4 subgoals x 0.3 = 1.20, more than 20% .* = 1.00"):
        RewardSpec(section).check_dominance([task])
    RewardSpec(RewardSection()).check_dominance([task])


def test_a_recipe_with_phases_reads_back_as_itself(file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(str(file))
    copy = tmp_path / "copy.toml"
    copy.write_text(dump_recipe(recipe))
    assert load_recipe(str(copy)) == recipe
    assert load_recipe("office-smoke", ['rewards.phases=[{name="x", from_update=2, repeat=-1}]']).rewards.phases == (
        RewardPhase(name="x", from_update=2, repeat=-1.0),
    )


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("rewards.success=-1", "rewards.success = -1.0 must be greater than 0."),
        ("rewards.failure=3", "Wrong value for 'rewards.failure': 3; expected a number of at most 0."),
        ("rewards.unfinished=0.1", "Wrong value for 'rewards.unfinished': 0.1; expected a number of at most 0."),
        ("rewards.safety=1", "Wrong value for 'rewards.safety': 1; expected a number of at most 0."),
        (
            "rewards.unfinished=-0.5",
            "rewards.failure = -1.0 must be at least rewards.unfinished = -0.5: never submitting",
        ),
        ("rewards.safety=-0.5", "rewards.failure = -1.0 must be at least rewards.safety = -0.5: a forbidden operation"),
        (
            'rewards.phases=[{name="x", from_update=2, success=0.5, failure=0.5}]',
            "Wrong value for 'rewards.phases.0.failure': 0.5; expected a number of at most 0.",
        ),
        (
            'rewards.phases=[{name="x", from_update=4}, {name="y", from_update=4}]',
            "Reward phase 'y' begins at update 4, not after phase 'x' at 4",
        ),
        (
            'rewards.phases=[{name="x", from_update=4}, {name="x", from_update=5}]',
            "Two reward phases have the same name",
        ),
        (
            'rewards.phases=[{name="x", from_update=4, proces=0.1}]',
            "Unknown key 'rewards.phases.0.proces'. Did you mean 'process'?",
        ),
        (
            'rewards.phases=[{name="x", from_update=0}]',
            "Wrong value for 'rewards.phases.0.from_update': 0; expected a number greater than 0.",
        ),
        ('rewards.phases=[{name="x"}]', "Key 'rewards.phases.0.from_update' is missing."),
        (
            'rewards.phases=[{name="x", from_update=1, efficiency=1}]',
            "Wrong value for 'rewards.phases.0.efficiency': 1; expected a number of at most 0.",
        ),
        ("rewards.format=0.1", "Wrong value for 'rewards.format': 0.1; expected a number of at most 0."),
        ("judge.kind=model", "judge.kind = 'model' needs judge.endpoint"),
    ],
)
def test_weights_that_make_no_sense_are_refused(override: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("office-smoke", [override])
    assert str(caught.value).startswith(sentence)
