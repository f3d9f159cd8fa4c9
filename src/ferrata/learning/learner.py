"""Reinforcement learning: several optimizer steps on one collection of examples.

    Learner.update       reference log-probabilities, then epochs x minibatches of
      Learner._step      one optimizer step: micro-batches -> loss.backward(), guarded step
        Learner._loss    clipped surrogate + kl * divergence - entropy bonus, of one micro-batch

Every loss is a sum over sampled tokens divided by the count of the minibatch, so each sampled token weighs the same,
and micro-batches add up exactly to the gradient of the minibatch.

Shape legend: N = trained tokens of a micro-batch, V = vocabulary.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ferrata.algorithms.entropy import entropy
from ferrata.algorithms.policy_gradient import clip_fraction, clipped_surrogate, token_log_ratio
from ferrata.algorithms.table import divergence
from ferrata.learning.batch import Example, MicroBatch, microbatches, split, trained_tokens
from ferrata.learning.forward import check_model, logprobs_by_example, pick, trained_logits
from ferrata.learning.meters import Meters
from ferrata.learning.optimizer import build_optimizer, guarded_step
from ferrata.recipe import RlSection


class Learner:
    """Owns the optimizer of a policy and turns examples into steps.

    The policy is put into evaluation mode: a dropped-out policy is not the one that sampled.

    Args:
        model: the policy; trained in place.
        section: the recipe's `rl` section.
        reference: frozen policy for the divergence; needed when `section.kl` is above 0.

    Raises:
        PolicyError: the model cannot be scored, see `forward.check_model`.
    """

    def __init__(self, model: PreTrainedModel, section: RlSection, reference: PreTrainedModel | None = None) -> None:
        assert reference is not None or section.kl == 0.0, "a divergence needs a reference"
        check_model(model)
        self.model, self.reference, self.section = model.eval(), reference, section
        self._divergence = divergence(section.kl_estimator)
        self._optimizer = build_optimizer(model, section.learning_rate, section.weight_decay, section.optimizer)
        self.updates = 0
        """How many times `update` trained something."""

    def update(self, examples: Sequence[Example], shuffle: random.Random) -> dict[str, float]:
        """Learn from one collection: `epochs` passes of `minibatches` optimizer steps.

        Args:
            examples: the collection; its order does not matter beyond what `shuffle` draws.
            shuffle: the stream that deals examples into minibatches.

        Returns:
            Metrics named `rl/...`; means are over sampled tokens. `rl/logprob_gap*` compares the sampler with the
            learner on the first minibatch, before its step. Without a trained token: `rl/tokens` 0, and no step.
        """
        examples = [example for example in examples if example.targets]
        if not examples:
            return {"rl/tokens": 0.0, "rl/steps": 0.0, "rl/steps_skipped": 0.0}
        self._optimizer.set_learning_rate(self.learning_rate)
        reference = self._reference_logprobs(examples)
        meters = Meters()
        norms: list[float] = []
        for _ in range(self.section.epochs):
            for part in split(len(examples), self.section.minibatches, shuffle):
                parts_reference = [reference[i] for i in part] if reference else None
                norms.append(self._step([examples[i] for i in part], parts_reference, meters, first=not norms))
        self.updates += 1
        return meters.metrics() | _step_metrics(norms) | {"rl/tokens": float(trained_tokens(examples))}

    @property
    def learning_rate(self) -> float:
        """The rate of the next update: it falls linearly, by `learning_rate_decay` after `rl.updates` updates."""
        done = min(1.0, self.updates / max(1, self.section.updates))
        return self.section.learning_rate * (1.0 - self.section.learning_rate_decay * done)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer and the count of updates; the weights are the model's own."""
        return {"optimizer": self._optimizer.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken, given the same weights."""
        self._optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]

    def _reference_logprobs(self, examples: Sequence[Example]) -> list[Tensor] | None:
        """Log-probabilities of the trained tokens of each example under the reference; None when it is not needed."""
        if self.reference is None or self.section.kl == 0.0:
            return None
        batches = microbatches(examples, self.section.microbatch_tokens)
        return logprobs_by_example(self.reference.eval(), batches, len(examples))

    def _step(self, examples: list[Example], reference: list[Tensor] | None, meters: Meters, first: bool) -> float:
        """One optimizer step on one minibatch; returns the norm of its gradient."""
        tokens = trained_tokens(examples)
        for batch in microbatches(examples, self.section.microbatch_tokens):
            reference_N = torch.cat([reference[i] for i in batch.examples]) if reference else None
            loss = self._loss(batch, reference_N, tokens, meters, first)
            loss.backward()  # type: ignore[no-untyped-call]
        return guarded_step(self._optimizer, self.section.max_grad_norm)

    def _loss(self, batch: MicroBatch, reference_N: Tensor | None, tokens: int, meters: Meters, first: bool) -> Tensor:
        """The part of a micro-batch in the loss of its minibatch, which has `tokens` trained tokens."""
        section = self.section
        log_distribution_NV = trained_logits(self.model, batch).log_softmax(dim=-1)
        logprobs_N = pick(log_distribution_NV, batch.targets_N)
        with torch.set_grad_enabled(section.entropy > 0.0):
            entropy_N = entropy(log_distribution_NV)
        log_ratio_N = token_log_ratio(logprobs_N, batch.sampled_logprobs_N)
        loss_N = clipped_surrogate(log_ratio_N, batch.advantages_N, section.clip_low, section.clip_high)
        if section.entropy > 0.0:
            loss_N = loss_N - section.entropy * entropy_N
        if reference_N is not None:
            divergence_N = self._divergence(logprobs_N, reference_N)
            loss_N = loss_N + section.kl * divergence_N
            meters.add("rl/kl", divergence_N)
        self._measure(batch, logprobs_N, log_ratio_N, meters, first)
        meters.add("rl/loss", loss_N)
        meters.add("rl/entropy", entropy_N)
        return loss_N.sum() / tokens

    @torch.no_grad()
    def _measure(self, batch: MicroBatch, logprobs_N: Tensor, log_ratio_N: Tensor, meters: Meters, first: bool) -> None:
        """What the importance ratios say; before any step, how far sampler and learner are apart."""
        clipped_N = clip_fraction(log_ratio_N, batch.advantages_N, self.section.clip_low, self.section.clip_high)
        meters.add("rl/clip_fraction", clipped_N)
        meters.add("rl/ratio_mean", log_ratio_N.exp())
        meters.largest("rl/ratio_max", float(log_ratio_N.max().exp()))
        if first:
            gap_N = (logprobs_N - batch.sampled_logprobs_N).abs()
            meters.add("rl/logprob_gap", gap_N)
            meters.largest("rl/logprob_gap_max", float(gap_N.max()))


def _step_metrics(norms: list[float]) -> dict[str, float]:
    """Gradient norms of the steps that were taken, and how many steps were taken and refused."""
    finite = [norm for norm in norms if math.isfinite(norm)]
    metrics = {"rl/steps": float(len(finite)), "rl/steps_skipped": float(len(norms) - len(finite))}
    if finite:
        metrics |= {"rl/grad_norm": sum(finite) / len(finite), "rl/grad_norm_max": max(finite)}
    return metrics
