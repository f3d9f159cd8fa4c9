"""Supervised learning: cross-entropy on the trained tokens of demonstrations.

    SupervisedLearner.update  one optimizer step on one batch of examples

The loss is the mean over the trained tokens of the batch; micro-batches add up exactly to the gradient of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from ferrata.learning.batch import Example, trained_tokens
from ferrata.learning.forward import check_model, precision, token_scores, trained_hidden
from ferrata.learning.meters import Meters
from ferrata.learning.optimizer import build_optimizer, guarded_step, warmup_decay
from ferrata.learning.packing import MicroBatch, microbatches
from ferrata.recipe import SftSection


class SupervisedLearner:
    """Owns the optimizer and the schedule of a supervised stage.

    Args:
        model: the policy; trained in place, and left in the mode it is in.
        section: the recipe's `sft` section; `updates` is the length of the schedule.
        microbatch_tokens: tokens per forward pass; changes memory and speed, never the gradient.

    Raises:
        PolicyError: the model cannot be scored, see `forward.check_model`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        section: SftSection,
        *,
        microbatch_tokens: int = 2048,
    ) -> None:
        check_model(model)
        self.model, self.section, self.microbatch_tokens = model, section, microbatch_tokens
        self._optimizer = build_optimizer(model, section.learning_rate, section.weight_decay, section.optimizer)
        self.updates = 0
        """Optimizer steps so far: the place in the schedule."""

    def update(self, examples: Sequence[Example]) -> dict[str, float]:
        """One optimizer step on all examples together.

        Returns:
            `sft/loss` (nats per trained token, before the step), `sft/token_accuracy` (share of trained tokens that are
            the likeliest), `sft/grad_norm`, `sft/steps_skipped`, `sft/learning_rate`, `sft/tokens`.
        """
        tokens = trained_tokens(examples)
        if tokens == 0:
            return {"sft/tokens": 0.0}
        meters = Meters()
        for batch in microbatches(examples, self.microbatch_tokens):
            (self._loss(batch, meters) / tokens).backward()  # type: ignore[no-untyped-call]
        learning_rate = self.section.learning_rate * warmup_decay(
            self.updates, self.section.updates, self.section.warmup
        )
        self._optimizer.set_learning_rate(learning_rate)
        norm = guarded_step(self._optimizer, self.section.max_grad_norm)
        self.updates += 1
        return meters.metrics() | {
            "sft/grad_norm": norm,
            "sft/steps_skipped": float(not math.isfinite(norm)),
            "sft/learning_rate": learning_rate,
            "sft/tokens": float(tokens),
        }

    def state_dict(self) -> dict[str, Any]:
        """The optimizer and the place in the schedule; the weights are the model's own."""
        return {"optimizer": self._optimizer.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken, given the same weights."""
        self._optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]

    def _loss(self, batch: MicroBatch, meters: Meters) -> Tensor:
        """Sum of the cross-entropy over the trained tokens of a micro-batch."""
        with precision(self.model, self.section.dtype):
            scores = token_scores(self.model, trained_hidden(self.model, batch), batch, likeliest=True)
        loss_N = -scores.logprobs_N
        meters.add("sft/token_accuracy", scores.likeliest_N.float())
        meters.add("sft/loss", loss_N)
        return loss_N.sum()
