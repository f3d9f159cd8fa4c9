"""Closed-form answers of returns, GAE and the two channels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from ferrata.algorithms.returns import combine_channels, discounted_returns, gae, standardise

STEPS = some.lists(some.floats(-10, 10, width=32), min_size=1, max_size=30)


def test_discounted_returns_by_hand() -> None:
    # 4 + 0 = 4; 2 + 0.5 * 4 = 4; 1 + 0.5 * 4 = 3
    assert discounted_returns(torch.tensor([1.0, 2.0, 4.0]), 0.5).tolist() == [3.0, 4.0, 4.0]
    # A cut goes on with what is expected: 4 + 0.5 * 8 = 8
    assert discounted_returns(torch.tensor([1.0, 2.0, 4.0]), 0.5, last_value=8.0).tolist() == [4.0, 6.0, 8.0]


def test_gae_by_hand() -> None:
    rewards, values = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0.5, 1.0, 1.5])
    # deltas: 1 + .5 * 1 - .5 = 1; 0 + .5 * 1.5 - 1 = -.25; 2 + 0 - 1.5 = .5
    # advantages: .5; -.25 + .25 * .5 = -.125; 1 + .25 * -.125 = .96875
    advantages, targets = gae(rewards, values, gamma=0.5, lam=0.5)
    assert advantages.tolist() == [0.96875, -0.125, 0.5]
    assert targets.tolist() == [1.46875, 0.875, 2.0]
    cut, _ = gae(rewards, values, gamma=0.5, lam=0.5, last_value=1.0)
    assert cut.tolist()[-1] == 1.0, "a truncated episode goes on with the value of the state after it"


@given(STEPS, some.floats(0, 1), some.floats(-5, 5, width=32))
def test_gae_at_its_two_ends(steps: list[float], gamma: float, last: float) -> None:
    rewards = torch.tensor(steps)
    values = torch.linspace(-1, 1, len(steps))
    whole, _ = gae(rewards, values, gamma, 1.0, last)
    torch.testing.assert_close(whole, discounted_returns(rewards, gamma, last) - values, atol=1e-3, rtol=1e-4)
    one_step, _ = gae(rewards, values, gamma, 0.0, last)
    following = torch.cat([values[1:], torch.tensor([last])])
    torch.testing.assert_close(one_step, rewards + gamma * following - values, atol=1e-4, rtol=1e-4)


def test_a_channel_weighs_what_its_weight_says_whatever_its_scale() -> None:
    outcome, process = torch.tensor([3.0, -3.0, -3.0, 3.0]), torch.tensor([-0.01, 0.01, -0.01, 0.01])
    both = combine_channels({"outcome": outcome, "process": process}, {"outcome": 1.0, "process": 0.5}, floor=1e-4)
    assert both.tolist() == pytest.approx([0.5, -0.5, -1.5, 1.5])
    scaled = combine_channels(
        {"outcome": outcome, "process": 1000 * process}, {"outcome": 1.0, "process": 0.5}, floor=1e-4
    )
    torch.testing.assert_close(scaled, both)


def test_a_channel_without_spread_adds_nothing() -> None:
    silent = torch.tensor([1e-7, -2e-7, 1e-7])
    loud = torch.tensor([-1.0, 0.0, 1.0])
    both = combine_channels({"a": loud, "b": silent}, {"a": 1.0, "b": 100.0}, floor=1e-4)
    torch.testing.assert_close(both, loud)


def test_how_few_turns_a_channel_speaks_of_does_not_make_it_louder() -> None:
    everywhere, somewhere = torch.tensor([2.0, -2.0, 2.0, -2.0]), torch.tensor([2.0, -2.0, 0.0, 0.0])
    for channel in (everywhere, somewhere):
        assert combine_channels({"a": channel}, {"a": 1.0}, floor=1e-4).abs().max() == 1.0


def test_a_single_number_has_no_spread() -> None:
    assert standardise(torch.tensor([7.0]), 1e-4).tolist() == [0.0]
