"""What a rollout asks of a sampler, whoever runs the model.

    open -> submit -> advance ... advance -> Completion -> submit -> ... -> close

An episode keeps what the model has read between its turns: `submit` hands over only what is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ferrata.models.chat import ToolCard


@dataclass(frozen=True)
class ActionsOnly:
    """A constraint on an episode: each of its turns is one well-formed action, with or without thinking before it.

    Its tokens are drawn from what the policy says among the tokens that may come next. So their log-probabilities
    are not the policy's own, and nothing may be trained on them.
    """

    tools: tuple[ToolCard, ...]
    """Those that may be called."""
    thinking_tokens: int = 0
    """As `rollout.max_thinking_tokens`."""


class Completion(msgspec.Struct, frozen=True):
    """One sampled turn."""

    key: int
    """The episode it belongs to."""
    token_ids: list[int]
    """The sampled ids, the stop id included when it was sampled."""
    logprobs: list[float]
    """Log-probability of each under the distribution that it was drawn from (nats)."""
    stopped: bool
    """True when a stop id or the end of the action ended the turn, False when its token budget did."""


class SamplerClock(msgspec.Struct, frozen=True):
    """Where a sampler's time went since it was made (seconds); whoever reads it twice knows what lay between."""

    prefill: float = 0.0
    """Computing what episodes were handed to read (prefill)."""
    decode: float = 0.0
    """Computing and drawing the tokens of turns (decode)."""


class Sampler(Protocol):
    """Samples turns of many episodes at once. Keys are the caller's names of the episodes."""

    @property
    def max_length(self) -> int:
        """Tokens that one episode may have in all, read and written."""

    @property
    def free(self) -> int:
        """Episodes that can be opened now."""

    @property
    def version(self) -> int:
        """Which published weights sample."""

    @property
    def clock(self) -> SamplerClock:
        """Where its time went so far."""

    def open(self, key: int, seed: int, temperature: float, only: ActionsOnly | None = None) -> None:
        """Begin an episode. `seed` decides all its draws; temperature 0.0 is greedy; `only` constrains what it says.

        Raises UsageError when it cannot be constrained.
        """

    def submit(self, key: int, ids: Sequence[int], max_new_tokens: int) -> None:
        """Append new ids to the episode and ask for its next turn of at most `max_new_tokens` tokens.

        Without new ids the last turn goes on.
        """

    def advance(self) -> list[Completion]:
        """Take one step for all episodes that wait for a turn; return the turns that it finished."""

    def close(self, key: int) -> None:
        """Forget the episode, also in the middle of a turn."""

    def publish(self, version: int) -> None:
        """The weights have changed. No episode may be open: what they have read was computed with the old ones."""

    def shutdown(self) -> None:
        """Release what it holds; nothing can be sampled afterwards."""
