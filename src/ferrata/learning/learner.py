"""Reinforcement learning: several optimizer steps on one collection of examples.

    Learner.score        what reference and value head say about trajectories, before the update
    Learner.update       what stays the same for the update, then epochs x minibatches of
      Learner._step      one optimizer step: micro-batches -> loss.backward(), guarded step
        Objective        clipped surrogate + kl * divergence - entropy bonus, of one micro-batch

Every loss is a sum over trained tokens with weights and a divisor of the whole minibatch, so micro-batches add up
exactly to its gradient.

Shape legend: N = trained tokens of a micro-batch, S = its turns, C = channels of reward.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ferrata.algorithms.table import Divergence, aggregation, divergence
from ferrata.learning.batch import Example, split, trained_tokens
from ferrata.learning.courses import Scored, channels
from ferrata.learning.critic import Critic
from ferrata.learning.forward import check_model, logprobs_by_example, precision, token_scores, trained_hidden
from ferrata.learning.meters import Meters
from ferrata.learning.objective import Known, Objective
from ferrata.learning.optimizer import build_optimizer, guarded_step
from ferrata.learning.packing import MicroBatch, microbatches
from ferrata.recipe import RlSection
from ferrata.records import Trajectory


class Learner:
    """Owns the optimizer of a policy and turns examples into steps.

    The policy is put into evaluation mode: a dropped-out policy is not the one that sampled.

    Args:
        model: the policy; trained in place.
        section: the recipe's `rl` section.
        reference: frozen policy for the divergence; needed when `section.kl` is above 0.
        length: the most tokens that an episode can have; what `rl.aggregation = "constant"` divides by.
        next_read: ids that would have been read after a trajectory that was cut: the value head says what the state
            after them is worth. Empty where the task was over, or where that is not known.

    Raises:
        PolicyError: the model cannot be scored, see `forward.check_model`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        section: RlSection,
        reference: PreTrainedModel | None = None,
        length: int = 512,
        next_read: Callable[[Trajectory], Sequence[int]] = lambda trajectory: (),
    ) -> None:
        assert reference is not None or section.kl == 0.0, "a divergence needs a reference"
        check_model(model)
        self.model, self.section, self.length, self._next_read = model.eval(), section, length, next_read
        self.reference = reference if section.kl > 0.0 else None
        self.critic = Critic(model, section, len(channels(section))) if section.algorithm == "ppo" else None
        """The value head, where the algorithm has one."""
        self._objective = Objective(section, section.entropy)
        self._optimizer = build_optimizer(model, section.learning_rate, section.weight_decay, section.optimizer)
        self.updates = 0
        """How many times `update` was called."""

    @property
    def warming(self) -> bool:
        """True while the value head learns alone."""
        return self.critic is not None and self.critic.warming

    @property
    def scores(self) -> bool:
        """True when advantages need what `score` says."""
        return self.critic is not None or (self.section.kl > 0.0 and self.section.kl_in == "reward")

    def score(self, trajectories: Sequence[Trajectory]) -> list[Scored]:
        """What reference and value head say about each trajectory, as the policy stands."""
        examples = [Example.of(trajectory, [0.0] * len(trajectory.turns)) for trajectory in trajectories]
        divergences: list[Tensor | None] = [None] * len(examples)
        if self.reference is not None and self.section.kl_in == "reward":
            reference = self._logprobs(self.reference.eval(), examples)
            estimate = divergence(self.section.kl_estimator)
            divergences = [
                _by_turn(example, known, estimate) for example, known in zip(examples, reference, strict=True)
            ]
        if self.critic is None:
            return [Scored(divergences_T) for divergences_T in divergences]
        tails = [self._next_read(trajectory) for trajectory in trajectories]
        lengths = [len(trajectory.turns) for trajectory in trajectories]
        values = self.critic.values(examples, self.section.microbatch_tokens, tails)
        return [
            Scored(divergences_T, values_CT[:, :turns], values_CT[:, turns] if tail else None)
            for divergences_T, values_CT, tail, turns in zip(divergences, values, tails, lengths, strict=True)
        ]

    def update(self, examples: Sequence[Example], shuffle: random.Random) -> dict[str, float]:
        """Learn from one collection: `epochs` passes of `minibatches` optimizer steps.

        Args:
            examples: the collection; its order does not matter beyond what `shuffle` draws.
            shuffle: the stream that deals examples into minibatches.

        Returns:
            Metrics named `rl/...`; means are over trained tokens. `rl/logprob_gap*` compares the sampler with the
            learner on the first minibatch, before its step. Without a trained token: `rl/tokens` 0, and no step.
        """
        examples, rate = [example for example in examples if example.targets], self.learning_rate
        self.updates += 1
        if not examples:
            return {"rl/tokens": 0.0, "rl/steps": 0.0, "rl/steps_skipped": 0.0}
        self._optimizer.set_learning_rate(rate)
        reference = self._logprobs(self.reference.eval(), examples) if self.reference is not None else None
        start, warming = self._start(examples), self.warming
        meters = Meters()
        norms: list[float | None] = []
        for _ in range(self.section.epochs):
            for part in split(len(examples), self.section.minibatches, shuffle):
                chosen = [examples[i] for i in part]
                parts = [[known[i] for i in part] if known else None for known in (reference, start)]
                norms.append(self._step(chosen, parts[0], parts[1], meters, first=not norms))
        metrics = meters.metrics()
        if not warming:
            self._objective.hold_entropy(metrics)
        stale = sum(example.stale for example in examples)
        return (
            metrics
            | _step_metrics(norms)
            | {
                "rl/tokens": float(trained_tokens(examples)),
                "rl/entropy_weight": self._objective.entropy_weight,
                "rl/stale_share": stale / len(examples),
            }
        )

    @property
    def learning_rate(self) -> float:
        """The rate of the next update: it falls linearly, by `learning_rate_decay` after `rl.updates` updates."""
        done = min(1.0, self.updates / max(1, self.section.updates))
        return self.section.learning_rate * (1.0 - self.section.learning_rate_decay * done)

    def state_dict(self) -> dict[str, Any]:
        """Optimizer, value head, entropy weight and count of updates; the weights are the model's own."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "critic": None if self.critic is None else self.critic.state_dict(),
            "entropy_weight": self._objective.entropy_weight,
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken, given the same weights."""
        self._optimizer.load_state_dict(state["optimizer"])
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
        self._objective.entropy_weight = state["entropy_weight"]
        self.updates = state["updates"]

    def _logprobs(self, model: PreTrainedModel, examples: Sequence[Example]) -> list[Tensor]:
        """Log-probabilities of the trained tokens of each example, without a graph."""
        batches = microbatches(examples, self.section.microbatch_tokens)
        return logprobs_by_example(model, batches, len(examples), self.section.dtype)

    def _start(self, examples: Sequence[Example]) -> list[Tensor] | None:
        """Log-probabilities at the start of the update: those of sampling, but for what an older policy sampled."""
        old = [index for index, example in enumerate(examples) if example.stale]
        if not old:
            return None
        start = [torch.tensor([example.logprobs[target] for target in example.targets]) for example in examples]
        for index, logprobs_N in zip(old, self._logprobs(self.model, [examples[i] for i in old]), strict=True):
            start[index] = logprobs_N
        return start

    def _step(
        self,
        examples: list[Example],
        reference: list[Tensor] | None,
        start: list[Tensor] | None,
        meters: Meters,
        first: bool,
    ) -> float | None:
        """One optimizer step on one minibatch; returns the norm of its gradient, None where the head learnt alone."""
        weights = aggregation(self.section.aggregation)([len(e.targets) for e in examples], self.length)
        turns = sum(len(example.turns) for example in examples)
        for batch in microbatches(examples, self.section.microbatch_tokens):
            each = None
            if weights.episodes is not None:
                each = torch.tensor([weights.episodes[i] for i in batch.examples]).repeat_interleave(
                    torch.tensor(batch.counts)
                )
            known = Known(each, weights.divisor, _rows(reference, batch), _rows(start, batch))
            with precision(self.model, self.section.dtype):
                hidden_ND = trained_hidden(self.model, batch)
                scores = token_scores(self.model, hidden_ND, batch, entropy=self._objective.entropy_weight > 0.0)
            loss = self._objective(scores, batch, known, meters, first)
            if self.critic is not None:
                loss = self.critic.loss(loss, hidden_ND, batch, examples, turns, self._objective, meters)
            loss.backward()  # type: ignore[no-untyped-call]
        if self.critic is not None and self.critic.step():
            self._optimizer.zero_grad()
            return None
        return guarded_step(self._optimizer, self.section.max_grad_norm)


def _rows(values: list[Tensor] | None, batch: MicroBatch) -> Tensor | None:
    """What belongs to a micro-batch's rows, end to end."""
    return None if values is None else torch.cat([values[i] for i in batch.examples])


def _by_turn(example: Example, reference_N: Tensor, estimate: Divergence) -> Tensor:
    """Estimated divergence from the reference, summed over the tokens of each turn (T,)."""
    sampled_N = torch.tensor([example.logprobs[target] for target in example.targets])
    return torch.stack([part.sum() for part in estimate(sampled_N, reference_N).split_with_sizes(list(example.turns))])


def _step_metrics(norms: list[float | None]) -> dict[str, float]:
    """Gradient norms of the policy's steps that were taken, and how many were taken and refused."""
    tried = [norm for norm in norms if norm is not None]
    finite = [norm for norm in tried if math.isfinite(norm)]
    metrics = {"rl/steps": float(len(finite)), "rl/steps_skipped": float(len(tried) - len(finite))}
    if finite:
        metrics |= {"rl/grad_norm": sum(finite) / len(finite), "rl/grad_norm_max": max(finite)}
    return metrics
