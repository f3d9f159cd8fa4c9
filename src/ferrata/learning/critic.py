"""The value head as a learner: its values before the update, its part in the loss, its own optimizer.

Shape legend: S = turns of a micro-batch, C = channels of reward, N = trained tokens, D = width of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ferrata.learning.batch import Example
from ferrata.learning.forward import precision, trained_hidden
from ferrata.learning.meters import Meters
from ferrata.learning.objective import Objective
from ferrata.learning.packing import MicroBatch, microbatches
from ferrata.models.heads import ValueHead
from ferrata.recipe import RlSection


class Critic:
    """Estimates the return from each turn on. The state before a turn is what predicts its first token.

    Args:
        model: the policy whose hidden states it reads.
        section: `value` says how it learns.
        channels: how many returns it estimates.
    """

    def __init__(self, model: PreTrainedModel, section: RlSection, channels: int) -> None:
        self._model, self._section = model, section
        self.head = ValueHead(model, channels)
        self._optimizer = torch.optim.AdamW(self.head.parameters(), lr=section.value.learning_rate, weight_decay=0.0)
        self._steps = 0

    @torch.no_grad()
    def values(self, examples: Sequence[Example], tokens: int, tails: Sequence[Sequence[int]] = ()) -> list[Tensor]:
        """Values (C, T) of each example, in single precision: before each of its T turns.

        Where it is known what would have been read after the last turn, (C, T + 1): also in the state in which one more
        turn would begin.

        Args:
            examples: with their turns.
            tokens: of one forward pass.
            tails: for each example what would have been read after its last turn; empty where that is not known.
        """
        tails = tails or [()] * len(examples)
        extended = [_one_more_turn(example, tail) for example, tail in zip(examples, tails, strict=True)]
        found: list[Tensor] = [torch.empty(0)] * len(examples)
        for batch in microbatches(extended, tokens):
            with precision(self._model, self._section.dtype):
                hidden_ND = trained_hidden(self._model, batch)
            values_SC = self.head(hidden_ND[batch.firsts_S].float())
            parts = values_SC.split_with_sizes([len(extended[row].turns) for row in batch.examples])
            for row, part in zip(batch.examples, parts, strict=True):
                found[row] = part.T
        return found

    def loss(
        self,
        policy_loss: Tensor,
        hidden_ND: Tensor,
        batch: MicroBatch,
        examples: Sequence[Example],
        turns: int,
        objective: Objective,
        meters: Meters,
    ) -> Tensor:
        """The loss of a micro-batch with the head's part. While the head warms up, it learns alone.

        `rl.value.weight` scales the gradient that goes on from the head into the policy, not that of the head.
        """
        if self.warming:
            policy_loss = policy_loss * 0.0
        chosen = [examples[row] for row in batch.examples if examples[row].turns]
        if not chosen:
            return policy_loss
        old_SC = torch.cat([torch.tensor(example.values).T for example in chosen])
        targets_SC = torch.cat([torch.tensor(example.value_targets).T for example in chosen])
        states_SD = hidden_ND[batch.firsts_S].float()
        weight = 0.0 if self.warming else self._section.value.weight
        values_SC = self.head(weight * states_SD + (1.0 - weight) * states_SD.detach())
        return policy_loss + objective.value(values_SC, old_SC, targets_SC, turns, meters)

    @property
    def warming(self) -> bool:
        """True while the policy does not learn yet, for the values say nothing."""
        per_update = self._section.epochs * self._section.minibatches
        return self._steps < self._section.value.warmup * per_update

    def step(self) -> bool:
        """Take one step on the head; a gradient that is not finite is not used. Returns whether it learnt alone."""
        alone = self.warming
        norm = nn.utils.clip_grad_norm_(self.head.parameters(), self._section.max_grad_norm)
        if torch.isfinite(norm):
            self._optimizer.step()
        self._optimizer.zero_grad()
        self._steps += 1
        return alone

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly."""
        return {"head": self.head.state_dict(), "optimizer": self._optimizer.state_dict(), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.head.load_state_dict(state["head"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._steps = state["steps"]


def _one_more_turn(example: Example, tail: Sequence[int]) -> Example:
    """The example and what is read after it, up to a further turn of one token, which is never read."""
    if not tail:
        return replace(example, advantages=[])
    return replace(
        example,
        token_ids=[*example.token_ids, *tail, 0],
        loss_mask=[*example.loss_mask, *[False] * len(tail), True],
        logprobs=[*example.logprobs, *[0.0] * (len(tail) + 1)],
        advantages=[],
        turns=[*example.turns, 1],
    )
