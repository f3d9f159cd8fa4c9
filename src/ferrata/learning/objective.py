"""The loss of one micro-batch: clipped surrogate, divergence, entropy and value, and what they say about the step.

    Known       what was computed before the first step and does not change
    Objective   log-probabilities of the trained tokens -> their part of the minibatch's loss

Shape legend: N = trained tokens of a micro-batch, S = its turns, C = channels of reward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ferrata.algorithms.policy_gradient import (
    clip_fraction,
    clipped_surrogate,
    sequence_log_ratio,
    token_log_ratio,
    truncated_weight,
    value_loss,
)
from ferrata.algorithms.table import divergence
from ferrata.learning.forward import TokenScores
from ferrata.learning.meters import Meters
from ferrata.learning.packing import MicroBatch
from ferrata.recipe import RlSection

ENTROPY_WEIGHTS = (1e-5, 0.1)
"""Between these the controller moves the weight of the entropy bonus."""


@dataclass(frozen=True)
class Known:
    """What holds for a micro-batch whatever the policy has become meanwhile."""

    weights_N: Tensor | None
    """Weight of each token; None when all have weight 1."""
    divisor: float
    """Of the whole minibatch."""
    reference_N: Tensor | None = None
    """Log-probabilities under the frozen reference; None where the loss needs none."""
    start_N: Tensor | None = None
    """Log-probabilities when the update began; None when no token is older than that."""


class Objective:
    """The policy's loss.

    Args:
        section: its formulas and weights.
        entropy_weight: weight of the entropy bonus; may be changed between updates.
    """

    def __init__(self, section: RlSection, entropy_weight: float) -> None:
        self.section, self.entropy_weight = section, entropy_weight
        self._divergence = divergence(section.kl_estimator)

    def __call__(self, scores: TokenScores, batch: MicroBatch, known: Known, meters: Meters, first: bool) -> Tensor:
        """The part of a micro-batch in the loss of its minibatch. `first`: no step was taken since sampling."""
        loss_N = self._surrogate(scores.logprobs_N, batch, known, meters, first)
        meters.add("rl/entropy", _sampled(scores.entropy_N, batch))
        if self.entropy_weight > 0.0:
            loss_N = loss_N - self.entropy_weight * _of_sampled(scores.entropy_N, batch)
        if known.reference_N is not None:
            divergence_N = self._divergence(scores.logprobs_N, known.reference_N)
            meters.add("rl/kl", _sampled(divergence_N, batch))
            if self.section.kl_in == "loss":
                loss_N = loss_N + self.section.kl * _of_sampled(divergence_N, batch)
        meters.add("rl/loss", loss_N)
        return (loss_N if known.weights_N is None else loss_N * known.weights_N).sum() / known.divisor

    def hold_entropy(self, metrics: Mapping[str, float]) -> None:
        """Move the weight of the bonus, after an update that ended in these metrics: up when the entropy is too low."""
        target, (low, high) = self.section.entropy_target, ENTROPY_WEIGHTS
        if target > 0.0 and "rl/entropy" in metrics:
            moved = self.entropy_weight * math.exp(0.5 * (1.0 - metrics["rl/entropy"] / target))
            self.entropy_weight = min(high, max(low, moved))

    def _surrogate(self, logprobs_N: Tensor, batch: MicroBatch, known: Known, meters: Meters, first: bool) -> Tensor:
        """Clipped surrogate of each token, against the policy at the start of the update."""
        section, before_N = self.section, batch.sampled_logprobs_N
        if known.start_N is not None:
            before_N = known.start_N
        if batch.sampled_N is not None:
            # Nobody sampled a demonstration: with a ratio of 1, its gradient is that of the negative log-likelihood.
            before_N = torch.where(batch.sampled_N, before_N, logprobs_N.detach())
        log_ratio_N = token_log_ratio(logprobs_N, before_N)
        if section.ratio == "sequence":
            log_ratio_N = sequence_log_ratio(log_ratio_N, batch.counts)
        loss_N = clipped_surrogate(log_ratio_N, batch.advantages_N, section.clip_low, section.clip_high)
        if known.start_N is not None:
            older_N = token_log_ratio(known.start_N, batch.sampled_logprobs_N)
            weight_N = truncated_weight(older_N, section.importance_limit)
            if batch.sampled_N is not None:
                weight_N = torch.where(batch.sampled_N, weight_N, torch.ones_like(weight_N))
            loss_N = loss_N * weight_N
            meters.add("rl/importance_weight", _stale(weight_N, batch))
        self._measure(batch, logprobs_N, log_ratio_N, meters)
        if first:
            _measure_gap(batch, logprobs_N, meters)
        return loss_N

    @torch.no_grad()
    def _measure(self, batch: MicroBatch, logprobs_N: Tensor, log_ratio_N: Tensor, meters: Meters) -> None:
        """What the importance ratios say."""
        clipped_N = clip_fraction(log_ratio_N, batch.advantages_N, self.section.clip_low, self.section.clip_high)
        meters.add("rl/clip_fraction", _sampled(clipped_N, batch))
        ratio_N = _sampled(log_ratio_N.exp(), batch)
        meters.add("rl/ratio_mean", ratio_N)
        if len(ratio_N):
            meters.largest("rl/ratio_max", float(ratio_N.max()))

    def value(self, values_SC: Tensor, old_SC: Tensor, targets_SC: Tensor, turns: int, meters: Meters) -> Tensor:
        """The value head's part in the loss of a minibatch of `turns` turns."""
        clip = self.section.value.clip
        loss_SC = value_loss(values_SC, old_SC, targets_SC, clip)
        meters.add("rl/value_loss", loss_SC)
        meters.add("rl/value_error", (values_SC - targets_SC).abs())
        return loss_SC.sum() / turns


def _of_sampled(values_N: Tensor, batch: MicroBatch) -> Tensor:
    """The values, 0 at demonstrations: they are no samples of the policy, so nothing can be estimated from them."""
    return values_N if batch.sampled_N is None else torch.where(batch.sampled_N, values_N, torch.zeros_like(values_N))


def _sampled(values_N: Tensor, batch: MicroBatch) -> Tensor:
    """The values without those of demonstrations."""
    return values_N if batch.sampled_N is None else values_N[batch.sampled_N]


def _stale(values_N: Tensor, batch: MicroBatch) -> Tensor:
    """The values of tokens that an older policy sampled."""
    if batch.fresh_N is None:
        return values_N[:0]
    return values_N[~batch.fresh_N if batch.sampled_N is None else ~batch.fresh_N & batch.sampled_N]


@torch.no_grad()
def _measure_gap(batch: MicroBatch, logprobs_N: Tensor, meters: Meters) -> None:
    """Before any step: how far sampler and learner are apart on what the policy as it is now sampled."""
    gap_N = (logprobs_N - batch.sampled_logprobs_N).abs()
    gap_N = gap_N if batch.fresh_N is None else gap_N[batch.fresh_N]
    if len(gap_N):
        meters.add("rl/logprob_gap", gap_N)
        meters.largest("rl/logprob_gap_max", float(gap_N.max()))
