"""Whether weights are numbers at all: one that is not makes every text that a model computes meaningless."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def first_not_finite(weights: Iterable[tuple[str, Tensor]]) -> str | None:
    """Name of the first tensor that holds NaN or infinity; None when all numbers are finite."""
    return next((name for name, tensor in weights if not bool(torch.isfinite(tensor).all())), None)
