"""Closed-form answers of the group statistics, and every way in which a group can be degenerate."""

import math

import pytest
import torch

from ferrata.algorithms.advantages import GroupSpread, classify_group, group_advantages, leave_one_out, step_groups
from ferrata.algorithms.table import DIVERGENCES, ESTIMATORS, PROCESS_ESTIMATORS, divergence, estimator
from ferrata.errors import UnknownNameError


def rewards(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_normalised_advantages_in_closed_form() -> None:
    # mean 2, squared distances 4, 0, 0, 4: population deviation sqrt(2)
    answer = group_advantages(rewards(0.0, 2.0, 2.0, 4.0), normalise=True, spread_floor=1e-3)
    torch.testing.assert_close(answer, torch.tensor([-math.sqrt(2), 0.0, 0.0, math.sqrt(2)]))


def test_centred_advantages_keep_the_unit_of_the_reward() -> None:
    answer = group_advantages(rewards(0.0, 2.0, 2.0, 4.0), normalise=False, spread_floor=1e-3)
    assert answer.tolist() == [-2.0, 0.0, 0.0, 2.0]


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_one_success_among_failures_reaches_the_bound_for_every_group_size(size: int) -> None:
    answer = group_advantages(rewards(5.0, *[-1.0] * (size - 1)), normalise=True, spread_floor=1e-3)
    assert answer[0].item() == pytest.approx(math.sqrt(size - 1), rel=1e-6)
    assert answer.sum().item() == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(
    "values",
    [
        pytest.param([], id="empty"),
        pytest.param([3.0], id="single member"),
        pytest.param([1.0, 1.0, 1.0], id="constant"),
        pytest.param([0.1 + 0.2, 0.3, 0.3], id="float residue"),
        pytest.param([5.0, 5.0 + 1e-4, 5.0], id="tiny spread"),
    ],
)
def test_groups_without_spread_give_exact_zeros(values: list[float], normalise: bool) -> None:
    answer = group_advantages(torch.tensor(values, dtype=torch.float64), normalise, spread_floor=1e-3)
    assert answer.tolist() == [0.0] * len(values)


def test_a_spread_just_above_the_floor_is_bounded() -> None:
    answer = group_advantages(rewards(0.0, 0.0, 0.0, 0.0024), normalise=True, spread_floor=1e-3)
    assert 0 < answer.abs().max().item() <= math.sqrt(3) + 1e-6


@pytest.mark.parametrize(
    ("values", "successes", "kind"),
    [
        ([5.0, -1.0], [True, False], GroupSpread.MIXED),
        ([5.0, 4.9], [True, True], GroupSpread.MIXED),
        ([5.0, 5.0], [True, True], GroupSpread.ALL_GOOD),
        ([-1.0, -1.0], [False, False], GroupSpread.ALL_BAD),
        ([1.0, 1.0], [True, False], GroupSpread.CONSTANT),
        ([1.0, 1.0], [None, None], GroupSpread.CONSTANT),
        ([5.0], [True], GroupSpread.TOO_SMALL),
        ([], [], GroupSpread.TOO_SMALL),
    ],
)
def test_groups_are_classified(values: list[float], successes: list[bool | None], kind: GroupSpread) -> None:
    assert classify_group(torch.tensor(values, dtype=torch.float64), successes, 1e-3) is kind


def test_tables_name_the_nearest_entry() -> None:
    assert estimator("grpo") is ESTIMATORS["grpo"]
    assert estimator("grpo", process=True) is PROCESS_ESTIMATORS["grpo"]
    assert divergence("k3") is DIVERGENCES["k3"]
    with pytest.raises(UnknownNameError, match="'grpo'"):
        estimator("grop")
    with pytest.raises(UnknownNameError, match="divergence estimator 'kl'"):
        divergence("kl")


def test_leave_one_out_is_the_distance_to_the_others() -> None:
    values = rewards(1.0, 2.0, 6.0)
    assert leave_one_out(values, normalise=False, spread_floor=1e-3).tolist() == [-3.0, -1.5, 4.5]
    assert leave_one_out(rewards(3.0), normalise=False, spread_floor=1e-3).tolist() == [0.0]


def test_steps_are_compared_with_steps_from_the_same_state() -> None:
    returns = rewards(1.0, 5.0, 3.0, 7.0, 100.0)
    states, episodes = ["a", "b", "a", "b", "alone"], [0, 0, 1, 1, 1]
    answer = step_groups(returns, states, episodes, normalise=False, spread_floor=1e-3)
    assert answer.tolist() == [-1.0, -1.0, 1.0, 1.0, 0.0]
    normalised = step_groups(returns, states, episodes, normalise=True, spread_floor=1e-3)
    assert normalised.tolist() == [-1.0, -1.0, 1.0, 1.0, 0.0]


def test_turns_whose_state_nobody_knows_are_compared_with_none() -> None:
    returns, states = torch.tensor([1.0, 5.0, 1.0, 3.0]), ["", "", "a", "a"]
    answer = step_groups(returns, states, [0, 1, 0, 1], normalise=False, spread_floor=1e-3)
    assert answer.tolist() == [0.0, 0.0, -1.0, 1.0]


def test_an_episode_that_comes_by_twice_is_not_compared_with_itself() -> None:
    returns, states = rewards(4.0, 5.0, 1.0, 2.0, 6.0), ["a", "a", "b", "b", "b"]
    alone = step_groups(returns, states, [0, 0, 0, 0, 1], normalise=False, spread_floor=1e-3)
    assert alone.tolist() == [0.0, 0.0, -2.0, -1.0, 3.0], "where another one came by as well, every visit counts"
