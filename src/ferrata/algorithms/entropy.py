"""Entropy of the next-token distribution. Shape legend: N = tokens, V = vocabulary."""

from __future__ import annotations

from torch import Tensor


def entropy(log_distribution_NV: Tensor) -> Tensor:
    """`H = -sum_v p_v log p_v` in nats, from normalised log-probabilities (the output of `log_softmax`).

    Working on `log_softmax` keeps it finite and accurate for logits of any finite size; a probability that underflows
    to zero contributes zero.

    Returns:
        (N,) entropies between 0 and log V.
    """
    return -(log_distribution_NV.exp() * log_distribution_NV).sum(dim=-1)
