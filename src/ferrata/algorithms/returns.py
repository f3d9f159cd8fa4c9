"""Returns and advantages along one episode, turn by turn, or token by token.

    discounted_returns   G_t = r_t + gamma G_{t+1}
    gae                  generalised advantage estimation, with the value of the state after a cut
    combine_channels     process and outcome, each scaled to size 1 over the batch, added by weight

Shape legend: T = steps of one episode (turns, or tokens). Time index t counts from 0; `rewards_T[t]` is what the action
at t brought. An episode *terminates* when the task ends it: nothing follows. It is *truncated* when a budget cuts it:
what would have followed is estimated by `last_value`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def discounted_returns(rewards_T: Tensor, gamma: float, last_value: float = 0.0) -> Tensor:
    """`G_t = r_t + gamma G_{t+1}`, with `G_T = last_value`.

    Args:
        rewards_T: reward of each step.
        gamma: discount per step, 0 to 1.
        last_value: estimated return after the last step; 0.0 where the task itself ended.

    Returns:
        (T,) returns in float32; computed in double precision.
    """
    returns_T, following = torch.empty(len(rewards_T), dtype=torch.float64), float(last_value)
    for t in range(len(rewards_T) - 1, -1, -1):
        following = float(rewards_T[t]) + gamma * following
        returns_T[t] = following
    return returns_T.float()


def gae(
    rewards_T: Tensor, values_T: Tensor, gamma: float, lam: float, last_value: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (Schulman et al. 2016, "High-dimensional continuous control", equation 16).

    `delta_t = r_t + gamma V_{t+1} - V_t`, `A_t = delta_t + gamma lam A_{t+1}`, with `V_T = last_value`, `A_T = 0`.
    `lam` 1 gives `G_t - V_t`, `lam` 0 gives `delta_t`.

    Args:
        rewards_T: reward of each step.
        values_T: estimated return from each step on, before its action.
        gamma: discount per step, 0 to 1.
        lam: how far ahead rewards are believed rather than values, 0 to 1.
        last_value: estimated return after the last step; 0.0 where the task itself ended.

    Returns:
        (T,) advantages, and (T,) the targets of the value function, `A_t + V_t`; float32, computed in double precision.
    """
    assert rewards_T.shape == values_T.shape, "one value per reward"
    rewards, values = rewards_T.double(), values_T.double()
    following_T = torch.cat([values[1:], values.new_tensor([last_value])])
    deltas_T = rewards + gamma * following_T - values
    advantages_T, ahead = torch.empty_like(deltas_T), 0.0
    for t in range(len(deltas_T) - 1, -1, -1):
        ahead = float(deltas_T[t]) + gamma * lam * ahead
        advantages_T[t] = ahead
    return advantages_T.float(), (advantages_T + values).float()


def standardise(values_N: Tensor, floor: float) -> Tensor:
    """Subtract the mean and divide by the population's standard deviation; zeros where that is under `floor`.

    Args:
        values_N: numbers of one batch.
        floor: smallest standard deviation that counts as a difference, in the unit of the values.
    """
    exact_N = values_N.double()
    spread = exact_N.std(correction=0) if len(exact_N) > 1 else exact_N.new_zeros(())
    if float(spread) < floor:
        return torch.zeros_like(values_N, dtype=torch.float32)
    return ((exact_N - exact_N.mean()) / spread).float()


def combine_channels(advantages: Mapping[str, Tensor], weights: Mapping[str, float], floor: float) -> Tensor:
    """The advantage of several channels of reward, such as process and outcome.

    `A = sum_c w_c A_c / rms(A_c)`: each channel weighs what its weight says, whatever the scale of its rewards. A
    channel without spread says nothing and adds nothing; where only some turns have an advantage, their size counts,
    not how few they are. What comes in has a baseline of its own already.
    Subtracting the mean over turns once more would make long episodes weigh more, and give an advantage to groups
    without spread.

    Args:
        advantages: channel -> (N,) advantages over the whole batch.
        weights: channel -> weight; one for each channel.
        floor: smallest root mean square that counts as a difference.
    """
    assert advantages.keys() == weights.keys(), "one weight per channel"
    parts = [weights[name] * _scaled(values_N, floor) for name, values_N in advantages.items()]
    return torch.stack(parts).sum(dim=0)


def _scaled(values_N: Tensor, floor: float) -> Tensor:
    """Divide by the root mean square of what is not zero; zeros where that is under `floor`."""
    exact_N = values_N.double()
    said = exact_N[exact_N != 0.0]
    size = said.square().mean().sqrt() if len(said) else exact_N.new_zeros(())
    return (exact_N / size).float() if float(size) >= floor else torch.zeros_like(values_N, dtype=torch.float32)
