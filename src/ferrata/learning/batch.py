"""Examples, and micro-batches of examples.

    Example       one token sequence with what the loss needs to know about it
    MicroBatch    some examples padded on the right, with the places of their trained tokens
    microbatches  examples -> micro-batches under a budget of padded tokens
    split         a shuffled order in minibatches of nearly equal size

Shape legend: B = rows, T = padded length, N = trained tokens of a micro-batch, row after row.

Padding stands on the right and attention is causal, so no trained token ever sees it: positions count from 0 in every
row and no attention mask is needed. A row ends before its last trained token: that one is only a target, and what
follows it is never looked at.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from ferrata.records import Trajectory


@dataclass(frozen=True, slots=True)
class Example:
    """One token sequence to learn from."""

    token_ids: Sequence[int]
    """All T ids, read and written, in order."""
    loss_mask: Sequence[bool]
    """True for the ids that are trained. Never the first: nothing precedes it."""
    logprobs: Sequence[float]
    """Log-probability of each trained id when it was sampled, 0.0 elsewhere (nats)."""
    advantages: Sequence[float] = ()
    """Advantage of each trained token, in order; empty for a demonstration."""
    temperature: float = 1.0
    """Temperature of the distribution that was sampled from, over 0: the learner scores the same distribution."""
    turns: Sequence[int] = ()
    """Trained tokens of each turn, in order; they sum to the trained tokens. Empty where nobody asks for turns."""
    values: Sequence[Sequence[float]] = ()
    """What a value head said before the update: for each channel, one value for each turn."""
    value_targets: Sequence[Sequence[float]] = ()
    """What it should have said; shaped as `values`."""
    stale: bool = False
    """True when an older policy sampled it, so that its log-probabilities are not those of the policy at the start."""
    targets: list[int] = field(init=False, repr=False)
    """Indices of the trained ids, ascending."""

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.loss_mask) == len(self.logprobs), "one mask and log-probability per id"
        assert self.temperature > 0.0, "a greedy choice has no log-probability to learn from"
        targets = [index for index, trained in enumerate(self.loss_mask) if trained]
        assert not targets or targets[0] > 0, "the first token is predicted from nothing"
        assert len(self.advantages) in (0, len(targets)), "one advantage per trained token"
        assert not self.turns or sum(self.turns) == len(targets), "the turns hold all trained tokens"
        object.__setattr__(self, "targets", targets)

    @classmethod
    def of(
        cls,
        trajectory: Trajectory,
        advantages: Sequence[float],
        *,
        values: Sequence[Sequence[float]] = (),
        value_targets: Sequence[Sequence[float]] = (),
        stale: bool = False,
        for_values: bool = True,
    ) -> Example:
        """The example of a sampled trajectory: its ids exactly as sampled, with the advantage of each of its turns.

        Args:
            trajectory: as it was played.
            advantages: one for each turn.
            values: as the field.
            value_targets: as the field.
            stale: as the field.
            for_values: whether a value head learns from its turns.
        """
        turns = [len(turn.token_ids) for turn in trajectory.turns]
        each = [advantage for advantage, count in zip(advantages, turns, strict=True) for _ in range(count)]
        return cls(
            trajectory.token_ids,
            trajectory.loss_mask,
            trajectory.logprobs,
            each,
            trajectory.temperature,
            turns if for_values else (),
            values,
            value_targets,
            stale,
        )

    @classmethod
    def demonstration(cls, token_ids: Sequence[int], loss_mask: Sequence[bool]) -> Example:
        """An example for supervised learning: nobody sampled it."""
        return cls(token_ids, loss_mask, [0.0] * len(token_ids))

    @property
    def sampled(self) -> bool:
        """True when a policy sampled it; false for a demonstration."""
        return bool(self.advantages)

    @property
    def length(self) -> int:
        """How many ids the model has to read to predict every trained id."""
        return self.targets[-1] if self.targets else 0


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows for one forward pass. Examples without a trained token have no row."""

    examples: list[int]
    """Which examples stand in the B rows: indices into the sequence that was split."""
    ids_BT: Tensor
    """Token ids (int64), padded on the right."""
    places_N: Tensor
    """Where in the flattened (B*T) ids the next token is a trained one."""
    targets_N: Tensor
    """The trained ids (int64)."""
    sampled_logprobs_N: Tensor
    """Log-probabilities of the trained ids when they were sampled."""
    advantages_N: Tensor
    """Advantage of each trained id."""
    temperatures_N: Tensor | None
    """Temperature at which each id was sampled; None when all are 1."""
    counts: list[int]
    """Trained ids of each row; they sum to N."""
    sampled_N: Tensor | None
    """False for the ids of demonstrations, which nobody sampled; None when all were sampled."""
    firsts_S: Tensor
    """Which of the N ids is the first of a turn; S turns, row after row."""


def microbatches(examples: Sequence[Example], tokens: int) -> list[MicroBatch]:
    """Split examples into micro-batches of at most `tokens` padded tokens, long examples first.

    Rows of similar length stand together, so little is padded. An example longer than `tokens` gets a micro-batch of
    its own. The split never changes the gradient: every loss is a sum over trained tokens with a divisor of the whole.
    """
    order = sorted((i for i, example in enumerate(examples) if example.targets), key=lambda i: -examples[i].length)
    batches: list[MicroBatch] = []
    start = 0
    while start < len(order):
        rows = max(1, tokens // examples[order[start]].length)
        batches.append(_assemble(examples, order[start : start + rows]))
        start += rows
    return batches


def split(count: int, parts: int, shuffle: random.Random) -> list[list[int]]:
    """Deal the indices 0 to count-1, shuffled, into at most `parts` non-empty minibatches of nearly equal size."""
    order = list(range(count))
    shuffle.shuffle(order)
    return [order[part::parts] for part in range(min(parts, count))]


def trained_tokens(examples: Sequence[Example]) -> int:
    """How many tokens of these examples carry loss."""
    return sum(len(example.targets) for example in examples)


def _assemble(examples: Sequence[Example], rows: list[int]) -> MicroBatch:
    """Lay the given examples, the longest first, into one micro-batch."""
    chosen = [examples[row] for row in rows]
    width = chosen[0].length
    ids_BT = torch.zeros((len(rows), width), dtype=torch.int64)
    for row, example in enumerate(chosen):
        ids_BT[row, : example.length] = torch.as_tensor(example.token_ids[: example.length])
    flat = [(row * width, example, target) for row, example in enumerate(chosen) for target in example.targets]
    temperatures = [example.temperature for _, example, _ in flat]
    return MicroBatch(
        examples=rows,
        ids_BT=ids_BT,
        places_N=torch.tensor([start + target - 1 for start, _, target in flat]),
        targets_N=torch.tensor([example.token_ids[target] for _, example, target in flat]),
        sampled_logprobs_N=torch.tensor([example.logprobs[target] for _, example, target in flat]),
        advantages_N=torch.tensor([value for example in chosen for value in _advantages(example)]),
        temperatures_N=torch.tensor(temperatures) if any(t != 1.0 for t in temperatures) else None,
        counts=[len(example.targets) for example in chosen],
        sampled_N=None if all(e.sampled for e in chosen) else torch.tensor([e.sampled for _, e, _ in flat]),
        firsts_S=_firsts(chosen),
    )


def _advantages(example: Example) -> Sequence[float]:
    """Advantage of each trained id; that of a demonstration is 1: its loss is then its negative log-likelihood."""
    return example.advantages if example.sampled else [1.0] * len(example.targets)


def _firsts(chosen: Sequence[Example]) -> Tensor:
    """Places of the first ids of turns among the trained ids of these examples."""
    places, start = [], 0
    for example in chosen:
        places += [start + offset for offset in accumulate(example.turns[:-1], initial=0)] if example.turns else []
        start += len(example.targets)
    return torch.tensor(places, dtype=torch.int64)
