"""From logits to a token and its log-probability."""

from __future__ import annotations

import torch
from torch import Tensor


def draw(logits_RV: Tensor, temperature_R: Tensor, uniform_R: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverting the cumulative distribution.

        p = softmax(logits / temperature),   token = min { v : p_0 + ... + p_v > u }

    A row's token depends on its own logits and its own uniform number alone, so an episode's draws do not depend on
    its neighbours. Temperature 0.0 takes the most probable token; its log-probability is that under temperature 1.

    Args:
        logits_RV: one row of logits per episode (R rows, V tokens), computed in fp32.
        temperature_R: temperature of each row, fp32, at least 0.0.
        uniform_R: a number in [0, 1) for each row, fp64.

    Returns:
        tokens (R, int64) and their log-probabilities (R, fp32, nats).
    """
    greedy_R = temperature_R == 0.0
    divisor_R1 = temperature_R.masked_fill(greedy_R, 1.0).unsqueeze(1)
    logprobs_RV = (logits_RV.float() / divisor_R1).log_softmax(dim=-1)
    if bool(greedy_R.all()):
        tokens_R = logits_RV.argmax(dim=-1)
    else:
        tokens_R = _invert(logprobs_RV, uniform_R)
        if bool(greedy_R.any()):
            tokens_R = tokens_R.where(~greedy_R, logits_RV.argmax(dim=-1))
    return tokens_R, logprobs_RV.gather(1, tokens_R.unsqueeze(1)).squeeze(1)


def _invert(logprobs_RV: Tensor, uniform_R: Tensor) -> Tensor:
    """The first token of each row at which the cumulative distribution exceeds the uniform number."""
    # fp64: over a large vocabulary the rounding of an fp32 running sum exceeds the rarest probabilities.
    cumulative_RV = logprobs_RV.double().exp_().cumsum_(dim=-1)
    # The sum is not exactly 1. A target below it lies under a step of the sum, where p > 0.
    total_R = cumulative_RV[:, -1]
    target_R = torch.minimum(uniform_R * total_R, total_R.nextafter(torch.zeros_like(total_R)))
    return torch.searchsorted(cumulative_RV, target_R.unsqueeze(1), right=True).squeeze(1)
