"""The weights that a sampler computes with, where they are not the learner's own tensors.

The learner trains in single precision, perhaps with adapters beside frozen matrices. A sampler wants plain matrices,
perhaps rounded: a copy of the model. That new weights really reach the copy is not believed but shown, by checksums
that are read back from the tensors it computes with.
"""

from __future__ import annotations

import copy
from collections.abc import Collection

import torch
from transformers import PreTrainedModel
from transformers.initialization import no_init_weights

from ferrata.errors import SamplerFault
from ferrata.models.adapters import has_adapters, plain_weights
from ferrata.models.checksum import digest, joint
from ferrata.models.finite import first_not_finite


class SamplingWeights:
    """The model that samples: the learner's itself where that will do, else a plain copy of it.

    Args:
        learner: the model that is trained.
        dtype: what sampling computes in; None means the learner's own.
        apart: always a copy: what samples stays as it was published while the learner goes on.

    Raises:
        SamplerFault: the copy did not take the weights, or they are not finite.
    """

    def __init__(self, learner: PreTrainedModel, dtype: torch.dtype | None = None, apart: bool = False) -> None:
        self._learner, dtype = learner, dtype or learner.dtype
        is_copy = apart or has_adapters(learner) or dtype != learner.dtype
        self.model = _blank(learner, dtype) if is_copy else learner
        """What to compute with."""
        self.checksum = ""
        """Of the copy's weights, as they were read back from it; empty where the learner's own model samples."""
        self.refresh()

    def refresh(self) -> None:
        """Take over the learner's weights as they are now.

        Raises:
            SamplerFault: what the copy then computes with is not what was sent, or it is not finite.
        """
        if self.model is not self._learner:
            self._copy()
        broken = first_not_finite(self.model.named_parameters())
        if broken is not None:
            raise SamplerFault(
                f"The weights hold NaN or infinity, first in {broken}: nothing can be sampled with them."
            )

    def _copy(self) -> None:
        """Send every tensor to the copy, and show that it arrived."""
        sent = self._send()
        found = self._read_back(sent)
        wrong = sorted(name for name in sent.keys() | found.keys() if sent.get(name) != found.get(name))
        if wrong:
            raise SamplerFault(
                f"New weights did not reach the copy that samples: {len(wrong)} of {len(sent)} tensors differ from the "
                f"learner's, such as {wrong[0]}. Nothing may be sampled with it."
            )
        self.checksum = joint(found)

    @torch.no_grad()
    def _send(self) -> dict[str, str]:
        """Copy every tensor; return the checksum of each, as rounded for the copy."""
        targets, sent = self.model.state_dict(), {}
        for name, tensor in plain_weights(self._learner):
            rounded = tensor.to(targets[name].dtype)
            targets[name].copy_(rounded)
            sent[name] = digest(rounded)
        return sent

    def _read_back(self, sent: Collection[str]) -> dict[str, str]:
        """Checksums of the parameters themselves, not of what `_send` wrote to; tied ones under each of their names."""
        buffers = {name: tensor for name, tensor in self.model.named_buffers() if name in sent}
        parameters = self.model.named_parameters(remove_duplicate=False)
        return {name: digest(tensor) for name, tensor in (*parameters, *buffers.items())}


def _blank(learner: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A model of the same make without adapters, its weights not set yet."""
    with no_init_weights():
        model: PreTrainedModel = type(learner)._from_config(copy.deepcopy(learner.config), dtype=dtype)
    return model.to(learner.device).eval()
