"""The objective and its parts against values and gradients derived by hand."""

import math

import pytest
import torch

from ferrata.algorithms.divergence import k1, k2, k3
from ferrata.algorithms.entropy import entropy
from ferrata.algorithms.policy_gradient import clip_fraction, clipped_surrogate, token_log_ratio

# ratio, advantage, loss, d loss / d log ratio, clipped; clips 0.2 below and 0.4 above.
# Unclipped: loss -ratio A and, because d ratio / d log ratio = ratio, the same gradient. Clipped: constant.
SURROGATE = [
    (1.0, 2.0, -2.0, -2.0, 0.0),
    (1.3, 2.0, -2.6, -2.6, 0.0),
    (1.5, 2.0, -2.8, 0.0, 1.0),
    (0.5, 2.0, -1.0, -1.0, 0.0),
    (0.9, -2.0, 1.8, 1.8, 0.0),
    (0.5, -2.0, 1.6, 0.0, 1.0),
    (1.5, -2.0, 3.0, 3.0, 0.0),
    (1.5, 0.0, 0.0, 0.0, 0.0),
]


@pytest.mark.parametrize(("ratio", "advantage", "loss", "gradient", "clipped"), SURROGATE)
def test_clipped_surrogate_by_hand(
    ratio: float, advantage: float, loss: float, gradient: float, clipped: float
) -> None:
    log_ratio = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([advantage], dtype=torch.float64)
    value = clipped_surrogate(log_ratio, advantages, clip_low=0.2, clip_high=0.4)
    value.sum().backward()
    assert value.item() == pytest.approx(loss, abs=1e-12)
    assert log_ratio.grad is not None
    assert log_ratio.grad.item() == pytest.approx(gradient, abs=1e-12)
    assert clip_fraction(log_ratio, advantages, 0.2, 0.4).item() == clipped


def test_expected_gradient_of_a_two_armed_bandit_is_exact() -> None:
    # J = p r0 + (1 - p) r1 with p = softmax(l)[0]: dJ/dl0 = p (1 - p) (r0 - r1) = -dJ/dl1, whatever the baseline
    payoff, baseline = torch.tensor([3.0, 1.0]).double(), 0.7
    logits = torch.tensor([0.4, -0.3], dtype=torch.float64, requires_grad=True)
    logprobs = logits.log_softmax(dim=0)
    sampled = logprobs.detach()
    loss = clipped_surrogate(token_log_ratio(logprobs, sampled), payoff - baseline, 0.2, 0.2)
    (sampled.exp() * loss).sum().backward()
    p = sampled[0].exp().item()
    assert logits.grad is not None
    expected = -torch.tensor([p * (1 - p) * 2.0, -p * (1 - p) * 2.0]).double()
    torch.testing.assert_close(logits.grad, expected)


def test_extreme_log_ratios_stay_finite() -> None:
    ratio = token_log_ratio(torch.tensor([0.0, -500.0]), torch.tensor([-500.0, 0.0]))
    assert torch.isfinite(clipped_surrogate(ratio, torch.tensor([-1.0, -1.0]), 0.2, 0.2)).all()
    assert torch.isfinite(k3(torch.tensor([-500.0]), torch.tensor([0.0]))).all()


def test_divergence_estimators_by_hand() -> None:
    # pi(a) = 1/2, reference(a) = 1/4: d = -log 2
    now, reference = torch.tensor([math.log(0.5)]).double(), torch.tensor([math.log(0.25)]).double()
    assert k1(now, reference).item() == pytest.approx(math.log(2))
    assert k2(now, reference).item() == pytest.approx(math.log(2) ** 2 / 2)
    assert k3(now, reference).item() == pytest.approx(0.5 - 1 + math.log(2))


@pytest.mark.parametrize("estimator", [k1, k3])
def test_unbiased_estimators_average_to_the_divergence(estimator) -> None:
    pi, reference = torch.tensor([0.7, 0.2, 0.1]).double(), torch.tensor([0.3, 0.3, 0.4]).double()
    exact = (pi * (pi / reference).log()).sum()
    torch.testing.assert_close((pi * estimator(pi.log(), reference.log())).sum(), exact)


def test_divergence_of_equal_policies_is_zero_with_zero_gradient() -> None:
    for estimator in (k2, k3):
        now = torch.tensor([-1.0, -3.0], requires_grad=True)
        value = estimator(now, now.detach())
        value.sum().backward()
        assert value.tolist() == [0.0, 0.0]
        assert now.grad is not None
        assert now.grad.tolist() == [0.0, 0.0]


def test_entropy_of_known_distributions_and_of_huge_logits() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1e4, 0.0, 0.0, 0.0], [1e4, 1e4, -1e4, -1e4]], requires_grad=True)
    values = entropy(logits.log_softmax(dim=-1))
    values.sum().backward()
    torch.testing.assert_close(values, torch.tensor([math.log(4), 0.0, math.log(2)]))
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
