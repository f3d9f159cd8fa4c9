"""From losses of tokens to the loss of a batch: which tokens weigh how much.

    token_mean      every token weighs the same (DAPO)
    sequence_mean   every episode weighs the same, however long it is (GRPO as published)
    constant        every token weighs the same, with a divisor that does not depend on how long episodes are (Dr. GRPO)

Each gives weights that are known before the first token is scored: `loss = sum_i w_i sum_t L_{i,t} / divisor`, so that
micro-batches add up exactly to the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Weights(NamedTuple):
    """How a batch of episodes is added up."""

    episodes: list[float] | None
    """Weight of the tokens of each episode; None when all have weight 1."""
    divisor: float


def token_mean(counts: Sequence[int], length: int) -> Weights:
    """`w_i = 1`, divided by the number of tokens (Yu et al. 2025, "DAPO", equation 12).

    Args:
        counts: trained tokens of each episode of the batch; at least one is above 0.
        length: the most tokens that an episode can have, for `constant`.
    """
    return Weights(None, float(sum(counts)))


def sequence_mean(counts: Sequence[int], length: int) -> Weights:
    """`w_i = 1 / |o_i|`, divided by the number of episodes (Shao et al. 2024, "DeepSeekMath", equation 3)."""
    return Weights([1.0 / max(count, 1) for count in counts], float(_episodes(counts)))


def constant(counts: Sequence[int], length: int) -> Weights:
    """`w_i = 1`, divided by episodes x `length` (Liu et al. 2025, "Understanding R1-Zero-like training")."""
    return Weights(None, float(_episodes(counts) * length))


def _episodes(counts: Sequence[int]) -> int:
    """Episodes that have a trained token."""
    return sum(count > 0 for count in counts)
