"""Estimators of `KL(pi || reference)` from tokens that `pi` sampled (Schulman 2020, "Approximating KL divergence").

With `d_t = log reference(a_t) - log pi(a_t)`, all three are per token and near zero when the policies agree:

    k1   -d              unbiased, often negative, large variance; as a loss its expected gradient is zero
    k2   d^2 / 2         biased, never negative; its expected gradient is that of the divergence
    k3   exp(d) - 1 - d  unbiased, never negative, small variance; its expected gradient is that of KL(reference || pi)

Shape legend: N = sampled tokens of a batch, laid end to end. Log-probabilities are in nats.
"""

from __future__ import annotations

from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""`d` is cut here before it is exponentiated, so that the estimate stays finite in float32."""


def k1(logprobs_N: Tensor, reference_logprobs_N: Tensor) -> Tensor:
    """`log pi - log reference`, for reporting."""
    return logprobs_N - reference_logprobs_N


def k2(logprobs_N: Tensor, reference_logprobs_N: Tensor) -> Tensor:
    """Half the squared log-ratio."""
    return (logprobs_N - reference_logprobs_N).square() / 2


def k3(logprobs_N: Tensor, reference_logprobs_N: Tensor) -> Tensor:
    """`exp(d) - 1 - d`: the log-ratio with a control variate of mean zero."""
    difference_N = (reference_logprobs_N - logprobs_N).clamp(max=LOG_RATIO_LIMIT)
    return difference_N.expm1() - difference_N
