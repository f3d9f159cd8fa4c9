"""The learner's weights into a running engine, and the proof that they arrived.

    send      load them in place, read back what the engine computes with, compare; returns a checksum
    used      the weights that a model of vLLM computes with, by its own names
    arranged  the learner's weights as that model arranges them

On CPUs vLLM packs each matrix into a private copy and empties the parameter. A checksum of parameters would therefore
say nothing: what is read back is the product of each packed matrix with the identity, which is exact, since every sum
has one term that is not zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ferrata.errors import SamplerFault, boundary
from ferrata.models.adapters import plain_weights
from ferrata.models.checksum import digest, joint
from ferrata.models.finite import first_not_finite
from ferrata.sampling.vllm.engine import Engine, undisturbed

_ROWS = 256
"""Rows of the identity multiplied at once; bounds the memory of reading back."""


def send(engine: Engine, learner: nn.Module, dtype: torch.dtype) -> str:
    """Load the learner's weights into the engine and compare what it then computes with, tensor by tensor.

    Args:
        engine: no turn may be under way. What it has read is not forgotten here.
        learner: a transformers model, perhaps with adapters, which are merged. Its parameter names and vLLM's
            differ only by the matrices that vLLM joins.
        dtype: what the engine computes in; weights are rounded to it.

    Returns:
        Joint checksum of all weights (hexadecimal, 128 bits).

    Raises:
        SamplerFault: a tensor that the engine computes with is not the learner's, or the learner's are not finite.
    """
    # A tensor with two names goes under both: vLLM packs a head again only when the head's own name comes.
    state = dict(plain_weights(learner))
    broken = first_not_finite((name, tensor.to(dtype)) for name, tensor in state.items())
    if broken is not None:
        raise SamplerFault(f"The weights hold NaN or infinity, first in {broken}: nothing can be sampled with them.")
    with undisturbed(), torch.no_grad():
        with boundary(SamplerFault, "sending the weights to vLLM"):
            engine.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(state.items())})
        digests = engine.collective_rpc(lambda worker: _digests(worker.get_model(), state, dtype))[0]
    wrong = sorted(name for name, (sent, found) in digests.items() if sent != found)
    if wrong or not digests:
        raise SamplerFault(
            f"New weights did not reach vLLM: {len(wrong)} of {len(digests)} tensors that it computes with differ from "
            f"the learner's, such as {wrong[0] if wrong else 'all of them'}. Nothing may be sampled with them."
        )
    return joint({name: found for name, (_, found) in digests.items()})


def _digests(model: nn.Module, state: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, tuple[str, str]]:
    """For each tensor of vLLM's model the digests of what was sent and of what is used."""
    sent = arranged(model, state, dtype)
    return {name: (digest(sent[name]), digest(tensor)) for name, tensor in used(model, sent)}


def used(model: nn.Module, sent: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that the model computes with, cut to the shape that was sent (vocabularies are padded).

    A matrix used both as it stands and packed, as an embedding is, comes out twice.
    """
    for prefix, module in model.named_modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            name = f"{prefix}.{leaf}" if prefix else leaf
            if parameter.numel():
                yield name, parameter[: len(sent[name])]
            if leaf == "weight" and getattr(module, "cpu_linear", None) is not None:
                yield f"{name}{_PACKED}", _unpacked(module, sent[name])


def arranged(model: nn.Module, state: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The learner's weights under the names of vLLM's model, with the matrices joined that it joins.

    Raises:
        SamplerFault: the learner has no weights for one of its names.
    """
    joined: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    found: dict[str, Tensor] = {}
    for name, _ in model.named_parameters(remove_duplicate=False):
        path, _, leaf = name.rpartition(".")
        parent, _, last = path.rpartition(".")
        sources = [f"{parent}.{part}.{leaf}" for part in joined.get(last, ())] if name not in state else [name]
        if not sources or any(source not in state for source in sources):
            raise SamplerFault(f"vLLM computes with a tensor {name}, which the learner's model does not have.")
        found[name] = torch.cat([state[source] for source in sources]).to(dtype)
        found[f"{name}{_PACKED}"] = found[name]
    return found


_PACKED = " (packed)"


def _unpacked(module: Any, like: Tensor) -> Tensor:
    """The matrix (N, K) inside a layer's packed copy."""
    identity = torch.eye(like.shape[1], dtype=like.dtype)
    columns = [module.cpu_linear(rows, module.weight, None) for rows in torch.split(identity, _ROWS)]
    return torch.cat(columns).T[: len(like)]
