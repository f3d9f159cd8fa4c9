"""Attention that neither the sampler nor the learner computes: a model that asks for it is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferrata.errors import PolicyError

UNSUPPORTED = ("softcap", "s_aux", "position_bias")
"""Arguments that change the attention formula."""


def refuse_variants(arguments: Mapping[str, Any], longest: int, who: str) -> None:
    """Raise PolicyError when a model's layer passes arguments of another attention than full causal attention.

    Args:
        arguments: what the layer passes beside queries, keys and values.
        longest: tokens of the longest sequence; a sliding window that holds it changes nothing.
        who: computes the attention, for the message.
    """
    window = arguments.get("sliding_window")
    asked = [name for name in UNSUPPORTED if arguments.get(name) is not None]
    if window is not None and window < longest:
        asked.append("sliding_window")
    if asked:
        raise PolicyError(f"This model's attention uses {', '.join(asked)}, which {who} does not support.")
