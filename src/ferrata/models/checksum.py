"""Checksums of weights: equal exactly when the values are equal.

digest   of one tensor
joint    of many digests, whatever their order
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

BYTES = 16


def digest(tensor: Tensor) -> str:
    """Checksum of the values of a tensor (hexadecimal, 128 bits).

    Adding 0.0 makes both zeros one, as products with the identity do as well (see `sampling.vllm.weights`).
    """
    values: Any = (tensor.detach().cpu().reshape(-1) + 0.0).view(torch.uint8).numpy()
    return hashlib.blake2b(values, digest_size=BYTES).hexdigest()


def joint(digests: Mapping[str, str]) -> str:
    """One checksum over named ones."""
    return hashlib.blake2b(repr(sorted(digests.items())).encode(), digest_size=BYTES).hexdigest()
