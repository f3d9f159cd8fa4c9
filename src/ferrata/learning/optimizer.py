"""Optimizers, the learning-rate schedule, and the step that all learners take.

build_optimizer  AdamW, or Muon on the inner matrices with AdamW on the rest
Optimizers       several optimizers that act as one
warmup_decay     share of the learning rate at a step
guarded_step     clip, refuse a gradient that is not finite, step, clear
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from ferrata.errors import UnknownNameError
from ferrata.learning.muon import Muon

BETAS = (0.9, 0.95)
"""AdamW's memory: the second moment forgets within some 20 steps, as runs of a few hundred steps need."""


class Optimizers:
    """Several optimizers over disjoint parameters that act as one, with one learning rate."""

    def __init__(self, members: list[torch.optim.Optimizer]) -> None:
        self._members = members

    def set_learning_rate(self, learning_rate: float) -> None:
        """Use this learning rate from the next step on."""
        for member in self._members:
            for group in member.param_groups:
                group["lr"] = learning_rate

    def parameters(self) -> list[nn.Parameter]:
        """Every parameter that is trained."""
        return [p for member in self._members for group in member.param_groups for p in group["params"]]

    def step(self) -> None:
        """Take one step along the gradients."""
        for member in self._members:
            member.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for member in self._members:
            member.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly."""
        return {"members": [member.state_dict() for member in self._members]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        for member, saved in zip(self._members, state["members"], strict=True):
            member.load_state_dict(saved)


def build_optimizer(
    model: nn.Module, learning_rate: float, weight_decay: float = 0.0, kind: str = "adamw"
) -> Optimizers:
    """The optimizer of a model's trainable parameters.

    Args:
        model: its matrices (two dimensions or more) decay; vectors such as norms and biases do not.
        learning_rate: in AdamW's units for both kinds.
        weight_decay: decoupled decay per step, times the learning rate.
        kind: 'adamw', or 'muon': Muon on the inner matrices, AdamW on embeddings, output layer and vectors.

    Raises:
        UnknownNameError: no such kind.
    """
    if kind not in ("adamw", "muon"):
        raise UnknownNameError.of("optimizer", kind, ("adamw", "muon"))
    trainable = [p for p in model.parameters() if p.requires_grad]
    inner = _inner_matrices(model) if kind == "muon" else []
    inner_ids = {id(p) for p in inner}
    outer = [p for p in trainable if id(p) not in inner_ids]
    groups = [
        {"params": [p for p in outer if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in outer if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    members: list[torch.optim.Optimizer] = [Muon(inner, learning_rate, weight_decay)] if inner else []
    if groups:
        members.append(torch.optim.AdamW(groups, lr=learning_rate, betas=BETAS, fused=True))
    return Optimizers(members)


def warmup_decay(step: int, steps: int, warmup: float) -> float:
    """Share of the learning rate at `step` (from 0) of `steps`: a linear rise, then a linear fall towards zero.

    With `w = ceil(warmup * steps)`: `(step + 1) / w` while it rises, then `(steps - step) / (steps - w)`. Every step
    has a share above zero; steps beyond the last get zero.
    """
    rising = math.ceil(warmup * steps)
    if step < rising:
        return (step + 1) / rising
    return max(0.0, (steps - step) / (steps - rising)) if steps > rising else 0.0


def guarded_step(optimizer: Optimizers, max_grad_norm: float) -> float:
    """Clip the gradient to `max_grad_norm`, step, and clear the gradient. A gradient that is not finite is not used.

    Returns:
        The norm before clipping; NaN or infinite when no step was taken.
    """
    norm = float(nn.utils.clip_grad_norm_(optimizer.parameters(), max_grad_norm))
    if math.isfinite(norm):
        optimizer.step()
    optimizer.zero_grad()
    return norm


def _inner_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Trainable weights of linear layers that are no part of the embedding or the output layer."""
    per_token = _token_weights(model)
    weights: list[Any] = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    return [weight for weight in weights if weight.requires_grad and id(weight) not in per_token]


def _token_weights(model: nn.Module) -> set[int]:
    """Identities of the weights that have a row per token: embeddings, and the output layer where there is one."""
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    output = getattr(model, "get_output_embeddings", lambda: None)()
    return {id(weight) for weight in (*tables, *([output.weight] if output is not None else []))}
