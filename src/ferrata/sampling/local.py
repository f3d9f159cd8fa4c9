"""The sampler on this machine: continuous batching over one preallocated key-value store.

Each `advance` runs one packed forward pass (see `ragged`) in which every waiting episode takes part: those in the
middle of a turn with one token, those that were handed an observation with all of it. Nothing that was read is read
again. Live episodes keep to slots 0..n-1, so that attention runs over one contiguous block of the store.

Shape legend: S slots; R rows (episodes that get a token in this step); T packed tokens; V vocabulary.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ferrata.errors import PolicyError
from ferrata.models.policy import Policy
from ferrata.sampling.draw import draw
from ferrata.sampling.protocol import Completion
from ferrata.sampling.ragged import ATTENTION, Integers, Packing, SlotCache, register

MAX_READING_TOKENS = 8192
"""Most tokens that one step reads, padding to the longest text included; the rest waits for the next step. Bounds the
memory of a step."""


@dataclass
class _Slots:
    """What is known about the episode in each slot; arrays of length S."""

    fed: Integers
    """Tokens whose keys and values are in the store."""
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

    @classmethod
    def make(cls, slots: int, capacity: int) -> _Slots:
        """Empty slots."""
        fed, last, count, budget, drawn = (np.zeros(slots, dtype=np.int64) for _ in range(5))
        sampling, temperature = np.zeros(slots, dtype=bool), np.ones(slots, dtype=np.float32)
        uniforms, logprobs = np.zeros((slots, capacity)), np.zeros((slots, capacity))
        tokens = np.zeros((slots, capacity), dtype=np.int64)
        return cls(fed, last, count, budget, drawn, sampling, temperature, uniforms, tokens, logprobs)

    def move(self, source: int, target: int) -> None:
        """Copy the state of one slot to another."""
        for array in vars(self).values():
            array[target] = array[source]

    def clear(self, slot: int, seed: int, temperature: float) -> None:
        """Begin an episode."""
        for array in (self.fed, self.last, self.count, self.budget, self.drawn, self.sampling):
            array[slot] = 0
        self.temperature[slot] = temperature
        self.uniforms[slot] = np.random.default_rng(seed).random(self.uniforms.shape[1])


@dataclass
class _Step:
    """One packed forward pass."""

    tokens: Integers
    """The T packed tokens."""
    packing: Packing
    fed: Integers
    """Place of the last token of each row that is fed, among the T."""
    slots: Integers
    """Slots that get a token (R): the fed rows in order, then those that share another's opening."""
    sources: Integers
    """Which fed row's logits each of them uses."""


class LocalSampler:
    """Samples with a transformers model on this machine. Fulfils `protocol.Sampler`.

    Args:
        policy: model, tokenizer and chat; its weights may change between episodes, see `publish`.
        slots: episodes at once.
        max_length: tokens of one episode in all; the model's own context bounds it as well.

    Raises:
        PolicyError: the model's attention is of a kind that a packed pass cannot compute.
    """

    def __init__(self, policy: Policy, slots: int, max_length: int) -> None:
        _check(policy)
        register()
        self.model = policy.model
        self.max_length = min(max_length, _context(policy.model))
        self.version = 0
        self._slots = slots
        self._cache = SlotCache(policy.model, slots, self.max_length)
        self._state = _Slots.make(slots, self.max_length)
        self._keys: list[int] = []
        self._slot_of: dict[int, int] = {}
        self._pending: dict[int, list[int]] = {}
        self._stops = np.array(sorted(policy.chat.stop_ids), dtype=np.int64)

    @property
    def free(self) -> int:
        """Episodes that can be opened now."""
        return self._slots - len(self._keys)

    def open(self, key: int, seed: int, temperature: float) -> None:
        """Begin an episode. `seed` decides all its draws; temperature 0.0 is greedy."""
        assert self.free > 0, "no slot is free"
        assert key not in self._slot_of, f"episode {key} is open already"
        slot = len(self._keys)
        self._keys.append(key)
        self._slot_of[key] = slot
        self._state.clear(slot, seed, temperature)

    def submit(self, key: int, ids: Sequence[int], max_new_tokens: int) -> None:
        """Append new ids to the episode and ask for its next turn of at most `max_new_tokens` tokens."""
        slot, state = self._slot_of[key], self._state
        in_turn = bool(state.sampling[slot]) or key in self._pending
        assert not in_turn, f"episode {key} is still in a turn"
        unfed = [int(state.last[slot])] if state.drawn[slot] else []
        pending = [*unfed, *ids]
        total = int(state.fed[slot]) + len(pending) + max_new_tokens
        assert min(len(pending), max_new_tokens) > 0, "a turn needs something to read and room to answer"
        assert total <= self.max_length, f"{total} tokens do not fit in {self.max_length}"
        state.budget[slot] = max_new_tokens
        state.count[slot] = 0
        self._pending[key] = pending

    def advance(self) -> list[Completion]:
        """Take one step for all episodes that wait for a turn; return the turns that it finished."""
        step = self._plan()
        if step is None:
            return []
        with torch.inference_mode():
            logits_RV = self._forward(step)
            slots = step.slots
            uniforms = self._state.uniforms[slots, self._state.drawn[slots]]
            temperature = self._state.temperature[slots]
            drawn = draw(logits_RV, self._tensor(temperature), self._tensor(uniforms))
        tokens_R, logprobs_R = (values.cpu().numpy() for values in drawn)
        return self._note(slots, tokens_R, logprobs_R)

    def close(self, key: int) -> None:
        """Forget the episode, also in the middle of a turn. The last slot moves into the freed one."""
        slot = self._slot_of.pop(key)
        self._pending.pop(key, None)
        last_key, last_slot = self._keys.pop(), len(self._keys)
        if last_slot != slot:
            self._cache.copy(last_slot, slot, int(self._state.fed[last_slot]))
            self._state.move(last_slot, slot)
            self._keys[slot] = last_key
            self._slot_of[last_key] = slot

    def publish(self, version: int) -> None:
        """The weights have changed: what open episodes have read would be stale, so none may be open."""
        assert not self._keys, "publish() while episodes are open"
        self.version = version

    # One step ---------------------------------------------------------------------------------------------------

    def _plan(self) -> _Step | None:
        """Gather the tokens of all waiting episodes; None when nobody waits."""
        state, live = self._state, len(self._keys)
        sampling = np.flatnonzero(state.sampling[:live])
        readers, followers = self._take_pending()
        if not len(sampling) and not readers:
            return None
        slots_P = np.array([slot for slot, _ in readers], dtype=np.int64)
        counts_P = np.array([len(ids) for _, ids in readers], dtype=np.int64)
        read = [np.array(ids, dtype=np.int64) for _, ids in readers]
        positions = [np.arange(len(ids)) + state.fed[slot] for slot, ids in readers]
        packing = Packing(
            slots=np.concatenate([sampling, np.repeat(slots_P, counts_P)]),
            positions=np.concatenate([state.fed[sampling], *positions]),
            sampling=len(sampling),
            counts=counts_P,
            live=live,
            device=self.model.device,
        )
        leader_row = {slot: len(sampling) + row for row, (slot, _) in enumerate(readers)}
        rows = np.arange(len(sampling) + len(readers))
        return _Step(
            tokens=np.concatenate([state.last[sampling], *read]),
            packing=packing,
            fed=np.concatenate([np.arange(len(sampling)), len(sampling) + np.cumsum(counts_P) - 1]),
            slots=np.concatenate([sampling, slots_P, np.array([slot for slot, _ in followers], dtype=np.int64)]),
            sources=np.concatenate([rows, np.array([leader_row[leader] for _, leader in followers], dtype=np.int64)]),
        )

    def _take_pending(self) -> tuple[list[tuple[int, list[int]]], list[tuple[int, int]]]:
        """Take what this step reads: (slot, ids) of the readers, and (slot, leader) of those with the same opening."""
        readers: list[tuple[int, list[int]]] = []
        followers: list[tuple[int, int]] = []
        leaders: dict[tuple[int, ...], int] = {}
        longest = 0
        for key, ids in list(self._pending.items()):
            slot = self._slot_of[key]
            opening = tuple(ids) if self._state.fed[slot] == 0 else None
            if opening is not None and opening in leaders:
                followers.append((slot, leaders[opening]))
            elif readers and (len(readers) + 1) * max(longest, len(ids)) > MAX_READING_TOKENS:
                continue
            else:
                readers.append((slot, ids))
                longest = max(longest, len(ids))
                if opening is not None:
                    leaders[opening] = slot
            del self._pending[key]
        return readers, followers

    def _forward(self, step: _Step) -> Tensor:
        """Logits (R, V) of each row's next token; the store then holds everything that was fed."""
        self._cache.aim(step.packing)
        with _ragged(self.model):
            output = self.model(
                input_ids=self._tensor(step.tokens)[None],
                position_ids=self._tensor(step.packing.positions)[None],
                cache=self._cache,
                use_cache=True,
                logits_to_keep=self._tensor(step.fed),
                packing=step.packing,
            )
        fed_rows = len(step.fed)
        self._state.fed[step.slots[:fed_rows]] = step.packing.positions[step.fed] + 1
        for slot, row in zip(step.slots[fed_rows:], step.sources[fed_rows:], strict=True):
            leader = int(step.slots[row])
            self._state.fed[slot] = self._state.fed[leader]
            self._cache.copy(leader, int(slot), int(self._state.fed[leader]))
        logits: Tensor = output.logits[0]
        return logits if len(step.slots) == fed_rows else logits[self._tensor(step.sources)]

    def _note(self, slots_R: Integers, tokens_R: Integers, logprobs_R: np.ndarray) -> list[Completion]:
        """Write the drawn tokens down and return the turns that they end."""
        state = self._state
        column_R = state.count[slots_R]
        state.tokens[slots_R, column_R] = tokens_R
        state.logprobs[slots_R, column_R] = logprobs_R
        state.last[slots_R] = tokens_R
        state.count[slots_R] += 1
        state.drawn[slots_R] += 1
        stopped_R = np.isin(tokens_R, self._stops)
        done_R = stopped_R | (state.count[slots_R] >= state.budget[slots_R])
        state.sampling[slots_R] = ~done_R
        return [self._completion(int(slots_R[row]), bool(stopped_R[row])) for row in np.flatnonzero(done_R)]

    def _completion(self, slot: int, stopped: bool) -> Completion:
        count = int(self._state.count[slot])
        tokens, logprobs = self._state.tokens[slot, :count], self._state.logprobs[slot, :count]
        return Completion(self._keys[slot], tokens.tolist(), logprobs.tolist(), stopped)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.model.device)


@contextmanager
def _ragged(model: PreTrainedModel) -> Iterator[None]:
    """Switch the model to packed attention and evaluation mode, and back."""
    before, training = model.config._attn_implementation, model.training
    model.config._attn_implementation = ATTENTION
    if training:
        model.eval()
    try:
        yield
    finally:
        model.config._attn_implementation = before
        if training:
            model.train()


def _check(policy: Policy) -> None:
    """Refuse models that a packed pass cannot compute."""
    config = policy.model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds or not policy.model._supports_attention_backend:
        found = f"layers of kind {', '.join(sorted(kinds))}" if kinds else "its own attention code"
        raise PolicyError(f"Policy '{policy.name}' has {found}; the local sampler needs full attention in every layer.")


def _context(model: PreTrainedModel) -> int:
    """Tokens that the model was made to read."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", sys.maxsize))
