"""The clipped policy-gradient objective, token by token.

    token_log_ratio    log-probabilities now and then -> log of the importance ratio
    clipped_surrogate  ratio and advantage -> loss per token
    clip_fraction      which tokens the clip silenced
    sequence_log_ratio one ratio for a whole episode (GSPO)
    truncated_weight   importance weight of old data
    value_loss         squared error of the value head, clipped

Shape legend: N = sampled tokens of a batch, laid end to end.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def sequence_log_ratio(log_ratio_N: Tensor, counts: Sequence[int]) -> Tensor:
    """The length-normalised log-ratio of each token's whole episode (GSPO, Zheng et al. 2025, equation 7).

    `log s_i = 1/|o_i| sum_t log rho_{i,t}`: one ratio per episode, which every one of its tokens gets, so that a token
    is clipped when its episode is. The gradient of a token's ratio is its own (GSPO-token, equation 14): it adds up to
    the same where all tokens of an episode have one advantage, and where each turn has its own, that stays its own.

    Args:
        log_ratio_N: from `token_log_ratio`.
        counts: trained tokens of each episode, in order; they sum to N.
    """
    parts = torch.split(log_ratio_N, list(counts))
    means_N = torch.cat([part.detach().mean().expand(len(part)) for part in parts])
    return means_N + (log_ratio_N - log_ratio_N.detach())


def truncated_weight(log_ratio_N: Tensor, limit: float) -> Tensor:
    """`min(rho_t, limit)` as a constant: the importance weight of tokens that an older policy sampled.

    Truncating bounds the variance at the price of a bias towards what the old policy liked (Ionides 2008, "Truncated
    importance sampling"). Used where the data is older than the policy whose ratio is clipped.

    Args:
        log_ratio_N: log-probabilities at the start of the update minus those at sampling (nats).
        limit: the largest weight, at least 1.
    """
    return log_ratio_N.detach().exp().clamp(max=limit)


def value_loss(values_N: Tensor, old_values_N: Tensor, targets_N: Tensor, clip: float) -> Tensor:
    """Loss per token of the value head, with the clip of PPO's implementations (Schulman et al. 2017, section 5).

    `L_t = max((V_t - R_t)^2, (clip(V_t, V_old - clip, V_old + clip) - R_t)^2) / 2`

    Args:
        values_N: estimated returns now; carries the gradient.
        old_values_N: the same before the update.
        targets_N: returns to be estimated.
        clip: how far a value may move in one update; in units of return.
    """
    moved_N = old_values_N + (values_N - old_values_N).clamp(-clip, clip)
    return torch.maximum((values_N - targets_N).square(), (moved_N - targets_N).square()) / 2
