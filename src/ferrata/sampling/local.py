"""The sampler on this machine: continuous batching over one preallocated key-value store.

Each `advance` runs one packed forward pass (see `ragged`) in which every waiting episode takes part: those in the
middle of a turn with one token, those that were handed an observation with all of it. Nothing that was read is read
again. Live episodes keep to slots 0..n-1, so that attention runs over one contiguous block of the store.

Shape legend: S slots; R rows (episodes that get a token in this step); T packed tokens; V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ferrata.errors import PolicyError, SamplerFault, UsageError
from ferrata.models.policy import Policy
from ferrata.sampling.closing import Closings
from ferrata.sampling.constraining import Constraints
from ferrata.sampling.decoder import Decoder
from ferrata.sampling.draw import draw
from ferrata.sampling.passes import Pass, fast_pass
from ferrata.sampling.protocol import ActionsOnly, Completion, SamplerClock
from ferrata.sampling.ragged import Integers, Packing, SlotCache, register
from ferrata.sampling.slots import MIN_SHARED_TOKENS, Slots, common
from ferrata.sampling.weights import SamplingWeights

TEMPERATURES = (0.01, 100.0)
"""Lowest and highest temperature, beside 0.0: below, logits divided by it leave the range of single precision; above,
nothing of what the policy has learnt is left."""
MAX_READING_TOKENS = 8192
"""Most tokens that one step reads, padding to the longest text included; the rest waits for the next step. Bounds the
memory of a step."""


@dataclass
class SamplerCounts:
    """Tokens since the sampler was made."""

    read: int = 0
    """Handed over as openings and observations, and computed."""
    shared: int = 0
    """Handed over as openings, and found in the store instead."""
    sampled: int = 0


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
        stop: what ends a turn before its budget does: 'turn', the end-of-turn token; 'json', that token or the end of
            the JSON object that names an action, whichever comes first.
        dtype: what to compute in; None means what the policy's weights are in.
        apart: compute with a copy of the weights, so that the policy may learn while episodes are open.

    Raises:
        PolicyError: the model's attention is of a kind that a packed pass cannot compute, or its tokenizer cannot
            say where a JSON object ends.
        SamplerFault: the weights are not finite, or did not reach the copy that samples.
    """

    def __init__(
        self,
        policy: Policy,
        slots: int,
        max_length: int,
        stop: Literal["turn", "json"] = "turn",
        *,
        dtype: torch.dtype | None = None,
        apart: bool = False,
    ) -> None:
        _check(policy)
        register()
        self.weights = SamplingWeights(policy.model, dtype, apart)
        self.model = self.weights.model
        self.max_length = min(max_length, policy.context)
        self.version = 0
        self.clock = SamplerClock()
        """Where its time went so far."""
        self.counts = SamplerCounts()
        self._slots = slots
        self._cache = SlotCache(self.model, slots, self.max_length)
        self.forward: Pass = fast_pass(self.model, self._cache)
        """What computes the logits of a step."""
        self._state = Slots.make(slots, self.max_length)
        self._keys: list[int] = []
        self._slot_of: dict[int, int] = {}
        self._pending: dict[int, list[int]] = {}
        self._closings = Closings(policy.tokenizer) if stop == "json" else None
        self._constraints = Constraints(policy, stop)
        self._stops = np.array(sorted(policy.chat.stop_ids), dtype=np.int64)
        self._sound = True
        """The published weights are those that sample."""

    @property
    def free(self) -> int:
        """Episodes that can be opened now."""
        return self._slots - len(self._keys)

    def open(self, key: int, seed: int, temperature: float, only: ActionsOnly | None = None) -> None:
        """Begin an episode. `seed` decides all its draws; temperature 0.0 is greedy; `only` constrains what it says.

        Raises:
            SamplerFault: the last `publish` failed.
            UsageError: the temperature is out of bounds, or llguidance is not installed.
            PolicyError: the policy's tokenizer does not say which bytes its tokens stand for.
            TaskError: a tool's schema says something that cannot be held to.
        """
        assert self.free > 0, "no slot is free"
        assert key not in self._slot_of, f"episode {key} is open already"
        if not self._sound:
            raise SamplerFault("This sampler does not hold the published weights: nothing may be sampled with it.")
        lowest, highest = TEMPERATURES
        if temperature != 0.0 and not lowest <= temperature <= highest:
            raise UsageError(f"Nothing can be sampled at temperature {temperature}: use 0.0, or {lowest} to {highest}.")
        if only is not None:
            self._constraints.open(key, only)
        if not self._keys and isinstance(self.forward, Decoder):
            # Also without `publish`, nobody is to meet old and new weights side by side.
            self.forward.renew()
        slot = len(self._keys)
        self._keys.append(key)
        self._slot_of[key] = slot
        self._state.clear(slot, seed, temperature)

    def submit(self, key: int, ids: Sequence[int], max_new_tokens: int) -> None:
        """Append new ids to the episode and ask for its next turn of at most `max_new_tokens` tokens.

        Without new ids the last turn goes on.
        """
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
        if self._closings is not None and ids:
            self._closings.begin(key)
        self._constraints.begin(key, ids, max_new_tokens)

    def advance(self) -> list[Completion]:
        """Take one step for all episodes that wait for a turn; return the turns that it finished."""
        started = time.perf_counter()
        step = self._plan()
        if step is None:
            return []
        with torch.inference_mode():
            logits_RV = self._forward(step)
            slots = step.slots
            uniforms = self._state.uniforms[slots, self._state.drawn[slots]]
            temperature = self._state.temperature[slots]
            tokens_R, logprobs_R = self._draw(logits_RV, slots, temperature, uniforms)
        completions = self._note(slots, tokens_R, logprobs_R)
        self.counts.read += len(step.tokens) - step.packing.sampling
        self.counts.sampled += len(slots)
        self._count_seconds(step, time.perf_counter() - started)
        return completions

    def close(self, key: int) -> None:
        """Forget the episode, also in the middle of a turn. The last slot moves into the freed one.

        With the last episode everything that was read is forgotten, so that what is sampled next depends on nothing
        that was sampled before: a run that was interrupted goes on as one that was not.
        """
        slot = self._slot_of.pop(key)
        self._pending.pop(key, None)
        self._constraints.forget(key)
        if self._closings is not None:
            self._closings.forget(key)
        last_key, last_slot = self._keys.pop(), len(self._keys)
        if last_slot != slot:
            self._cache.copy(last_slot, slot, int(self._state.fed[last_slot]))
            self._state.move(last_slot, slot)
            self._keys[slot] = last_key
            self._slot_of[last_key] = slot
        if not self._keys:
            self._state.forget()

    def publish(self, version: int) -> None:
        """The weights have changed: what open episodes have read would be stale, so none may be open.

        Raises:
            SamplerFault: the new weights did not reach the model that samples, or are not finite.
        """
        assert not self._keys, "publish() while episodes are open"
        self._sound = False
        self.weights.refresh()
        self._state.forget()
        self.forward = fast_pass(self.model, self._cache)
        self._sound, self.version = True, version

    def shutdown(self) -> None:
        """There is nothing to release: all that it holds goes when it goes."""

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
        """Take what this step reads: (slot, ids) of the readers, and (slot, leader) of those with the same opening.

        An opening that begins as another one of this step does waits for the next step, and is read from there on.
        """
        readers: list[tuple[int, list[int]]] = []
        followers: list[tuple[int, int]] = []
        leaders: dict[tuple[int, ...], int] = {}
        for key, ids in list(self._pending.items()):
            slot = self._slot_of[key]
            opening = tuple(ids) if self._state.fed[slot] == 0 else None
            if opening is not None and opening in leaders:
                followers.append((slot, leaders[opening]))
                self.counts.shared += len(ids)
            elif _too_much(readers, ids) or (opening is not None and self._is_read_now(opening, leaders)):
                continue
            elif opening is not None:
                leaders[opening] = slot
                readers.append((slot, self._share(slot, ids)))
            else:
                readers.append((slot, ids))
            del self._pending[key]
        return readers, followers

    def _is_read_now(self, opening: Sequence[int], leaders: Collection[Sequence[int]]) -> bool:
        """True when this step already reads a beginning of the opening that the store does not hold yet."""
        if len(opening) <= MIN_SHARED_TOKENS or not leaders:
            return False
        held = self._state.beginning(opening)[1]
        return max(common(opening, other) for other in leaders) >= max(held + 1, MIN_SHARED_TOKENS)

    def _share(self, slot: int, ids: list[int]) -> list[int]:
        """Copy what the store holds of an opening into its slot; return the rest, which has to be read."""
        source, length = self._state.beginning(ids)
        if length:
            if source != slot:
                self._cache.copy(source, slot, length)
            self._state.take(slot, ids[:length])
            self.counts.shared += length
        return ids[length:]

    def _forward(self, step: _Step) -> Tensor:
        """Logits (R, V) of each row's next token; the store then holds everything that was fed."""
        state, fed_rows, packing = self._state, len(step.fed), step.packing
        self._cache.aim(packing)
        tokens, positions, last = (self._tensor(values) for values in (step.tokens, packing.positions, step.fed))
        fed_slots = step.slots[:fed_rows]
        state.held[fed_slots] = state.fed[fed_slots]
        logits = self.forward(tokens, positions, last, packing, self._cache)
        state.texts[packing.slots, packing.positions] = step.tokens
        state.fed[fed_slots] = state.held[fed_slots] = packing.positions[step.fed] + 1
        for slot, row in zip(step.slots[fed_rows:], step.sources[fed_rows:], strict=True):
            leader = int(step.slots[row])
            length = int(state.fed[leader])
            self._cache.copy(leader, int(slot), length)
            state.take(int(slot), state.texts[leader, :length])
        return logits if len(step.slots) == fed_rows else logits[self._tensor(step.sources)]

    def _draw(
        self, logits_RV: Tensor, slots_R: Integers, temperature_R: np.ndarray, uniforms_R: np.ndarray
    ) -> tuple[Integers, np.ndarray]:
        """One token for each row and its log-probability; constrained episodes draw from what they may say."""
        constrained = bool(self._constraints)
        if constrained:
            keys = [self._keys[slot] for slot in slots_R]
            left = (self._state.budget - self._state.count)[slots_R].tolist()
            logits_RV = self._constraints.bar(logits_RV, keys, left)
        drawn = draw(logits_RV, self._tensor(temperature_R), self._tensor(uniforms_R))
        tokens_R, logprobs_R = (values.cpu().numpy() for values in drawn)
        if constrained:
            self._constraints.follow(keys, tokens_R, logprobs_R, left)
        return tokens_R, logprobs_R

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
        if self._closings is not None:
            pairs = zip(slots_R, tokens_R, strict=True)
            stopped_R |= [self._closings.closes(self._keys[slot], int(token)) for slot, token in pairs]
        done_R = stopped_R | (state.count[slots_R] >= state.budget[slots_R])
        state.sampling[slots_R] = ~done_R
        return [self._completion(int(slots_R[row]), bool(stopped_R[row])) for row in np.flatnonzero(done_R)]

    def _count_seconds(self, step: _Step, seconds: float) -> None:
        """Divide the time of a step between reading and sampling, by their share of its packed tokens."""
        sampling = seconds * step.packing.sampling / len(step.tokens)
        self.clock = SamplerClock(self.clock.prefill + seconds - sampling, self.clock.decode + sampling)

    def _completion(self, slot: int, stopped: bool) -> Completion:
        count = int(self._state.count[slot])
        tokens, logprobs = self._state.tokens[slot, :count], self._state.logprobs[slot, :count]
        return Completion(self._keys[slot], tokens.tolist(), logprobs.tolist(), stopped)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.model.device)


def _too_much(readers: list[tuple[int, list[int]]], ids: list[int]) -> bool:
    """True when a step that already reads these texts has no room for one more."""
    longest = max((len(read) for _, read in readers), default=0)
    return bool(readers) and (len(readers) + 1) * max(longest, len(ids)) > MAX_READING_TOKENS


def _check(policy: Policy) -> None:
    """Refuse models that a packed pass cannot compute."""
    config = policy.model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds or not policy.model._supports_attention_backend:
        found = f"layers of kind {', '.join(sorted(kinds))}" if kinds else "its own attention code"
        raise PolicyError(f"Policy '{policy.name}' has {found}; the local sampler needs full attention in every layer.")
