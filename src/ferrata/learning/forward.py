"""The forward pass that all learners share: logits at trained tokens only, and never all of them at once.

    check_model     refuse a model whose logits are more than its output layer
    precision       what to compute in
    trained_hidden  micro-batch -> hidden states that predict the trained tokens
    token_scores    hidden states -> log-probability and entropy of each trained token
    token_logprobs  both in one: log-probabilities alone
    logprobs_by_example  the same for many micro-batches, dealt back to their examples

Shape legend: T = packed tokens, N = trained tokens, D = width of the model, V = vocabulary.

Logits over the whole sequence would cost T*V numbers although only N places carry loss; the output layer therefore
sees the hidden states of those N places alone, and of so many at a time as `CHUNK_NUMBERS` allows.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ferrata.algorithms.entropy import entropy as entropy_of
from ferrata.errors import PolicyError
from ferrata.learning.attention import packed
from ferrata.learning.packing import MicroBatch

RESCALED = ("final_logit_softcapping", "logits_scaling", "logit_scale")
"""Configuration entries of architectures that transform logits after the output layer."""


CHUNK_NUMBERS = 2**24
"""Most logits at a time (64 MiB in single precision)."""


class TokenScores(NamedTuple):
    """What a model says of trained tokens."""

    logprobs_N: Tensor
    """Log-probability of each (nats)."""
    entropy_N: Tensor
    """Entropy of the distribution that each stands in (nats)."""
    likeliest_N: Tensor
    """Whether it is the likeliest there; empty where nobody asked."""


def check_model(model: PreTrainedModel) -> None:
    """Raise `PolicyError` for a model that cannot be scored by its body and its output layer."""
    if model.get_output_embeddings() is None:
        raise PolicyError(f"{type(model).__name__} has no output layer; a causal language model is needed.")
    changed = [name for name in RESCALED if getattr(model.config, name, None) not in (None, 1, 1.0)]
    if changed:
        raise PolicyError(f"{type(model).__name__} transforms its logits ({', '.join(changed)}): not supported yet.")


def precision(model: PreTrainedModel, dtype: str) -> AbstractContextManager[Any]:
    """Within this block the model computes in 'float32' or 'bfloat16'; its weights stay in single precision."""
    return torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=dtype == "bfloat16")


def trained_hidden(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """Hidden states (N, D) from which the trained tokens are predicted."""
    with packed(model):
        hidden_1TD = model.base_model(
            input_ids=batch.ids_T[None],
            position_ids=batch.layout.positions[None],
            layout=batch.layout,
            use_cache=False,
        ).last_hidden_state
    hidden_ND: Tensor = functional.embedding(batch.places_N, hidden_1TD[0])
    return hidden_ND


def token_scores(
    model: PreTrainedModel, hidden_ND: Tensor, batch: MicroBatch, *, entropy: bool = False, likeliest: bool = False
) -> TokenScores:
    """What the model says of the trained tokens, in float32.

    Logits of more than `CHUNK_NUMBERS` numbers are computed in chunks, and again in the backward pass: at no time they
    are all there.

    Args:
        model: the policy.
        hidden_ND: as `trained_hidden` gave them.
        batch: their micro-batch.
        entropy: whether the entropy is differentiated; it is a number otherwise.
        likeliest: whether to say which tokens are the likeliest ones.
    """
    output = model.get_output_embeddings()
    rows = max(1, CHUNK_NUMBERS // int(output.weight.shape[0]))
    temperatures_N = batch.temperatures_N

    def score(hidden: Tensor, targets: Tensor, temperatures: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        logits = output(hidden).float()
        logits = logits if temperatures is None else logits / temperatures[:, None]
        log_distribution = logits.log_softmax(dim=-1)
        with torch.set_grad_enabled(entropy and torch.is_grad_enabled()):
            spread = entropy_of(log_distribution)
        first = logits.argmax(dim=-1) == targets if likeliest else torch.empty(0)
        return pick(log_distribution, targets), spread, first

    if len(hidden_ND) <= rows:
        return TokenScores(*score(hidden_ND, batch.targets_N, temperatures_N))
    parts = zip(
        torch.split(hidden_ND, rows),
        torch.split(batch.targets_N, rows),
        repeat(None) if temperatures_N is None else torch.split(temperatures_N, rows),
        strict=False,
    )
    chunks = [checkpoint(score, *part, use_reentrant=False) for part in parts]
    return TokenScores(*(torch.cat(parts) for parts in zip(*chunks, strict=True)))


def pick(log_distribution_NV: Tensor, ids_N: Tensor) -> Tensor:
    """The entry of each row that belongs to its id (N,)."""
    return log_distribution_NV.gather(1, ids_N[:, None]).squeeze(1)


def token_logprobs(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """Log-probability (N,) of each trained token given all before it (nats, float32)."""
    return token_scores(model, trained_hidden(model, batch), batch).logprobs_N


@torch.inference_mode()
def logprobs_by_example(
    model: PreTrainedModel, batches: list[MicroBatch], examples: int, dtype: str = "float32"
) -> list[Tensor]:
    """Log-probabilities of the trained tokens of each example, without a graph.

    Args:
        model: the policy to score with.
        batches: micro-batches of the examples.
        examples: how many examples there are; one without a trained token gets an empty tensor.
        dtype: what to compute in.
    """
    scored = [torch.empty(0)] * examples
    for batch in batches:
        with precision(model, dtype):
            rows = torch.split(token_logprobs(model, batch), batch.counts)
        for example, logprobs_N in zip(batch.examples, rows, strict=True):
            scored[example] = logprobs_N
    return scored
