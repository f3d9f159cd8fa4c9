"""A stored trajectory is scored again from its events alone."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ferrata.recipe import RewardSection
from ferrata.records import Event, EventKind, StopReason, Trajectory
from ferrata.rewards import RewardSpec
from ferrata.rewards.rescoring import rescore

Make = Callable[..., Trajectory]


def test_the_same_spec_gives_the_same_rewards(make_trajectory: Make) -> None:
    trajectory = make_trajectory(success=True, turns=4)
    again = rescore(trajectory, RewardSpec())
    assert [turn.components for turn in again.turns] == [turn.components for turn in trajectory.turns]
    assert again.reward == pytest.approx(trajectory.reward)
    assert again.reward_version == RewardSpec().version


def test_another_spec_gives_other_rewards_and_leaves_the_original_alone(make_trajectory: Make) -> None:
    trajectory = make_trajectory(success=False, turns=3, invalid=1)
    before = msgspec.msgpack.encode(trajectory)
    again = rescore(trajectory, RewardSpec(RewardSection(efficiency=-0.1, format=-0.5, failure=-1.2)))
    assert again.reward == pytest.approx(-0.3 - 0.5 - 1.2)
    assert again.components == {
        "efficiency": pytest.approx(-0.3),
        "format": pytest.approx(-0.5),
        "outcome": pytest.approx(-1.2),
    }
    assert msgspec.msgpack.encode(trajectory) == before
    assert again.token_ids == trajectory.token_ids


def test_a_subgoal_that_was_rolled_back_and_reached_again_pays_once(make_trajectory: Make) -> None:
    trajectory = make_trajectory(success=True, turns=3)
    reached = Event(EventKind.SUBGOAL, "found")
    turns = [msgspec.structs.replace(turn, events=(*turn.events, reached)) for turn in trajectory.turns]
    again = rescore(msgspec.structs.replace(trajectory, turns=turns), RewardSpec())
    assert again.components["process"] == 0.08


@pytest.mark.parametrize("stop", [StopReason.ENV_ERROR, StopReason.JUDGE_ERROR, StopReason.TIMEOUT])
def test_what_nobody_could_judge_stays_unscored(make_trajectory: Make, stop: StopReason) -> None:
    trajectory = msgspec.structs.replace(make_trajectory(success=None, stop=stop), reward=None)
    assert rescore(trajectory, RewardSpec()).reward is None


def test_the_judges_part_of_the_version_is_kept(make_trajectory: Make) -> None:
    trajectory = msgspec.structs.replace(make_trajectory(), reward_version="old+judge")
    assert rescore(trajectory, RewardSpec()).reward_version == f"{RewardSpec().version}+judge"
