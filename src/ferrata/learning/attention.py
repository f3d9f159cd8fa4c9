"""Attention over packed sequences, for learning: roots by themselves, branches over their root and themselves.

    packed(model)      switch a transformers model to it, and back
    packed_attention   what each layer then calls, with the `layout` that was handed to the model

Linear layers see the packed tokens as they are; only here they are laid out as rows, padded on the right.

Shape legend: T = packed tokens; R = roots, L = the longest; B = branches, S = the longest; H = heads, K = key-value
heads, D = head dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from ferrata.learning.packing import Layout, Rows
from ferrata.models.variants import refuse_variants

ATTENTION = "ferrata_packed"
"""Name of `packed_attention` in transformers' table."""


@contextmanager
def packed(model: PreTrainedModel) -> Iterator[None]:
    """Within this block, the model computes packed sequences; it needs `layout` with every call."""
    AttentionInterface.register(ATTENTION, packed_attention)
    before, model.config._attn_implementation = model.config._attn_implementation, ATTENTION
    try:
        yield
    finally:
        model.config._attn_implementation = before


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    layout: Layout | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of packed queries (1, H, T, D) over packed keys and values (1, K, T, D); returns (1, T, H, D).

    Raises:
        PolicyError: the model asks for another attention than full causal attention.
    """
    assert layout is not None, "packed attention runs inside a learner only"
    refuse_variants(kwargs, int(layout.positions.max()) + 1, "the learner")
    query_THD, key_TKD, value_TKD = (states[0].transpose(0, 1) for states in (query, key, value))
    heads = query_THD.shape[1] // key_TKD.shape[1]
    rows, split = layout.root_rows, layout.root_rows.packed
    root_query, root_keys, root_values = (_laid_out(states[:split], rows) for states in (query_THD, key_TKD, value_TKD))
    made = scaled_dot_product_attention(
        _headed(root_query, 1), _headed(root_keys, heads), _headed(root_values, heads), is_causal=True, scale=scaling
    )
    parts = [_packed_again(made.transpose(1, 2), rows)]
    if layout.branches:
        own = [_laid_out(states[split:], layout.branch_rows) for states in (query_THD, key_TKD, value_TKD)]
        parts.append(_branches(own, root_keys, root_values, layout, heads, scaling))
    return torch.cat(parts)[None], None


def _branches(
    own: list[Tensor], root_keys: Tensor, root_values: Tensor, layout: Layout, heads: int, scaling: float | None
) -> Tensor:
    """Attention of the branches' tokens; returns them packed."""
    query, keys, values = own
    keys, values = (
        torch.cat([_of_parents(of_root, layout), mine], dim=1)
        for of_root, mine in ((root_keys, keys), (root_values, values))
    )
    made = scaled_dot_product_attention(
        _headed(query, 1),
        _headed(keys, heads),
        _headed(values, heads),
        attn_mask=layout.branch_mask,
        scale=scaling,
    )
    return _packed_again(made.transpose(1, 2), layout.branch_rows)


def _of_parents(of_root: Tensor, layout: Layout) -> Tensor:
    """(R, L, K, D) -> (B, L, K, D): each branch's root."""
    if len(layout.roots) == 1:
        return of_root.expand(len(layout.branches), -1, -1, -1)
    return of_root.index_select(0, layout.parent_rows)


def _headed(states: Tensor, repeats: int) -> Tensor:
    """(rows, width, K, D) -> (rows, K * repeats, width, D)."""
    states = states.transpose(1, 2)
    return states if repeats == 1 else states.repeat_interleave(repeats, dim=1)


def _laid_out(states: Tensor, rows: Rows) -> Tensor:
    """(packed, heads, D) -> (rows, width, heads, D). Padding repeats a token, and nobody sees what becomes of it."""
    return _taken(states, rows.source, rows.full).view(rows.count, rows.width, *states.shape[1:])


def _packed_again(states: Tensor, rows: Rows) -> Tensor:
    """(rows, width, heads, D) -> (packed, heads, D)."""
    flat = states.reshape(-1, *states.shape[2:])
    return _taken(flat, rows.place, rows.full).view(rows.packed, *states.shape[2:])


def _taken(states: Tensor, places: Tensor, all_of_them: bool) -> Tensor:
    """The states at these places; as an embedding, whose backward pass adds rows up in one go."""
    flat = states.flatten(1)
    return flat if all_of_them else functional.embedding(places, flat)
