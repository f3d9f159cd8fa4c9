"""One packed forward pass over the key-value store of all episodes.

Episodes stand at different lengths and bring different numbers of new tokens: one where a turn is being sampled,
many where an observation is read. All new tokens of a step are packed into one sequence, so that the model's linear
layers see no padding. The model is an ordinary transformers model; it reaches this module at two points:

    SlotCache.update      each layer writes its new keys and values into the store
    ragged_attention      each layer's attention, over the store

`decoder` reaches the store without transformers in between:

    SlotCache.write       the same, for keys and values that stand side by side
    attend                the attention itself

    Packing     which token belongs where; built once a step, used by every layer
    KeyValues   the preallocated store

Shape legend: T packed tokens; n live episodes; P episodes that read; Q most new tokens of one of them;
L longest episode; H heads; K key-value heads; G = H / K; D head dimension; S slots; C capacity in tokens.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache

from ferrata.errors import PolicyError
from ferrata.models.variants import refuse_variants

ATTENTION = "ferrata_ragged"
"""Name of `ragged_attention` in transformers' table."""

LONG_TOKENS = 512
"""From this length on, attention of sampling episodes is computed in blocks of `BLOCK_SLOTS` slots."""
BLOCK_SLOTS = 4

Integers = NDArray[np.int64]


@dataclass
class Packing:
    """Where each of the T packed tokens belongs: first one per sampling episode, then those of P reading ones."""

    slots: Integers
    """Slot of each token (T)."""
    positions: Integers
    """Position of each token in its episode (T)."""
    sampling: int
    """How many leading tokens belong to sampling episodes, one each, in the order of their slots."""
    counts: Integers
    """New tokens of each reading episode (P)."""
    live: int
    """n: slots 0..n-1 are in use."""
    device: torch.device

    @cached_property
    def sampling_slots(self) -> Tensor:
        """The sampling episodes' slots; they are also the rows of the dense sampling batch."""
        return self._tensor(self.slots[: self.sampling])

    @cached_property
    def dense(self) -> bool:
        """True when every live episode is sampling, so that token and slot numbers agree."""
        return self.sampling == self.live

    @cached_property
    def longest(self) -> int:
        """L of the sampling episodes."""
        return int(self.positions[: self.sampling].max()) + 1

    @cached_property
    def sampling_mask(self) -> Tensor:
        """Additive mask (n, 1, 1, L) of the sampling episodes: 0 where a position may be seen, else -inf."""
        last_n = np.zeros(self.live, dtype=np.int64)
        last_n[self.slots[: self.sampling]] = self.positions[: self.sampling]
        unseen_nL = torch.arange(self.longest, device=self.device) > self._tensor(last_n)[:, None]
        return torch.zeros(unseen_nL.shape, device=self.device).masked_fill_(unseen_nL, -torch.inf)[:, None, None]

    @cached_property
    def blocks(self) -> list[tuple[int, int, int]]:
        """Neighbouring slots as (begin, end, longest of those that sample, 0 when none does).

        Short episodes are one block. Among long ones, each block pays for its own longest alone.
        """
        if self.longest < LONG_TOKENS:
            return [(0, self.live, self.longest)]
        lengths_n = np.zeros(self.live, dtype=np.int64)
        lengths_n[self.slots[: self.sampling]] = self.positions[: self.sampling] + 1
        begins = range(0, self.live, BLOCK_SLOTS)
        return [
            (begin, min(begin + BLOCK_SLOTS, self.live), int(lengths_n[begin : begin + BLOCK_SLOTS].max()))
            for begin in begins
        ]

    @cached_property
    def reading_slots(self) -> Tensor:
        """Slots of the P reading episodes."""
        ends_P = self.sampling + np.cumsum(self.counts)
        return self._tensor(self.slots[ends_P - 1])

    @cached_property
    def longest_reading(self) -> int:
        """L of the reading episodes."""
        return int(self.positions[self.sampling :].max()) + 1

    @cached_property
    def padded_index(self) -> Tensor:
        """For each reading token its place in the padded (P, Q) layout, flattened."""
        rows = np.repeat(np.arange(len(self.counts)), self.counts)
        starts_P = np.cumsum(self.counts) - self.counts
        columns = np.arange(len(rows)) - starts_P[rows]
        return self._tensor(rows * int(self.counts.max()) + columns)

    @cached_property
    def reading_mask(self) -> Tensor:
        """Boolean mask (P, 1, Q, L): a token sees itself and everything before it. Padding sees position 0."""
        shape = (len(self.counts), int(self.counts.max()))
        positions_PQ = torch.zeros(shape, dtype=torch.int64, device=self.device)
        positions_PQ.view(-1)[self.padded_index] = self._tensor(self.positions[self.sampling :])
        keys_L = torch.arange(self.longest_reading, device=self.device)
        return (keys_L <= positions_PQ[:, :, None])[:, None]

    def store_index(self, heads: int, capacity: int) -> Tensor:
        """Row of each (token, key-value head) in the flattened store (T * K)."""
        rows_TK = self.slots[:, None] * heads + np.arange(heads)
        return self._tensor((rows_TK * capacity + self.positions[:, None]).ravel())

    def _tensor(self, values: Integers) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)


class SlotCache(Cache):
    """The keys and values of all episodes, allocated once: a slot per episode, kept from turn to turn."""

    def __init__(self, model: PreTrainedModel, slots: int, capacity: int) -> None:
        super().__init__(layers=[])
        config = model.config.get_text_config()
        self.heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.capacity = capacity
        shape = (config.num_hidden_layers, 2, slots, self.heads, capacity, head_dim)
        self.store = _allocate(shape, model)
        self.index: Tensor | None = None
        self.index_of_both: Tensor | None = None

    def aim(self, packing: Packing) -> None:
        """Say where the next forward pass writes."""
        self.index = packing.store_index(self.heads, self.capacity)
        values = self.index.view(-1, self.heads) + self.store[0, 0, ..., 0].numel()
        self.index_of_both = torch.cat([self.index.view(-1, self.heads), values], dim=1).flatten()

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the packed keys and values (1, K, T, D); return those of all slots (S, K, C, D)."""
        assert self.index is not None, "aim() comes before a forward pass"
        for store, states in zip(self.store[layer_idx], (key_states, value_states), strict=True):
            rows = states[0].transpose(0, 1).reshape(-1, states.shape[-1])
            store.view(-1, states.shape[-1]).index_copy_(0, self.index, rows)
        return self.store[layer_idx, 0], self.store[layer_idx, 1]

    def write(self, both_TED: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Write packed keys and values (T, 2K, D), the keys first; return those of all slots (S, K, C, D)."""
        assert self.index_of_both is not None, "aim() comes before a forward pass"
        store = self.store[layer]
        rows = both_TED.reshape(-1, both_TED.shape[-1])
        store.view(-1, rows.shape[-1]).index_copy_(0, self.index_of_both, rows)
        return store[0], store[1]

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of one slot to another."""
        self.store[:, :, target, :, :length] = self.store[:, :, source, :, :length]


def _allocate(shape: tuple[int, ...], model: PreTrainedModel) -> Tensor:
    """Zeros, not just empty memory: what is masked still enters a product, and 0 times NaN is NaN."""
    needed = math.prod(shape) * model.dtype.itemsize
    try:
        if model.device.type == "cpu" and needed > physical_bytes():
            raise MemoryError("more than this machine has")
        return torch.zeros(shape, dtype=model.dtype, device=model.device)
    except (RuntimeError, MemoryError) as error:
        raise PolicyError(
            f"The keys and values of {shape[2]} episodes of {shape[4]} tokens need {needed / 1e9:.1f} GB, which "
            "cannot be had: lower rollout.episodes_at_once or rollout.max_tokens."
        ) from error


def physical_bytes() -> int:
    """Memory of this machine (bytes)."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def ragged_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    packing: Packing | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of packed queries (1, H, T, D) over the store (S, K, C, D); returns (1, T, H, D)."""
    assert packing is not None, "ragged attention runs inside a sampler only"
    refuse_variants(kwargs, key.shape[2], "the local sampler")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    return attend(query[0].transpose(0, 1), key, value, packing, scale).unsqueeze(0), None


def attend(query_THD: Tensor, key: Tensor, value: Tensor, packing: Packing, scale: float) -> Tensor:
    """Attention of packed queries over the store (S, K, C, D); returns (T, H, D)."""
    parts = []
    if packing.sampling:
        parts.append(_sampling_attention(query_THD[: packing.sampling] * scale, key, value, packing))
    if len(packing.counts):
        parts.append(_reading_attention(query_THD[packing.sampling :], key, value, packing, scale))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _sampling_attention(query_MHD: Tensor, key: Tensor, value: Tensor, packing: Packing) -> Tensor:
    """One query per sampling episode, over all live slots at once.

    Two batched products are several times faster here than the fused kernel, which is made for many queries.
    """
    query_nHD = query_MHD
    if not packing.dense:
        query_nHD = query_MHD.new_zeros(packing.live, *query_MHD.shape[1:]).index_copy_(
            0, packing.sampling_slots, query_MHD
        )
    parts = [_block_attention(query_nHD, key, value, packing, *block) for block in packing.blocks]
    mixed = parts[0] if len(parts) == 1 else torch.cat(parts)
    return mixed if packing.dense else mixed.index_select(0, packing.sampling_slots)


def _block_attention(
    query_nHD: Tensor, key: Tensor, value: Tensor, packing: Packing, begin: int, end: int, longest: int
) -> Tensor:
    """Attention of the slots from `begin` to `end`, which see at most `longest` tokens; zeros where none samples."""
    query, (_, heads, capacity, dim) = query_nHD[begin:end], key.shape
    if not longest:
        return torch.zeros_like(query)
    grouped = query.reshape((end - begin) * heads, -1, dim)
    keys, values = (store[begin:end].view(-1, capacity, dim)[:, :longest] for store in (key, value))
    scores = torch.bmm(grouped, keys.transpose(1, 2)).view(end - begin, heads, -1, longest)
    weights = scores.add_(packing.sampling_mask[begin:end, ..., :longest]).softmax(dim=-1)
    return torch.bmm(weights.view(len(grouped), -1, longest), values).view(end - begin, -1, dim)


def _reading_attention(query_MHD: Tensor, key: Tensor, value: Tensor, packing: Packing, scale: float) -> Tensor:
    """Many queries per reading episode: gather their slots, pad the queries, use the fused kernel."""
    visible = packing.reading_mask
    rows, _, most, longest = visible.shape
    heads, dim = query_MHD.shape[1:]
    padded = query_MHD.new_zeros(rows * most, heads, dim).index_copy_(0, packing.padded_index, query_MHD)
    keys, values = (store[:, :, :longest].index_select(0, packing.reading_slots) for store in (key, value))
    if heads != key.shape[1]:
        group = heads // key.shape[1]
        keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
    mixed = scaled_dot_product_attention(
        padded.view(rows, most, heads, dim).transpose(1, 2), keys, values, attn_mask=visible, scale=scale
    )
    return mixed.transpose(1, 2).reshape(-1, heads, dim).index_select(0, packing.padded_index)


def register() -> None:
    """Make `ragged_attention` known to transformers; doing it again changes nothing."""
    AttentionInterface.register(ATTENTION, ragged_attention)
