"""Expected gradients of every algorithm, by enumerating all episodes, against the exact policy gradient.

The policy is a table of logits. `J = sum_paths p(path) R(path)` is differentiated as it stands; the expectation of what
an algorithm would do is the sum over every batch that can be sampled, weighted by its probability. Nothing is sampled,
so what is said to be exact is exact, and what is biased is shown to be so, by how much.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from ferrata.algorithms.aggregation import constant, sequence_mean, token_mean
from ferrata.learning.courses import Scored

from .every_episode import (
    BANDIT,
    SKIP,
    WALK,
    Path,
    World,
    assert_close,
    exact_gradient,
    expected_gradient,
    gradient_of,
    log_probability,
    paths,
    section,
    skip,
    table,
    values,
)


def test_the_exact_gradient_of_the_bandit_by_hand() -> None:
    # J = p r0 + (1 - p) r1: dJ/dl0 = p (1 - p) (r0 - r1) = -dJ/dl1
    p = table().detach()[0].softmax(dim=0)[0].item()
    expected = torch.zeros(6, 2, dtype=torch.float64)
    expected[0] = torch.tensor([2.0, -2.0]) * p * (1 - p)
    assert_close(exact_gradient(BANDIT), expected)
    assert len(paths(SKIP)) == 13
    assert len(paths(WALK)) == 8
    assert {len(path.steps) for path in paths(SKIP)} == {2, 3, 4, 5, 6}


WORLDS = pytest.mark.parametrize("world", [BANDIT, SKIP, WALK], ids=["bandit", "skip", "walk"])


@WORLDS
@pytest.mark.parametrize("size", [2, 3])
def test_rloo_is_unbiased(world: World, size: int) -> None:
    """The baseline of a member does not contain its own reward."""
    assert_close(expected_gradient(world, section("rloo"), size), exact_gradient(world))


@WORLDS
@pytest.mark.parametrize("size", [2, 3])
def test_grpo_without_a_divisor_has_the_right_direction_and_a_known_length(world: World, size: int) -> None:
    """Each member is a part of its own baseline: the gradient is shorter by `(G - 1) / G`, and nothing else."""
    assert_close(expected_gradient(world, section("grpo"), size), exact_gradient(world) * (size - 1) / size)


def test_grpo_with_a_divisor_has_another_direction() -> None:
    """Dividing by the spread of each group weighs the groups: rare differences count as much as large ones (Dr. GRPO).

    So for groups of three; for two, an advantage is 1 or -1 whatever the difference.
    """
    found, exact = expected_gradient(SKIP, section("grpo", normalise=True), 3), exact_gradient(SKIP)
    assert _bend(found, exact) > BENT


def test_only_the_constant_divisor_keeps_the_direction_where_episodes_differ_in_length() -> None:
    exact, chosen = exact_gradient(SKIP), section("rloo")
    assert _bend(expected_gradient(SKIP, chosen, 2, weigh=constant), exact) < STRAIGHT
    for weigh in (sequence_mean, token_mean):
        assert _bend(expected_gradient(SKIP, chosen, 2, weigh=weigh), exact) > BENT
    for weigh in (sequence_mean, token_mean):  # Where all are of one length, all three are the same but for a factor.
        assert _bend(expected_gradient(WALK, chosen, 2, weigh=weigh), exact_gradient(WALK)) < STRAIGHT


STRAIGHT, BENT = 1e-9, 1e-4


def _bend(found: Tensor, exact: Tensor) -> float:
    """One minus the cosine of the angle between two gradients."""
    return 1.0 - float((found * exact).sum() / (found.norm() * exact.norm()))


@pytest.mark.parametrize("size", [2, 3])
def test_reinforce_on_the_bandit_is_shorter_by_its_own_part_in_the_mean(size: int) -> None:
    found = expected_gradient(BANDIT, section("reinforce++"), size)
    assert_close(found, exact_gradient(BANDIT) * (size - 1) / size)


def test_the_bias_of_reinforce_falls_with_the_size_of_the_batch() -> None:
    """The mean over B episodes of one length holds the episode's own returns: what it does is `g - c / B` exactly."""
    exact = exact_gradient(WALK)
    of_two, of_three = (expected_gradient(WALK, section("reinforce++"), size) for size in (2, 3))
    assert _bend(of_two, exact) > BENT
    assert_close(3 * of_three - 2 * of_two, exact)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_ppo_with_true_values_is_unbiased_for_every_trace(lam: float, size: int) -> None:
    true = values(SKIP)

    def know(path: Path) -> Scored:
        return Scored(values_CT=torch.tensor([[true[step.state] for step in path.steps]]), last_values_C=torch.ones(1))

    assert_close(expected_gradient(SKIP, section("ppo", lam=lam), size, know), exact_gradient(SKIP))


def test_ppo_with_wrong_values_is_unbiased_with_the_full_trace_alone() -> None:
    wrong = [1.0, -2.0, 0.5, 3.0, 0.0, -1.0]

    def know(path: Path) -> Scored:
        return Scored(values_CT=torch.tensor([[wrong[step.state] for step in path.steps]]), last_values_C=torch.ones(1))

    assert_close(expected_gradient(SKIP, section("ppo", lam=1.0), 1, know), exact_gradient(SKIP))
    assert _bend(expected_gradient(SKIP, section("ppo", lam=0.5), 1, know), exact_gradient(SKIP)) > BENT


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_ppo_goes_on_beyond_a_cut_with_the_value_of_the_state_after_it(lam: float) -> None:
    """Cut after two turns, the gradient is that of what would have followed: `sum_t grad log pi Q(s_t, a_t)`."""
    gamma = 0.9
    true, cut = values(SKIP, gamma), World(skip, turns=2)

    def know(path: Path) -> Scored:
        met = torch.tensor([[true[step.state] for step in path.steps]])
        after = 99.0 if path.following is None else true[path.following]  # What follows the end of a task is nothing.
        return Scored(values_CT=met, last_values_C=torch.tensor([after]))

    def improvement(logprobs: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for path in paths(cut):
            for step in path.steps:
                following, reward = skip(step.state, step.action)
                quality = reward + gamma * (0.0 if following is None else true[following])
                chance = log_probability(path, logprobs.detach()).exp()
                total = total + chance * logprobs[step.state, step.action] * quality
        return total

    assert_close(expected_gradient(cut, section("ppo", lam=lam, gamma=gamma), 1, know), gradient_of(improvement))


@pytest.mark.parametrize("size", [2, 3])
def test_gigpo_adds_the_gradient_of_each_state_by_how_many_meet_there(size: int) -> None:
    """Its comparison of turns from one state is the exact gradient of that state's row, times what is left of it.

    A member is a part of its own baseline here too: of n members that meet in a state, `(n - 1) / n` is left, on
    average over the others, who come there with the state's probability.
    """
    chance = _visits(SKIP)
    left = torch.zeros(6, 1, dtype=torch.float64)
    for state in range(6):
        for others in itertools.product((0, 1), repeat=size - 1):
            weight = torch.tensor([chance[state] if comes else 1 - chance[state] for comes in others]).prod()
            left[state] += weight * sum(others) / (1 + sum(others))
    exact = exact_gradient(SKIP)
    of_episodes = exact * (size - 1) / size
    assert_close(expected_gradient(SKIP, section("gigpo", step_weight=0.0), size), of_episodes)
    assert_close(expected_gradient(SKIP, section("gigpo", step_weight=0.5), size), of_episodes + 0.5 * left * exact)


def _visits(world: World) -> list[float]:
    """Probability that an episode comes to each state; it comes at most once."""
    logprobs = table().detach().log_softmax(dim=1)
    return [
        sum(
            float(log_probability(path, logprobs).exp())
            for path in paths(world)
            if state in [step.state for step in path.steps]
        )
        for state in range(6)
    ]
