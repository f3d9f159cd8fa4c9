"""From losses of tokens to the loss of a batch: which tokens weigh how much.

    token_mean      every token weighs the same (DAPO)
    sequence_mean   every episode weighs the same, however long it is (GRPO as published)
    constant        every token weighs 1 / (episodes x length), whatever was sampled (Dr. GRPO)

Each gives a weight per token, so that the loss is `sum_t w_t L_t` and micro-batches add up exactly to the whole.

Shape legend: B = episodes of a minibatch, N = their trained tokens, laid end to end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def token_mean(counts: Sequence[int], length: int) -> Tensor:
    """`w_t = 1 / N` (Yu et al. 2025, "DAPO", equation 12).

    Args:
        counts: trained tokens of each of the B episodes, in order.
        length: not used here; the longest that an episode's trained part may be, for `constant`.

    Returns:
        (N,) weights in float32.
    """
    total = sum(counts)
    return torch.full((total,), 1.0 / total)


def sequence_mean(counts: Sequence[int], length: int) -> Tensor:
    """`w_t = 1 / (B |o_i|)`, with the trained tokens of the token's own episode (Shao et al. 2024, equation 3)."""
    episodes = sum(count > 0 for count in counts)
    return torch.cat([torch.full((count,), 1.0 / (episodes * count)) for count in counts if count])


def constant(counts: Sequence[int], length: int) -> Tensor:
    """`w_t = 1 / (B length)`: long and short answers have the same weight per token (Liu et al. 2025, "Dr. GRPO").

    As `token_mean`, but with a divisor that does not depend on what was sampled, so that the gradient is unbiased.
    """
    episodes = sum(count > 0 for count in counts)
    return torch.full((sum(counts),), 1.0 / (episodes * length))
