"""Weights of tokens: what each form counts, in closed form."""

from __future__ import annotations

import pytest
import torch

from ferrata.algorithms.aggregation import constant, sequence_mean, token_mean
from ferrata.algorithms.policy_gradient import sequence_log_ratio, truncated_weight, value_loss

COUNTS = [1, 3, 0, 4]


def test_token_mean_counts_tokens() -> None:
    assert token_mean(COUNTS, 10) == (None, 8.0)


def test_sequence_mean_counts_episodes() -> None:
    weights, divisor = sequence_mean(COUNTS, 10)
    assert weights is not None
    assert divisor == 3.0
    assert [weight * count for weight, count in zip(weights, COUNTS, strict=True)] == [1.0, 1.0, 0.0, 1.0]


def test_constant_does_not_depend_on_how_long_episodes_are() -> None:
    assert constant(COUNTS, 10) == constant([1, 1, 0, 1], 10) == (None, 30.0)


def test_one_ratio_for_a_whole_episode() -> None:
    log_ratio = torch.tensor([0.2, 0.1, 0.0, -0.4], requires_grad=True)
    ratio = sequence_log_ratio(log_ratio, [1, 3])
    assert ratio.tolist() == pytest.approx([0.2, -0.1, -0.1, -0.1])
    (ratio * torch.tensor([0.0, 3.0, 0.0, -1.0])).sum().backward()
    assert log_ratio.grad is not None
    assert log_ratio.grad.tolist() == pytest.approx([0.0, 3.0, 0.0, -1.0]), "each turn keeps its own credit"


def test_old_data_weighs_at_most_the_limit_and_carries_no_gradient() -> None:
    log_ratio = torch.tensor([-1.0, 0.0, 3.0], requires_grad=True)
    weight = truncated_weight(log_ratio, 2.0)
    assert weight.tolist() == pytest.approx([0.36787944, 1.0, 2.0])
    assert not weight.requires_grad


def test_the_value_loss_is_the_worse_of_clipped_and_plain() -> None:
    values = torch.tensor([0.0, 2.0, 2.0])
    old, targets = torch.zeros(3), torch.tensor([1.0, 1.0, 3.0])
    # unclipped: 1, 1, 1; clipped at 0.5: (0 - 1)^2, (0.5 - 1)^2, (0.5 - 3)^2
    assert value_loss(values, old, targets, clip=0.5).tolist() == [0.5, 0.5, 3.125]
