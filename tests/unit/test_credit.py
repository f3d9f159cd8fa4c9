"""Credit of turns, in closed form, for every algorithm; and what may not change it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from ferrata.algorithms.credit import Course, Settings, by_turn, gigpo, grpo, ppo, reinforce_pp, rloo, to_go
from ferrata.algorithms.table import ESTIMATORS, PROCESS_ESTIMATORS

PLAIN = Settings(gamma=0.5, lam=0.5, normalise=False, spread_floor=1e-6)


def course(*rewards: float, states: str = "", values: list[float] | None = None, last: float = 0.0) -> Course:
    """An episode whose turns stand in the states named by single letters, each in its own where none are given."""
    named = list(states) or [f"{id(rewards)}-{turn}" for turn in range(len(rewards))]
    return Course(
        torch.tensor(rewards, dtype=torch.float64), named, None if values is None else torch.tensor(values), last
    )


def advantages(estimates: list[list]) -> list[list[list[float]]]:
    return [[estimate.advantages_T.tolist() for estimate in group] for group in estimates]


def test_grpo_gives_every_turn_what_its_episode_gets() -> None:
    group = [course(1.0, 2.0), course(0.0), course(0.0, 0.0, 0.0)]
    assert advantages(grpo([group], PLAIN)) == [[[2.0, 2.0], [-1.0], [-1.0, -1.0, -1.0]]]
    spread = math.sqrt((4 + 1 + 1) / 3)
    normalised = advantages(grpo([group], Settings(normalise=True)))[0]
    assert normalised[0] == pytest.approx([2.0 / spread] * 2)


def test_a_long_episode_weighs_no_more_in_its_group_than_a_short_one() -> None:
    short = [course(3.0), course(0.0), course(0.0)]
    long = [course(1.0, 1.0, 1.0), course(*[0.0] * 9), course(0.0)]
    assert [part[0] for part in advantages(grpo([short], PLAIN))[0]] == [
        part[0] for part in advantages(grpo([long], PLAIN))[0]
    ]


def test_rloo_compares_with_the_others_alone() -> None:
    assert advantages(rloo([[course(4.0), course(1.0), course(1.0, 0.0)]], PLAIN)) == [[[3.0], [-1.5], [-1.5, -1.5]]]


def test_reinforce_compares_returns_with_the_whole_batch() -> None:
    # returns: 1 + .5 * 2 = 2, 2; 0. Their mean over all turns of both groups is 4/3.
    found = advantages(reinforce_pp([[course(1.0, 2.0)], [course(0.0)]], PLAIN))
    assert found[0][0] == pytest.approx([2 / 3, 2 / 3])
    assert found[1][0] == pytest.approx([-4 / 3])


def test_gigpo_adds_the_comparison_of_turns_from_one_state() -> None:
    # Both begin in a; then one is in b and one in c. Returns: (2, 4) and (0, 0); episodes' sums 4 and 0.
    group = [course(0.0, 4.0, states="ab"), course(0.0, 0.0, states="ac")]
    assert advantages(gigpo([group], PLAIN)) == [[[2.0 + 1.0, 2.0], [-2.0 - 1.0, -2.0]]]
    assert advantages(gigpo([group], Settings(gamma=0.5, normalise=False, step_weight=0.0))) == [
        [[2.0, 2.0], [-2.0, -2.0]]
    ]


def test_ppo_is_generalised_advantage_estimation_over_turns() -> None:
    cut = course(1.0, 0.0, values=[0.5, 1.0], last=2.0)
    # deltas: 1 + .5 * 1 - .5 = 1; 0 + .5 * 2 - 1 = 0. advantages: 1 + .25 * 0, 0.
    (estimate,) = ppo([[cut]], PLAIN)[0]
    # They are centred only when they are divided by their spread.
    assert estimate.advantages_T.tolist() == [1.0, 0.0]
    assert estimate.targets_T is not None
    assert estimate.targets_T.tolist() == [1.5, 1.0]
    standard = ppo([[cut]], Settings(gamma=0.5, lam=0.5))[0][0].advantages_T
    assert standard.tolist() == pytest.approx([1.0, -1.0])


def test_rewards_along_the_way_are_compared_by_what_follows() -> None:
    # returns: 1 + .5 * 0, 0; 0, 0 -> mean 1/4
    group = [course(1.0, 0.0), course(0.0, 0.0)]
    assert advantages(to_go([group], PLAIN)) == [[[0.75, -0.25], [-0.25, -0.25]]]


def test_by_turn_nothing_that_comes_later_counts() -> None:
    early, late = course(1.0, 0.0), course(0.0, 9.0)
    assert advantages(by_turn(grpo, [[early, late]], PLAIN)) == [[[-1.5, -2.5], [-2.5, 6.5]]]
    valued = course(1.0, 4.0, values=[0.5, 1.0], last=8.0)
    assert advantages(by_turn(ppo, [[valued]], PLAIN)) == [[[0.5, 3.0]]]


COURSES = some.lists(
    some.lists(some.lists(some.floats(-5, 5, width=32), min_size=1, max_size=5), min_size=0, max_size=4), max_size=4
)


@given(COURSES, some.sampled_from([*ESTIMATORS, "to_go"]), some.booleans())
def test_every_estimate_is_finite_and_has_its_turns(
    rewards: list[list[list[float]]], name: str, normalise: bool
) -> None:
    """Also for groups of one, empty groups and rewards that are equal but for rounding."""
    groups = [
        [course(*episode, states="x" * len(episode), values=[0.0] * len(episode)) for episode in group]
        for group in rewards
    ]
    give = PROCESS_ESTIMATORS["grpo"] if name == "to_go" else ESTIMATORS[name]
    found = give(groups, Settings(normalise=normalise))
    assert [[len(estimate.advantages_T) for estimate in group] for group in found] == [
        [len(episode) for episode in group] for group in rewards
    ]
    assert all(torch.isfinite(estimate.advantages_T).all() for group in found for estimate in group)


@pytest.mark.parametrize("name", ["grpo", "rloo", "gigpo"])
def test_rewards_equal_but_for_rounding_say_nothing(name: str) -> None:
    group = [
        course(0.1, 0.2, states="ab"),
        course(0.3, 0.0, states="ab"),
        course(0.30000000000000004, 0.0, states="ab"),
    ]
    settings = Settings(gamma=1.0, normalise=True)
    found = ESTIMATORS[name]([group], settings)[0]
    episodes = [estimate.advantages_T.tolist()[0] for estimate in found]
    if name != "gigpo":  # The first turns of GiGPO are from one state with different rewards: these do say something.
        assert episodes == [0.0, 0.0, 0.0]
    assert max(map(abs, episodes)) < 2.0
