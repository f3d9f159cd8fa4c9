"""The forward pass that all learners share: logits at trained tokens only.

    check_model     refuse a model whose logits are more than its output layer
    trained_hidden  micro-batch -> hidden states that predict the trained tokens
    logits_of       hidden states -> logits of the trained tokens
    trained_logits  both in one
    pick            log-distribution and ids -> log-probability of each id
    token_logprobs  micro-batch -> log-probability of each trained token
    logprobs_by_example  the same for many micro-batches, dealt back to their examples

Shape legend: B = rows, T = padded length, N = trained tokens, D = width of the model, V = vocabulary.

Logits over the whole sequence would cost B*T*V numbers although only N places carry loss; the output layer therefore
sees the hidden states of those N places alone.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ferrata.errors import PolicyError
from ferrata.learning.batch import MicroBatch

RESCALED = ("final_logit_softcapping", "logits_scaling", "logit_scale")
"""Configuration entries of architectures that transform logits after the output layer."""


def check_model(model: PreTrainedModel) -> None:
    """Raise `PolicyError` for a model that cannot be scored by its body and its output layer."""
    if model.get_output_embeddings() is None:
        raise PolicyError(f"{type(model).__name__} has no output layer; a causal language model is needed.")
    changed = [name for name in RESCALED if getattr(model.config, name, None) not in (None, 1, 1.0)]
    if changed:
        raise PolicyError(f"{type(model).__name__} transforms its logits ({', '.join(changed)}): not supported yet.")


def trained_hidden(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """Hidden states (N, D) from which the trained tokens are predicted."""
    hidden_BTD = model.base_model(input_ids=batch.ids_BT, use_cache=False).last_hidden_state
    hidden_ND: Tensor = hidden_BTD.flatten(0, 1).index_select(0, batch.places_N)
    return hidden_ND


def logits_of(model: PreTrainedModel, hidden_ND: Tensor, batch: MicroBatch) -> Tensor:
    """Logits (N, V) in float32 of the distributions that the trained tokens were sampled from."""
    logits_NV: Tensor = model.get_output_embeddings()(hidden_ND).float()
    return logits_NV if batch.temperatures_N is None else logits_NV / batch.temperatures_N[:, None]


def trained_logits(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """Both in one: logits (N, V) of the trained tokens."""
    return logits_of(model, trained_hidden(model, batch), batch)


def pick(log_distribution_NV: Tensor, ids_N: Tensor) -> Tensor:
    """The entry of each row that belongs to its id (N,)."""
    return log_distribution_NV.gather(1, ids_N[:, None]).squeeze(1)


def token_logprobs(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """Log-probability (N,) of each trained token given all before it (nats, float32)."""
    return pick(trained_logits(model, batch).log_softmax(dim=-1), batch.targets_N)


@torch.inference_mode()
def logprobs_by_example(model: PreTrainedModel, batches: list[MicroBatch], examples: int) -> list[Tensor]:
    """Log-probabilities of the trained tokens of each example, without a graph.

    Args:
        model: the policy to score with.
        batches: micro-batches of the examples.
        examples: how many examples there are; one without a trained token gets an empty tensor.
    """
    scored = [torch.empty(0)] * examples
    for batch in batches:
        rows = torch.split(token_logprobs(model, batch), batch.counts)
        for example, logprobs_N in zip(batch.examples, rows, strict=True):
            scored[example] = logprobs_N
    return scored
