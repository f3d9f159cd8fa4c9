"""Exact gradients of what else is in the loss: the divergence, and what makes up for an older policy that sampled."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ferrata.algorithms.divergence import k1, k2, k3
from ferrata.algorithms.policy_gradient import clipped_surrogate, token_log_ratio, truncated_weight
from ferrata.learning.courses import Scored

from .every_episode import (
    SKIP,
    Path,
    assert_close,
    expected_gradient,
    gradient_of,
    log_probability,
    paths,
    section,
    table,
)

# The divergence --------------------------------------------------------------------------------------------------


def reference() -> Tensor:
    made = torch.randn((6, 2), generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    return made.log_softmax(dim=1)


def test_the_divergence_taken_off_the_reward_gives_the_gradient_of_both() -> None:
    """RLOO on rewards less k1 follows `J - kl KL(pi || reference)` of whole episodes, without a bias."""
    kl, held, now = 0.7, reference(), table().detach().log_softmax(dim=1)

    def know(path: Path) -> Scored:
        return Scored(torch.stack([(now - held)[step.state, step.action] for step in path.steps]))

    def objective(logprobs: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for path in paths(SKIP):
            nats = log_probability(path, logprobs) - log_probability(path, held)
            chance = log_probability(path, logprobs).exp()
            total = total + chance * (sum(step.reward for step in path.steps) - kl * nats)
        return total

    found = expected_gradient(SKIP, section("rloo", kl=kl, kl_in="reward", kl_estimator="k1"), 2, know)
    assert_close(found, gradient_of(objective))


def _row(formula: Callable[[Tensor], Tensor]) -> Tensor:
    """Gradient of a function of the log-probabilities of one state with four actions."""
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    formula(logits.log_softmax(dim=0)).backward()
    assert logits.grad is not None
    return logits.grad


def test_what_the_estimators_pull_towards_as_a_term_of_the_loss() -> None:
    """On average over the policy's own tokens: k1 nothing, k2 down KL(pi || reference), k3 down KL(reference || pi)."""
    held = torch.tensor([-0.5, 0.4, 0.2, 0.9], dtype=torch.float64).log_softmax(dim=0)

    def pull(estimator: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        return _row(lambda logprobs: (logprobs.detach().exp() * estimator(logprobs, held)).sum())

    assert_close(pull(k1), torch.zeros(4, dtype=torch.float64))
    assert_close(pull(k2), _row(lambda logprobs: (logprobs.exp() * (logprobs - held)).sum()))
    assert_close(pull(k3), _row(lambda logprobs: (held.exp() * (held - logprobs)).sum()))


# Old data --------------------------------------------------------------------------------------------------------

OLD = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
GOOD = torch.tensor([2.0, -1.0], dtype=torch.float64)
"""Advantages of the two arms."""


def _bandit_gradient(formula: Callable[[Tensor], Tensor]) -> Tensor:
    logits = torch.tensor([0.2, -0.1], dtype=torch.float64, requires_grad=True)
    formula(logits.log_softmax(dim=0)).backward()
    assert logits.grad is not None
    return logits.grad


def _wanted() -> Tensor:
    return _bandit_gradient(lambda logprobs: -(logprobs.exp() * GOOD).sum())


def test_the_ratio_makes_up_for_the_policy_that_sampled_as_long_as_nothing_is_clipped() -> None:
    def loss(logprobs: Tensor) -> Tensor:
        return (OLD.exp() * clipped_surrogate(token_log_ratio(logprobs, OLD), GOOD, 0.9, 9.0)).sum()

    assert_close(_bandit_gradient(loss), _wanted())

    def clipped(logprobs: Tensor) -> Tensor:
        return (OLD.exp() * clipped_surrogate(token_log_ratio(logprobs, OLD), GOOD, 0.05, 0.01)).sum()

    assert (_bandit_gradient(clipped) - _wanted()).norm() > 0.1


def test_the_truncated_weight_makes_up_for_an_older_policy_as_long_as_nothing_is_truncated() -> None:
    def loss(logprobs: Tensor, limit: float) -> Tensor:
        start = logprobs.detach()
        weight = truncated_weight(token_log_ratio(start, OLD), limit)
        return (OLD.exp() * weight * clipped_surrogate(token_log_ratio(logprobs, start), GOOD, 0.2, 0.2)).sum()

    assert_close(_bandit_gradient(lambda logprobs: loss(logprobs, 9.0)), _wanted())
    assert (_bandit_gradient(lambda logprobs: loss(logprobs, 1.0)) - _wanted()).norm() > 0.01
