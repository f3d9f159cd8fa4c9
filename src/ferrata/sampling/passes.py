"""Which computation makes the logits of a step: the model's own forward, or the packed decoder of its make.

    Pass         tokens of one step -> logits of some of them; the key-value store then holds the tokens
    model_pass   the transformers model itself, with this package's attention; works for every supported model
    fast_pass    the packed decoder where the model has one that proved itself against `model_pass`, else that one

Shape legend: T packed tokens; R rows whose logits are wanted; V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ferrata.errors import SamplerFault
from ferrata.sampling.decoder import decoder_of
from ferrata.sampling.ragged import ATTENTION, Packing, SlotCache

Pass = Callable[[Tensor, Tensor, Tensor, Packing, SlotCache], Tensor]
"""(tokens T, positions T, places of the R rows among the T, packing, store) -> logits (R, V)."""

PROOF_TOKENS = 6
"""Tokens of the pass by which a decoder proves itself."""


def model_pass(
    model: PreTrainedModel, tokens_T: Tensor, positions_T: Tensor, last_R: Tensor, packing: Packing, cache: SlotCache
) -> Tensor:
    """Logits (R, V) by the model's own forward, in evaluation mode."""
    with _ragged(model):
        output = model(
            input_ids=tokens_T[None],
            position_ids=positions_T[None],
            cache=cache,
            use_cache=True,
            logits_to_keep=last_R,
            packing=packing,
        )
    logits: Tensor = output.logits[0]
    return logits


def fast_pass(model: PreTrainedModel, cache: SlotCache) -> Pass:
    """The quickest pass that computes this model. Writes over the first tokens of slot 0.

    Raises SamplerFault when what the model computes is not finite.
    """
    plain = partial(model_pass, model)
    decoder = decoder_of(model)
    if decoder is None:
        return plain
    expected, got = (_prove(candidate, model, cache) for candidate in (plain, decoder))
    if not expected.isfinite().all():
        raise SamplerFault("With these weights the policy computes NaN or infinity: nothing can be sampled with them.")
    # The operations are the same; a difference beyond rounding means that the model has a part of its own.
    tolerance = 1e-4 if model.dtype == torch.float32 else 0.02
    agree = torch.allclose(expected, got, rtol=tolerance, atol=tolerance * float(expected.abs().max()))
    return decoder if agree else plain


@torch.inference_mode()
def _prove(candidate: Pass, model: PreTrainedModel, cache: SlotCache) -> Tensor:
    """Logits of a short made-up text, the last token of which stands alone as in the middle of a turn."""
    count = min(PROOF_TOKENS, cache.capacity)
    vocabulary = model.config.get_text_config().vocab_size
    ids = torch.linspace(0, vocabulary - 1, count, device=model.device).long()
    parts = [(0, count - 1), (count - 1, count)] if count > 1 else [(0, 1)]
    logits = [_prove_part(candidate, ids, begin, end, cache) for begin, end in parts]
    return torch.cat(logits).float()


def _prove_part(candidate: Pass, ids: Tensor, begin: int, end: int, cache: SlotCache) -> Tensor:
    places = np.arange(begin, end)
    alone = begin > 0
    packing = Packing(
        slots=np.zeros(len(places), dtype=np.int64),
        positions=places,
        sampling=int(alone),
        counts=np.array([] if alone else [len(places)], dtype=np.int64),
        live=1,
        device=ids.device,
    )
    cache.aim(packing)
    rows = torch.arange(end - begin, device=ids.device)
    return candidate(ids[begin:end], rows + begin, rows, packing, cache)


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
