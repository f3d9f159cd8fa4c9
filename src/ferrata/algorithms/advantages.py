"""Group-relative advantages (GRPO, RLOO, GiGPO), and what kind of spread a group has.

    group_advantages   rewards of one group -> advantages
    GroupSpread        why a group gives a gradient or gives none
    classify_group     rewards and verdicts of one group -> GroupSpread
    leave_one_out      the same against the other members alone (RLOO)
    step_groups        steps of a group, against the steps from the same state (GiGPO)

Shape legend: G = trajectories of the same task and the same initial state. Groups may differ in size: a statistic
is always over the members of one group, one value per trajectory, however many turns or tokens it has.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import torch
from torch import Tensor


class GroupSpread(enum.StrEnum):
    """What the rewards of a group say. Only `MIXED` groups give a gradient."""

    MIXED = "mixed"
    """The rewards differ: some members did better than others."""
    ALL_GOOD = "all_good"
    """Equal rewards, every member succeeded: nothing left to learn from this task."""
    ALL_BAD = "all_bad"
    """Equal rewards, no member succeeded: the task is out of reach."""
    CONSTANT = "constant"
    """Equal rewards although the verdicts differ or are unknown: look at the reward."""
    TOO_SMALL = "too_small"
    """Fewer than two scored members: there is nothing to compare."""


def group_advantages(rewards_G: Tensor, normalise: bool, spread_floor: float) -> Tensor:
    """How much better each member of a group did than the group.

    `A_i = (r_i - mean(r)) / std(r)` when `normalise` (GRPO, Shao et al. 2024, DeepSeekMath, section 4.1.2), else
    `A_i = r_i - mean(r)` (Dr. GRPO, Liu et al. 2025). The standard deviation is that of the population (divisor G), so
    that it exists for every size and `|A_i| <= sqrt(G - 1)` holds without a constant added to the divisor. A group
    whose standard deviation is under `spread_floor` gets zeros: noise is never blown up to advantages of order one.

    Args:
        rewards_G: one finite reward per trajectory.
        normalise: divide by the standard deviation.
        spread_floor: smallest standard deviation that counts as a difference, in units of reward.

    Returns:
        (G,) advantages in float32 that sum to zero.
    """
    assert rewards_G.ndim == 1, "one reward per trajectory"
    if not has_spread(rewards_G, spread_floor):
        return torch.zeros(rewards_G.shape, dtype=torch.float32)
    rewards_G = rewards_G.double()
    centred_G = rewards_G - rewards_G.mean()
    return (centred_G / _spread(rewards_G) if normalise else centred_G).float()


def has_spread(rewards_G: Tensor, spread_floor: float) -> bool:
    """True when a group has two or more members and their rewards really differ."""
    return len(rewards_G) > 1 and float(_spread(rewards_G.double())) >= spread_floor


def classify_group(rewards_G: Tensor, successes: Sequence[bool | None], spread_floor: float) -> GroupSpread:
    """Say whether a group gives a gradient, and if not, why.

    Args:
        rewards_G: one finite reward per trajectory.
        successes: the judge's verdict per trajectory; None when nobody knows.
        spread_floor: as in `group_advantages`.
    """
    assert len(rewards_G) == len(successes), "one verdict per reward"
    if len(successes) < 2:
        return GroupSpread.TOO_SMALL
    if has_spread(rewards_G, spread_floor):
        return GroupSpread.MIXED
    if all(success is True for success in successes):
        return GroupSpread.ALL_GOOD
    return GroupSpread.ALL_BAD if all(success is False for success in successes) else GroupSpread.CONSTANT


def _spread(rewards_G: Tensor) -> Tensor:
    """Standard deviation of the population: the root of the mean squared distance to the mean."""
    return rewards_G.std(correction=0)


# Other baselines --------------------------------------------------------------------------------------------------


def leave_one_out(rewards_G: Tensor, normalise: bool, spread_floor: float) -> Tensor:
    """How much better each member did than the others (RLOO, Ahmadian et al. 2024, "Back to basics", section 2.2).

    `A_i = r_i - mean_{j != i}(r_j)`, which is `G / (G - 1)` times the distance to the group's mean: an unbiased
    baseline, for it does not contain the member's own reward. Divided by the standard deviation when `normalise`.
    Arguments and floor as in `group_advantages`.
    """
    size = len(rewards_G)
    return group_advantages(rewards_G, normalise, spread_floor) * (size / (size - 1) if size > 1 else 1.0)


def step_groups(
    returns_S: Tensor, states: Sequence[str], episodes: Sequence[int], normalise: bool, spread_floor: float
) -> Tensor:
    """How much better each step of a group's episodes went than the other steps from the same state.

    The step part of GiGPO (Feng et al. 2025, "Group-in-group policy optimization", section 4.2): steps are grouped by
    the state that they were taken in, and each is compared with the mean of its group as in `group_advantages`. A state
    that only one episode was in says nothing, and its steps get zero: compared with itself, an episode that came by
    twice would differ by the discount alone.

    Args:
        returns_S: return from each step on, discounted, over the steps of all members of one group, end to end.
        states: the environment's state hash before each step. Not the observation: two states may look alike. Empty
            where it is not known, as for a turn that a budget cut in its middle: such a step gets zero.
        episodes: number of the episode of each step.
        normalise: as in `group_advantages`.
        spread_floor: as in `group_advantages`.

    Returns:
        (S,) advantages in float32 that sum to zero within each state.
    """
    assert len(returns_S) == len(states) == len(episodes), "one state and one episode per return"
    members: dict[str, list[int]] = {}
    for index, state in enumerate(states):
        if state:
            members.setdefault(state, []).append(index)
    advantages_S = torch.zeros(len(states), dtype=torch.float32)
    for indices in members.values():
        if len({episodes[index] for index in indices}) < 2:
            continue
        advantages_S[indices] = group_advantages(returns_S[indices], normalise, spread_floor)
    return advantages_S
