"""The packed forward pass of a Llama-like model, computed on the model's own weights without transformers in between.

A small model spends more time in Python between its layers than in arithmetic. This module runs the same arithmetic in
fewer operations: in a small model, maps that read the same input are one product, on a copy of their parameters side by
side; everything else uses the parameters themselves. `passes.fast_pass` uses a decoder only where it has shown, on the
model at hand, that it gives the model's own logits.

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
from torch.nn.functional import linear, rms_norm, silu
from transformers import PreTrainedModel

from ferrata.sampling.ragged import Packing, SlotCache, attend

JOINED_BYTES = 2**26
"""Most memory that the copies of joined parameters may take (bytes); a larger model does without them."""

FEW_ROWS, MANY_WEIGHTS = 64, 2**18
"""A product of few rows with a large matrix is quicker with the matrix in front: a step of SmolLM2-135M with 32 rows
then needs about four fifths of the time (two cores with AVX2). Small matrices gain nothing."""

_LAYERS = ("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer")
"""Classes of transformers whose layers are: norm, attention with rotary positions, norm, gated feed-forward."""


@dataclass(frozen=True)
class _Norm:
    """Root-mean-square norm, in single precision whatever the weights are in."""

    weight: Tensor
    epsilon: float

    @classmethod
    def of(cls, module: Any) -> _Norm:
        return cls(module.weight, module.variance_epsilon)

    def __call__(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            return rms_norm(x, self.weight.shape, self.weight, self.epsilon)
        return self.weight * rms_norm(x.float(), self.weight.shape, None, self.epsilon).to(x.dtype)


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
        if self.bias is None and x.device.type == "cpu" and len(x) <= FEW_ROWS and self.weight.numel() >= MANY_WEIGHTS:
            return torch.mm(self.weight, x.t()).t().contiguous()
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class _Joined:
    """Linear maps of one input, as one map whose outputs stand side by side."""

    parts: tuple[_Matrix, ...]
    whole: Tensor | None
    """A copy of all parts in one; None where they are kept apart."""

    @classmethod
    def of(cls, *modules: Module, copied: bool) -> _Joined:
        parts = tuple(map(_Matrix.of, modules))
        if not copied or any(part.bias is not None for part in parts):
            return cls(parts, None)
        return cls(parts, torch.cat([part.weight.detach() for part in parts]))

    def renew(self) -> None:
        """Copy the parts again."""
        if self.whole is not None:
            torch.cat([part.weight.detach() for part in self.parts], out=self.whole)

    def __call__(self, x_TE: Tensor) -> Tensor:
        # The product with a single row adds in an order that depends on the matrix's size.
        if self.whole is None or len(x_TE) == 1:
            return torch.cat([part(x_TE) for part in self.parts], dim=1)
        return linear(x_TE, self.whole)


@dataclass(frozen=True)
class _Layer:
    """One layer's parameters, in the order in which they are used."""

    before_attention: _Norm
    attended: _Joined
    """Queries, keys and values."""
    query_norm: _Norm | None
    key_norm: _Norm | None
    out: _Matrix
    scale: float
    before_feeding: _Norm
    fed: _Joined
    """The gate and what it lets through."""
    down: _Matrix

    @classmethod
    def of(cls, layer: Any, copied: bool) -> _Layer:
        if type(layer).__name__ not in _LAYERS or layer.mlp.config.hidden_act != "silu":
            raise _UnknownError
        attention, mlp = layer.self_attn, layer.mlp
        query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
        return cls(
            before_attention=_Norm.of(layer.input_layernorm),
            attended=_Joined.of(attention.q_proj, attention.k_proj, attention.v_proj, copied=copied),
            query_norm=None if query_norm is None else _Norm.of(query_norm),
            key_norm=None if key_norm is None else _Norm.of(key_norm),
            out=_Matrix.of(attention.o_proj),
            scale=attention.scaling,
            before_feeding=_Norm.of(layer.post_attention_layernorm),
            fed=_Joined.of(mlp.gate_proj, mlp.up_proj, copied=copied),
            down=_Matrix.of(mlp.down_proj),
        )

    def attention(self, x_TE: Tensor, turn: _Rotation, cache: SlotCache, packing: Packing, index: int) -> Tensor:
        """Mix of the values (T, H * D), before the output map; keys and values are in the store afterwards."""
        stored, dim = cache.heads, cache.store.shape[-1]
        made = self.attended(x_TE).view(len(x_TE), -1, dim)
        turned, heads = made[:, :-stored], made.shape[1] - 2 * stored
        if self.query_norm is not None and self.key_norm is not None:
            turned[:, :heads] = self.query_norm(turned[:, :heads])
            turned[:, heads:] = self.key_norm(turned[:, heads:])
        turn(turned)
        key, value = cache.write(made[:, heads:], index)
        return attend(made[:, :heads], key, value, packing, self.scale).flatten(1)

    def feed(self, x: Tensor) -> Tensor:
        gate, up = self.fed(x).chunk(2, dim=1)
        return self.down(silu(gate).mul_(up))


@dataclass(frozen=True)
class _Rotation:
    """Rotary positions: (a, b) -> (a cos - b sin, b cos + a sin), a and b the halves of a head's dimensions."""

    cosines: Tensor
    """(T, 1, D)"""
    sines: Tensor
    """(T, 1, D), those of the first half negative."""

    @classmethod
    def of(cls, cosines_TD: Tensor, sines_TD: Tensor) -> _Rotation:
        sines = sines_TD.clone()
        sines[:, : sines.shape[1] // 2].neg_()
        return cls(cosines_TD[:, None], sines[:, None])

    def __call__(self, heads_THD: Tensor) -> None:
        """Turn in place."""
        swapped = heads_THD.roll(heads_THD.shape[-1] // 2, dims=-1).mul_(self.sines)
        heads_THD.mul_(self.cosines).add_(swapped)


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
        turn = _Rotation.of(cosines[0], sines[0])
        for index, layer in enumerate(self.layers):
            x = x + layer.out(layer.attention(layer.before_attention(x), turn, cache, packing, index))
            x = x + layer.feed(layer.before_feeding(x))
        return self.head(self.norm(x[last_R]))

    def renew(self) -> None:
        """Take over the weights as they are now. What was copied of them does not follow them by itself."""
        for layer in self.layers:
            layer.attended.renew()
            layer.fed.renew()


class _UnknownError(Exception):
    """The model has a part that this module does not compute."""


def decoder_of(model: PreTrainedModel) -> Decoder | None:
    """The decoder of a model; None for a model of another make, or with adapters."""
    body, head = getattr(model, "model", None), model.get_output_embeddings()
    try:
        copied = _joined_bytes(model) <= JOINED_BYTES
        layers = [_Layer.of(layer, copied) for layer in getattr(body, "layers", ())]
        if body is None or not layers:
            return None
        return Decoder(body.embed_tokens.weight, body.rotary_emb, layers, _Norm.of(body.norm), _Matrix.of(head))
    except (_UnknownError, AttributeError):
        return None


def _joined_bytes(model: PreTrainedModel) -> int:
    """Memory of all parameters but those of the embedding, from which those that are joined are taken (bytes)."""
    embedded = {id(parameter) for parameter in model.get_input_embeddings().parameters()}
    return sum(parameter.nbytes for parameter in model.parameters() if id(parameter) not in embedded)
