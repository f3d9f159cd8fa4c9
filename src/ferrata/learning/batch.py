"""Examples: token sequences with what the loss needs to know about them.

Example          one of them
split            a shuffled order in minibatches of nearly equal size
trained_tokens   how many tokens of examples carry loss
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

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


def split(count: int, parts: int, shuffle: random.Random) -> list[list[int]]:
    """Deal the indices 0 to count-1, shuffled, into at most `parts` non-empty minibatches of nearly equal size."""
    order = list(range(count))
    shuffle.shuffle(order)
    return [order[part::parts] for part in range(min(parts, count))]


def trained_tokens(examples: Sequence[Example]) -> int:
    """How many tokens of these examples carry loss."""
    return sum(len(example.targets) for example in examples)
