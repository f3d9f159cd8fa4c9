"""Heads on a policy's body: what they read is the hidden state from which the next token is predicted."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


class ValueHead(nn.Module):
    """Estimated returns of a state: one linear map, zero at the start. Shape legend: S states, D width, C channels.

    Args:
        model: the policy on whose hidden states it stands.
        channels: how many returns it estimates.
    """

    def __init__(self, model: PreTrainedModel, channels: int) -> None:
        super().__init__()
        width = model.config.get_text_config().hidden_size
        self.map = nn.Linear(width, channels, device=model.device, dtype=torch.float32)
        nn.init.zeros_(self.map.weight)
        nn.init.zeros_(self.map.bias)

    def forward(self, hidden_SD: Tensor) -> Tensor:
        """(S, C) values in float32."""
        values_SC: Tensor = self.map(hidden_SD.float())
        return values_SC
