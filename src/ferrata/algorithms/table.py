"""The names by which a recipe selects a formula: one explicit table per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from ferrata.algorithms.advantages import group_advantages
from ferrata.algorithms.divergence import k1, k2, k3
from ferrata.errors import UnknownNameError

Advantage = Callable[[Tensor, bool, float], Tensor]
"""(rewards_G, normalise, spread_floor) -> advantages (G,)"""
Divergence = Callable[[Tensor, Tensor], Tensor]
"""(logprobs_N, reference_logprobs_N) -> divergence per token (N,)"""

ADVANTAGES: Mapping[str, Advantage] = {"grpo": group_advantages}
DIVERGENCES: Mapping[str, Divergence] = {"k1": k1, "k2": k2, "k3": k3}


def advantage(name: str) -> Advantage:
    """The advantage function of an algorithm. Raises `UnknownNameError`."""
    if name not in ADVANTAGES:
        raise UnknownNameError.of("algorithm", name, ADVANTAGES)
    return ADVANTAGES[name]


def divergence(name: str) -> Divergence:
    """An estimator of the KL divergence. Raises `UnknownNameError`."""
    if name not in DIVERGENCES:
        raise UnknownNameError.of("divergence estimator", name, DIVERGENCES)
    return DIVERGENCES[name]
