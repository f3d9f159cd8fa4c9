"""Rewards come from events, by component, and the outcome dominates."""

import pytest

from ferrata.errors import TaskError
from ferrata.recipe import RewardSection
from ferrata.records import Event, EventKind, Task
from ferrata.rewards import RewardSpec


def task_with(subgoals: int, key_steps: tuple[str, ...] = ()) -> Task:
    names = tuple(f"s{i}" for i in range(subgoals))
    return Task("office", "report", 2, "train", "do it", {}, names, 20, key_steps=key_steps)


def test_components_by_hand() -> None:
    spec = RewardSpec()
    events = [Event(EventKind.STEP), Event(EventKind.SUBGOAL, "a"), Event(EventKind.SUBGOAL, "b")]
    assert spec(events) == {"efficiency": -0.01, "process": pytest.approx(0.16)}
    assert spec([Event(EventKind.STEP), Event(EventKind.INVALID, "no_json")]) == {"efficiency": -0.01, "invalid": -0.2}
    assert spec([Event(EventKind.FORBIDDEN, "x")]) == {"safety": -10.0}
    assert spec([Event(EventKind.TOOL_COST, "x", 0.3)]) == {"tool_cost": pytest.approx(-0.3)}
    assert spec([Event(EventKind.UNFINISHED)]) == {"unfinished": -1.5}
    assert spec([Event(EventKind.TOOL_ERROR, "x")]) == {}


def test_every_outcome_beats_every_loophole() -> None:
    section = RewardSection()
    assert section.success > 0 > section.failure > section.unfinished > section.safety


def test_process_reward_that_outweighs_the_outcome_is_refused_with_the_sums() -> None:
    RewardSpec().check_dominance([task_with(12)])
    with pytest.raises(TaskError, match=r"13 subgoals x 0.08 = 1.04, more than 20% of the success reward 5.0 = 1.00"):
        RewardSpec().check_dominance([task_with(13)])
    RewardSpec().check_dominance([task_with(13, key_steps=("s1", "s2"))])


def test_the_version_follows_the_weights() -> None:
    assert RewardSpec().version == RewardSpec(RewardSection()).version
    assert RewardSpec().version != RewardSpec(RewardSection(process=0.07)).version
