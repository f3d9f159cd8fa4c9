"""The clipped policy-gradient objective, token by token.

    token_log_ratio    log-probabilities now and then -> log of the importance ratio
    clipped_surrogate  ratio and advantage -> loss per token
    clip_fraction      which tokens the clip silenced

Shape legend: N = sampled tokens of a batch, laid end to end.
"""

from __future__ import annotations

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are cut here, far beyond every clip, so that their exponential stays finite in float32."""


def token_log_ratio(logprobs_N: Tensor, sampled_logprobs_N: Tensor) -> Tensor:
    """`log rho_t = log pi(a_t | s_t) - log mu(a_t | s_t)`: policy now against the policy that sampled.

    Args:
        logprobs_N: log-probabilities under the policy that is trained (nats); carries the gradient.
        sampled_logprobs_N: log-probabilities stored when the tokens were sampled (nats).
    """
    return (logprobs_N - sampled_logprobs_N).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def clipped_surrogate(log_ratio_N: Tensor, advantages_N: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """Loss per token of PPO (Schulman et al. 2017, equation 7), with an upper clip of its own (DAPO, Yu et al. 2025).

    `L_t = -min(rho_t A_t, clip(rho_t, 1 - clip_low, 1 + clip_high) A_t)`

    Args:
        log_ratio_N: from `token_log_ratio`.
        advantages_N: advantage of each token's action; a constant for the gradient.
        clip_low: how far the ratio may fall below one before a bad token stops being pushed down.
        clip_high: how far the ratio may rise above one before a good token stops being pushed up.
    """
    ratio_N = log_ratio_N.exp()
    clipped_N = ratio_N.clamp(1.0 - clip_low, 1.0 + clip_high)
    return -torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N)


def clip_fraction(log_ratio_N: Tensor, advantages_N: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """1.0 for each token whose surrogate gradient the clip has set to zero, else 0.0 (N,)."""
    ratio_N = log_ratio_N.exp()
    too_high_N = (advantages_N > 0) & (ratio_N > 1.0 + clip_high)
    too_low_N = (advantages_N < 0) & (ratio_N < 1.0 - clip_low)
    return (too_high_N | too_low_N).float()
