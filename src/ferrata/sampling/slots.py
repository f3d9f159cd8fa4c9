"""What a sampler knows about the episode in each slot of its key-value store, and which slots hold what.

A slot keeps its keys and values when its episode is closed, until another episode needs the room. An opening that
begins as one of these texts does, whether that episode is still under way or not, is read from there on only.

Shape legend: S slots; C capacity in tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ferrata.sampling.ragged import Integers

MIN_SHARED_TOKENS = 32
"""Shorter common beginnings are read again: looking for them costs more."""


@dataclass
class Slots:
    """The state of S slots; every array has S rows."""

    fed: Integers
    """Tokens of the episode whose keys and values are in the store."""
    held: Integers
    """Tokens of `texts` whose keys and values are in the store, whoever read them."""
    last: Integers
    """The token sampled last, not yet in the store."""
    count: Integers
    """Tokens sampled in the turn under way."""
    budget: Integers
    """Most tokens of that turn."""
    drawn: Integers
    """Tokens sampled in the whole episode."""
    sampling: np.ndarray
    """True in the middle of a turn."""
    temperature: np.ndarray
    uniforms: np.ndarray
    """(S, C): the number that decides each of the episode's draws."""
    tokens: Integers
    """(S, C): ids of the turn under way."""
    logprobs: np.ndarray
    """(S, C): and their log-probabilities."""
    texts: Integers
    """(S, C): ids of what the store holds."""

    @classmethod
    def make(cls, slots: int, capacity: int) -> Slots:
        """Empty slots."""
        fed, held, last, count, budget, drawn = (np.zeros(slots, dtype=np.int64) for _ in range(6))
        sampling, temperature = np.zeros(slots, dtype=bool), np.ones(slots, dtype=np.float32)
        uniforms, logprobs = np.zeros((slots, capacity)), np.zeros((slots, capacity))
        tokens, texts = (np.zeros((slots, capacity), dtype=np.int64) for _ in range(2))
        return cls(fed, held, last, count, budget, drawn, sampling, temperature, uniforms, tokens, logprobs, texts)

    def move(self, source: int, target: int) -> None:
        """Copy the state of one slot to another, which then holds what the source's episode has read and no more."""
        for array in vars(self).values():
            array[target] = array[source]
        self.held[target] = self.fed[source]

    def clear(self, slot: int, seed: int, temperature: float) -> None:
        """Begin an episode. What the slot holds of an earlier one stays until it is written over."""
        for array in (self.fed, self.last, self.count, self.budget, self.drawn, self.sampling):
            array[slot] = 0
        self.temperature[slot] = temperature
        self.uniforms[slot] = np.random.default_rng(seed).random(self.uniforms.shape[1])

    def forget(self) -> None:
        """Hold nothing: the weights that read it are no more, or nobody is to profit from it."""
        self.held[:] = 0

    def beginning(self, ids: Sequence[int]) -> tuple[int, int]:
        """Which slot holds the longest beginning of `ids`, and how many tokens it has; 0 tokens when none is worth it.

        At least the last id is left to read, for somebody must compute what follows it.
        """
        most = min(len(ids) - 1, self.texts.shape[1])
        slots = np.flatnonzero(self.held >= MIN_SHARED_TOKENS) if most >= MIN_SHARED_TOKENS else ()
        if not len(slots):
            return 0, 0
        differs = self.texts[slots, :most] != np.asarray(ids[:most])
        equal = np.where(differs.any(axis=1), differs.argmax(axis=1), most)
        shared = np.minimum(equal, self.held[slots])
        best = int(shared.argmax())
        length = int(shared[best])
        return (int(slots[best]), length) if length >= MIN_SHARED_TOKENS else (0, 0)

    def take(self, slot: int, ids: Sequence[int] | Integers) -> None:
        """Note that the slot's episode has `ids` in the store, computed by another slot's episode."""
        self.fed[slot] = self.held[slot] = len(ids)
        self.texts[slot, : len(ids)] = ids


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts have in common at their beginning."""
    length = min(len(first), len(second))
    differs = np.asarray(first[:length]) != np.asarray(second[:length])
    return int(differs.argmax()) if differs.any() else length
