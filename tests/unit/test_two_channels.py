"""Process and outcome as two channels: advantages by hand."""

from __future__ import annotations

import pytest
import torch

from ferrata.learning.courses import Scored, turn_estimates
from ferrata.records import StopReason, Trajectory, Turn

from .every_episode import TASK, section


def _two_channels(*turns: tuple[float, float], unfinished: float = 0.0) -> Trajectory:
    """An episode of turns with (process, outcome); one with a penalty for the cut was cut."""
    made = [
        Turn("", "", [1], [-1.0], None, (), {"process": process, "efficiency": 0.0, "outcome": outcome}, f"state {n}")
        for n, (process, outcome) in enumerate(turns)
    ]
    made[-1].components["unfinished"] = unfinished
    count, reward = len(turns), sum(turn.reward for turn in made)
    stop, mask = StopReason.MAX_TURNS if unfinished else StopReason.COMPLETED, [False] + [True] * count
    return Trajectory(TASK, made, [1] * (count + 1), mask, [0.0] * (count + 1), stop, None, reward)


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


def test_what_follows_a_cut_is_worth_something_else_in_each_channel() -> None:
    """By hand, gamma 1/2, full traces: what follows takes the place of the penalty, in the outcome alone."""
    channels = {"apart": True, "process": 1.0, "outcome": 1.0, "process_lam": 1.0, "outcome_lam": 1.0}
    chosen, cut = section("ppo", gamma=0.5, channels=channels), _two_channels((1.0, 0.0), (2.0, 0.0), unfinished=-1.5)
    values = torch.zeros(2, 2)
    ((on,),) = turn_estimates([[cut]], [[Scored(values_CT=values, last_values_C=torch.tensor([4.0, -8.0]))]], chosen)
    assert on.targets_CT is not None
    assert on.targets_CT.tolist() == [[3.0, 4.0], [-2.0, -4.0]]
    ((over,),) = turn_estimates([[cut]], [[Scored(values_CT=values)]], chosen)
    assert over.targets_CT is not None
    assert over.targets_CT.tolist() == [[2.0, 2.0], [-0.75, -1.5]], (
        "where nobody knows what follows, the penalty stands"
    )


def test_a_cut_in_one_channel() -> None:
    chosen, cut = section("ppo", gamma=0.5, lam=1.0), _two_channels((1.0, 0.0), (2.0, 0.0), unfinished=-1.5)
    for after, targets in ((torch.tensor([4.0]), [[3.0, 4.0]]), (None, [[1.25, 0.5]])):
        ((credit,),) = turn_estimates([[cut]], [[Scored(values_CT=torch.zeros(1, 2), last_values_C=after)]], chosen)
        assert credit.targets_CT is not None
        assert credit.targets_CT.tolist() == targets
