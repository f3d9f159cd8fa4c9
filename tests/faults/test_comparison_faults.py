"""Faults of peers in what is compared with what, by their number in the list of faults: groups (11 and 12), groups that
say nothing (13), and states (26)."""

import copy
import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from ferrata.learning.batch import Example
from ferrata.learning.preparation import prepare

from .small_learner import EVERY, POLICY, advantages, episode, gradient, group, learner_of, section

# Groups --------------------------------------------------------------------------------------------------------------

RAGGED = some.lists(some.lists(some.floats(-5, 5), min_size=1, max_size=5), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(RAGGED, some.sampled_from(["grpo", "rloo", "gigpo"]), some.booleans())
def test_fault_11_groups_of_any_size_are_compared_within_and_with_nobody_else(
    rewards: list[list[float]], algorithm: str, normalise: bool
) -> None:
    """One after the other or all together: the same advantages, of mean zero, and none for a member without others."""
    chosen = section(algorithm, normalise=normalise)
    groups = [
        group(*(episode(reward, seed=10 * g + i) for i, reward in enumerate(members)))
        for g, members in enumerate(rewards)
    ]
    together = advantages(groups, chosen)
    apart = [found for one in groups for found in advantages([one], chosen)]
    assert together == apart
    for one in groups:
        found = advantages([one], chosen)
        assert len(found) in (0, len(one.trajectories))
        assert len(one.trajectories) > 1 or not found
        assert sum(each[0] for each in found) == pytest.approx(0.0, abs=1e-5)


@EVERY
def test_fault_11_a_member_without_others_is_counted_and_harms_nothing(algorithm: str) -> None:
    chosen = section(algorithm)
    examples, counts = prepare([group(episode(3.0))], chosen, learner_of(chosen).score)
    assert counts["groups/too_small"] == 1.0
    assert all(math.isfinite(a) for example in examples for a in example.advantages)
    metrics = learner_of(chosen, copy.deepcopy(POLICY)).update(examples, random.Random(0))
    assert metrics["rl/steps_skipped"] == 0.0


@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
@given(some.lists(some.tuples(some.floats(-5, 5), some.integers(1, 6), some.integers(1, 3)), min_size=2, max_size=6))
@settings(max_examples=30, deadline=None)
def test_fault_12_long_episodes_weigh_no_more_in_the_mean_of_their_group(
    algorithm: str, members: list[tuple[float, int, int]]
) -> None:
    """Neither more turns nor more ids change what the group says of its members."""
    chosen = section(algorithm)
    long = group(
        *(
            episode(*[0.0] * (turns - 1), reward, sampled=sampled, seed=i)
            for i, (reward, turns, sampled) in enumerate(members)
        )
    )
    short = group(*(episode(reward, seed=i) for i, (reward, _, _) in enumerate(members)))
    assert [found[0] for found in advantages([long], chosen)] == [found[0] for found in advantages([short], chosen)]


def test_fault_12_channels_that_are_added_up_take_nothing_from_the_length_of_episodes() -> None:
    """A success of one turn counts as a failure of nine does, and an outcome that is the same for all as nothing."""
    chosen = section("grpo", channels={"apart": True, "process": 0.0})
    mixed = group(episode(5.0, seed=0), episode(*[0.0] * 8, -1.0, seed=1))
    equal = group(episode({"outcome": -1.0, "process": 0.4}, seed=2), episode(*[0.0] * 3, -1.0, seed=3))
    won, lost, *others = advantages([mixed, equal], chosen)
    assert won[0] == pytest.approx(-lost[0])
    assert len(others) == 2
    assert not any(a for found in others for a in found)


def test_fault_12_each_episode_weighs_the_same_in_the_loss_where_that_is_asked_for() -> None:
    """The gradient of a long episode and a short one is the mean of what each gives alone, as the mean of its ids."""
    short = Example.of(episode(1.0, sampled=1), [1.0])
    long = Example.of(episode(*[0.0] * 5, sampled=4, seed=1), [1.0] * 5)
    both, _ = gradient([short, long], section(aggregation="sequence"))
    alone = [gradient([one], section(aggregation="token"))[0] for one in (short, long)]
    torch.testing.assert_close(both, (alone[0] + alone[1]) / 2, atol=1e-6, rtol=1e-5)


# Degenerate numbers --------------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("noise", [0.0, 1e-15, 1e-4])
def test_fault_13_rewards_equal_but_for_a_residue_say_nothing(algorithm: str, noise: float) -> None:
    """A spread of 1e-4 is no advantage of 4,000. Values that say nothing yet are no difference either."""
    chosen = section(algorithm)
    groups = [group(*(episode(0.1 + 0.2 + noise * i, states="s", seed=i) for i in range(4)))]
    assert all(a == 0.0 for found in advantages(groups, chosen) for a in found) or algorithm == "ppo"
    if algorithm == "ppo":  # Compares with a value, which is zero at the beginning: equal for all, and small.
        assert all(abs(a) < 1.0 for found in advantages(groups, chosen) for a in found)


@EVERY
@settings(max_examples=25, deadline=None)
@given(some.lists(some.floats(-1e4, 1e4), min_size=2, max_size=8), some.floats(0, 1e-3))
def test_fault_13_no_advantage_is_larger_than_the_group_can_say(
    algorithm: str, rewards: list[float], noise: float
) -> None:
    """Whatever the rewards: at most the root of one less than are compared, once for each comparison."""
    chosen = section(algorithm)
    groups = [group(*(episode(r, noise * i, states=f"s{i}", seed=i) for i, r in enumerate(rewards)))]
    compared = len(rewards) * (2 if algorithm in ("ppo", "reinforce++") else 1)
    bound = {"gigpo": 2.0, "rloo": len(rewards) / (len(rewards) - 1)}.get(algorithm, 1.0) * math.sqrt(compared - 1)
    for found in advantages(groups, chosen):
        assert all(abs(a) <= bound + 1e-4 for a in found)


# States --------------------------------------------------------------------------------------------------------------


def test_fault_26_turns_of_one_number_in_different_states_are_not_compared() -> None:
    """In states that nobody else was in, GiGPO says of a turn what GRPO says of its episode."""
    groups = [group(episode(0.0, 3.0, states="ab"), episode(0.0, 0.0, states="cd", seed=1))]
    assert advantages(groups, section("gigpo")) == advantages(groups, section("grpo"))


def test_fault_26_turns_in_one_state_are_compared_whatever_their_number() -> None:
    """One comes to state x a turn later than the other, and does better there."""
    late = episode(0.0, 0.0, 4.0, states="axy")
    early = episode(0.0, 2.0, states="xz", seed=1)
    chosen = section("gigpo", gamma=1.0, normalise=False)
    found = advantages([group(late, early)], chosen)
    episodes = advantages([group(late, early)], section("grpo", normalise=False))
    beyond = [[a - e for a, e in zip(*pair, strict=True)][::2] for pair in zip(found, episodes, strict=True)]
    assert beyond == [[0.0, 1.0, 0.0], [-1.0, 0.0]]


@EVERY
def test_fault_26_a_baseline_is_not_of_the_turns_of_one_number(algorithm: str) -> None:
    """Rewards along the way: where everybody's second turn earns the same, it still counts against the others."""
    rewards = [{"process": 0.0}, {"process": 2.0}]
    chosen = section(algorithm, gamma=0.0, lam=0.0, channels={"apart": True, "process": 1.0, "outcome": 0.0})
    more = [rewards[0], {"process": 2.2}]
    groups = [group(episode(*rewards, {"outcome": 1.0}), episode(*more, {"outcome": 2.0}, seed=1))]
    if algorithm == "ppo":
        chosen = chosen.model_copy(update={"channels": chosen.channels.model_copy(update={"process_lam": 0.0})})
    for found in advantages(groups, chosen):
        assert found[0] < 0.0 < found[2]


@pytest.mark.parametrize("algorithm", ["grpo", "rloo", "gigpo"])
def test_fault_12_episodes_that_earned_the_same_along_the_way_say_nothing_of_it(algorithm: str) -> None:
    """What is left to earn shrinks towards the end of every episode; that is no difference between them."""
    chosen = section(algorithm, gamma=0.9, channels={"apart": True, "process": 1.0, "outcome": 0.0})
    steps = [{"efficiency": -0.1}] * 9
    groups = [group(episode(*steps, {"outcome": 1.0}), episode(*steps, {"outcome": 2.0}, seed=1))]
    assert not any(a for found in advantages(groups, chosen) for a in found)
