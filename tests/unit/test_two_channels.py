"""Process and outcome as two channels: advantages by hand."""

from __future__ import annotations

import pytest
import torch

from ferrata.learning.courses import Scored, turn_estimates
from ferrata.records import StopReason, Trajectory, Turn

from .every_episode import TASK, section


def _two_channels(*turns: tuple[float, float]) -> Trajectory:
    """An episode of turns with (process, outcome)."""
    made = [
        Turn("", "", [1], [-1.0], None, (), {"process": process, "efficiency": 0.0, "outcome": outcome}, f"state {n}")
        for n, (process, outcome) in enumerate(turns)
    ]
    count, reward = len(turns), sum(turn.reward for turn in made)
    zeros = [0.0] * (count + 1)
    return Trajectory(
        TASK, made, [1] * (count + 1), [False] + [True] * count, zeros, StopReason.COMPLETED, None, reward
    )


def test_two_channels_of_ppo_each_with_its_own_trace() -> None:
    """By hand, gamma 1/2. Process, lam 1: returns less values. Outcome, lam 0: one step ahead."""
    traces = {"process_lam": 1.0, "outcome_lam": 0.0}
    chosen = section("ppo", gamma=0.5, channels={"apart": True, "process": 0.5, "outcome": 2.0, **traces})
    episode = _two_channels((1.0, 0.0), (2.0, 4.0))
    known = Scored(values_CT=torch.tensor([[0.0, 1.0], [1.0, 3.0]]), last_values_C=torch.tensor([7.0, 7.0]))
    ((credit,),) = turn_estimates([[episode]], [[known]], chosen)
    # process: returns 2, 2, less values: 2, 1, over their size sqrt(5/2).
    # outcome: 0 + 3/2 - 1 = 1/2, 4 - 3 = 1, over their size sqrt(5/8).
    process, outcome = torch.tensor([2.0, 1.0]) / 2.5**0.5, torch.tensor([0.5, 1.0]) / 0.625**0.5
    assert credit.advantages_T.tolist() == pytest.approx((0.5 * process + 2.0 * outcome).tolist())
    assert credit.targets_CT is not None
    assert credit.targets_CT.tolist() == [[2.0, 2.0], [1.5, 4.0]]


def test_two_channels_of_grpo_process_by_what_follows_and_outcome_by_episode() -> None:
    """By hand, gamma 1: process to go (3, 2) and (0, 0), outcome 4 and 0 in all turns of the episodes."""
    chosen = section("grpo", channels={"apart": True, "process": 0.5, "outcome": 2.0})
    group = [_two_channels((1.0, 0.0), (2.0, 4.0)), _two_channels((0.0, 0.0), (0.0, 0.0))]
    ((first, second),) = turn_estimates([group], [[Scored(), Scored()]], chosen)
    centred = torch.tensor([3.0, 2.0, 0.0, 0.0]) - 1.25
    process = centred / centred.square().mean().sqrt()
    assert first.advantages_T.tolist() == pytest.approx((0.5 * process[:2] + 2.0).tolist())
    assert second.advantages_T.tolist() == pytest.approx((0.5 * process[2:] - 2.0).tolist())
