"""The packed forward pass of a Llama-like model, computed on the model's own weights without transformers in between.

A small model spends more time in Python between its layers than in arithmetic. This module runs the same operations
in the same order on the same parameters, never on copies of them. `passes.fast_pass` uses it only where it has shown,
on the model at hand, that it gives the model's own logits.

    decoder_of   the decoder of a model, or None for a model of another make

Shape legend: T packed tokens; R rows whose logits are wanted; E width of the model; H heads; K key-value heads;
D head dimension; V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Module
from torch.nn.functional import linear, silu
from transformers import PreTrainedModel

from ferrata.sampling.ragged import Packing, SlotCache, attend

_LAYERS = ("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer")
"""Classes of transformers whose layers are: norm, attention with rotary positions, norm, gated feed-forward."""


@dataclass(frozen=True)
class _Norm:
    """Root-mean-square norm, in single precision whatever the weights are in."""

    weight: Tensor
    epsilon: float

    @classmethod
    def of(cls, module: Module) -> _Norm:
        return cls(module.weight, module.variance_epsilon)  # type: ignore[arg-type]

    def __call__(self, x: Tensor) -> Tensor:
        single = x.float()
        scaled = single * torch.rsqrt(single.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * scaled.to(x.dtype)


@dataclass(frozen=True)
class _Matrix:
    """A linear map with the parameters of a module."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, module: Module) -> _Matrix:
        # An adapter (LoRA) wraps the module in a class of its own, whose computation is not this one.
        if type(module) is not Linear:
            raise _UnknownError
        return cls(module.weight, module.bias)

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class _Layer:
    """One layer's parameters, in the order in which they are used."""

    before_attention: _Norm
    query: _Matrix
    key: _Matrix
    value: _Matrix
    query_norm: _Norm | None
    key_norm: _Norm | None
    out: _Matrix
    scale: float
    before_feeding: _Norm
    gate: _Matrix
    up: _Matrix
    down: _Matrix

    @classmethod
    def of(cls, layer: Any) -> _Layer:
        if type(layer).__name__ not in _LAYERS or layer.mlp.config.hidden_act != "silu":
            raise _UnknownError
        attention, mlp = layer.self_attn, layer.mlp
        query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
        return cls(
            before_attention=_Norm.of(layer.input_layernorm),
            query=_Matrix.of(attention.q_proj),
            key=_Matrix.of(attention.k_proj),
            value=_Matrix.of(attention.v_proj),
            query_norm=None if query_norm is None else _Norm.of(query_norm),
            key_norm=None if key_norm is None else _Norm.of(key_norm),
            out=_Matrix.of(attention.o_proj),
            scale=attention.scaling,
            before_feeding=_Norm.of(layer.post_attention_layernorm),
            gate=_Matrix.of(mlp.gate_proj),
            up=_Matrix.of(mlp.up_proj),
            down=_Matrix.of(mlp.down_proj),
        )

    def attention(self, x_TE: Tensor, turn: _Rotation, cache: SlotCache, packing: Packing, index: int) -> Tensor:
        """Mix of the values (T, H * D), before the output map; keys and values are in the store afterwards."""
        dim, tokens = cache.store.shape[-1], len(x_TE)
        queries, keys = self.query(x_TE).view(tokens, -1, dim), self.key(x_TE).view(tokens, -1, dim)
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = self.query_norm(queries), self.key_norm(keys)
        both = torch.cat([queries, keys, self.value(x_TE).view(tokens, -1, dim)], dim=1)
        heads, stored = queries.shape[1], keys.shape[1]
        turn(both[:, : heads + stored])
        key, value = cache.write(both[:, heads:], index)
        return attend(both[:, :heads], key, value, packing, self.scale).flatten(1)

    def feed(self, x: Tensor) -> Tensor:
        return self.down(silu(self.gate(x)).mul_(self.up(x)))


@dataclass(frozen=True)
class _Rotation:
    """Rotary positions: (a, b) -> (a cos - b sin, b cos + a sin), a and b the halves of a head's dimensions."""

    cosines: Tensor
    """(T, 1, D)"""
    sines: Tensor
    """(T, 1, D)"""

    def __call__(self, heads_THD: Tensor) -> None:
        """Turn in place."""
        half = heads_THD.shape[-1] // 2
        first, second = heads_THD[..., :half] * self.sines[..., half:], heads_THD[..., half:] * self.sines[..., :half]
        heads_THD.mul_(self.cosines)
        heads_THD[..., :half].sub_(second)
        heads_THD[..., half:].add_(first)


@dataclass(frozen=True)
class Decoder:
    """The parameters of a model in the order in which they are used."""

    embedding: Tensor
    rotary: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    layers: list[_Layer]
    norm: _Norm
    head: _Matrix

    def __call__(
        self, tokens_T: Tensor, positions_T: Tensor, last_R: Tensor, packing: Packing, cache: SlotCache
    ) -> Tensor:
        """Logits (R, V) of the tokens that follow those at `last_R`; the store then holds all T tokens."""
        x = self.embedding[tokens_T]
        cosines, sines = self.rotary(x, positions_T[None])
        turn = _Rotation(cosines[0][:, None], sines[0][:, None])
        for index, layer in enumerate(self.layers):
            x = x + layer.out(layer.attention(layer.before_attention(x), turn, cache, packing, index))
            x = x + layer.feed(layer.before_feeding(x))
        return self.head(self.norm(x[last_R]))


class _UnknownError(Exception):
    """The model has a part that this module does not compute."""


def decoder_of(model: PreTrainedModel) -> Decoder | None:
    """The decoder of a model; None for a model of another make, or with adapters."""
    body, head = getattr(model, "model", None), model.get_output_embeddings()
    try:
        layers = [_Layer.of(layer) for layer in getattr(body, "layers", ())]
        if body is None or not layers:
            return None
        return Decoder(body.embed_tokens.weight, body.rotary_emb, layers, _Norm.of(body.norm), _Matrix.of(head))
    except (_UnknownError, AttributeError):
        return None
