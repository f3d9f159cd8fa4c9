"""Low-rank adapters (LoRA, Hu et al. 2021): two small trained matrices beside each frozen linear layer.

    attach         put adapters into a model and freeze the rest
    has_adapters   whether a model has them
    plain_weights  the weights of the model without adapters that computes the same
    twin           a second model on the same frozen weights, with adapters of its own
    save_adapters, load_adapters   the adapters alone, in one file

An adapted layer computes `W x + alpha / rank * B A x`. `B` starts at zero: until the first step the model is its base.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from ferrata.errors import CheckpointError, PolicyError, boundary, nearest
from ferrata.models.checksum import digest, joint

_ADAPTER = "default"
"""Name under which peft keeps them."""
_BASE = ".base_layer."


def attach(model: PreTrainedModel, rank: int, alpha: float, targets: Sequence[str], seed: int) -> None:
    """Put adapters into the model, in place, and freeze everything else.

    Args:
        model: a plain model.
        rank: rows of `A` and columns of `B`.
        alpha: the adapters' part is scaled by `alpha / rank`.
        targets: last names of the linear layers to adapt, such as `q_proj`; empty means all but the output layer.
        seed: decides where `A` starts. The process's own random streams stay as they are.

    Raises:
        PolicyError: a target names no linear layer, or there is none at all.
    """
    from peft import LoraConfig, inject_adapter_in_model  # it takes a third of a second to import

    assert not has_adapters(model), "the model has adapters already"
    layers = _targets(model, targets)
    with boundary(PolicyError, "putting adapters into the policy"), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        settings = LoraConfig(r=rank, lora_alpha=alpha, target_modules=layers, lora_dropout=0.0, bias="none")
        inject_adapter_in_model(settings, model, adapter_name=_ADAPTER)
    model.eval()


def has_adapters(model: nn.Module) -> bool:
    """True after `attach`."""
    return hasattr(model, "peft_config")


def plain_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and weights of the model without adapters that computes the same, one after the other.

    An adapted matrix comes out as `W + alpha / rank * B A`, in memory of its own; everything else as it stands.
    """
    adapted = {f"{name}{_BASE}weight": module for name, module in model.named_modules() if hasattr(module, "lora_A")}
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not _is_adapter(name):
                module: Any = adapted.get(name)
                merged = tensor if module is None else tensor + module.get_delta_weight(_ADAPTER)
                yield name.replace(_BASE, "."), merged


def twin(model: PreTrainedModel) -> PreTrainedModel:
    """A second model on the same frozen weights, with a copy of the adapters: it costs the memory of the adapters."""
    shared = {id(parameter): parameter for parameter in model.parameters() if not parameter.requires_grad}
    return copy.deepcopy(model, shared)


def save_adapters(model: nn.Module, file: Path) -> None:
    """Write the adapters, with the checksum of the weights that they belong to."""
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if _is_adapter(name)}
    save_file(tensors, file, metadata={"base": _base_checksum(model)})


def load_adapters(model: nn.Module, file: Path) -> None:
    """Give the model the adapters of a file. Raises CheckpointError when they do not belong to it."""
    with boundary(CheckpointError, f"reading the adapters {file}"), safe_open(file, framework="pt") as saved:
        tensors, base = {name: saved.get_tensor(name) for name in saved.offset_keys()}, saved.metadata()["base"]
    own = {name: tensor for name, tensor in model.state_dict().items() if _is_adapter(name)}
    if {name: tensor.shape for name, tensor in own.items()} != {name: tensor.shape for name, tensor in tensors.items()}:
        raise CheckpointError(f"The adapters in {file} do not fit this recipe's policy: policy.lora_* has changed.")
    if base != _base_checksum(model):
        raise CheckpointError(
            f"The adapters in {file} belong to other weights than those of policy.model: these have changed since."
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def _targets(model: PreTrainedModel, targets: Sequence[str]) -> list[str]:
    """Full names of the linear layers to adapt."""
    output = model.get_output_embeddings()
    layers = [name for name, module in model.named_modules() if type(module) is nn.Linear and module is not output]
    known = {name.rpartition(".")[2] for name in layers}
    for target in targets:
        if target not in known:
            hint = nearest(target, known)
            raise PolicyError(f"policy.lora_targets: the policy has no linear layer '{target}'. {hint}")
    chosen = [name for name in layers if not targets or name.rpartition(".")[2] in targets]
    if not chosen:
        raise PolicyError("policy.lora_rank: the policy has no linear layers that adapters could stand beside.")
    return chosen


def _base_checksum(model: nn.Module) -> str:
    frozen = {name: digest(tensor) for name, tensor in model.state_dict().items() if not _is_adapter(name)}
    return joint(frozen)


def _is_adapter(name: str) -> bool:
    """Whether a weight of this name is a part of an adapter."""
    return any(part.startswith("lora_") for part in name.split("."))
