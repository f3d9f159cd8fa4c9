"""The sampler that a recipe asks for."""

from __future__ import annotations

import torch

from ferrata.models.policy import Policy
from ferrata.recipe import Recipe
from ferrata.sampling.local import LocalSampler
from ferrata.sampling.protocol import Sampler
from ferrata.sampling.vllm.sampler import VllmSampler


def make_sampler(policy: Policy, recipe: Recipe, slots: int | None = None) -> Sampler:
    """A sampler of the policy's turns, with the recipe's budgets.

    Args:
        policy: the learner's, perhaps with adapters.
        recipe: its `policy.dtype` and `rollout` sections apply.
        slots: episodes at once, where they are not `rollout.episodes_at_once`.

    Raises:
        PolicyError: the policy cannot be sampled, or vLLM is not installed.
        SamplerFault: the weights did not reach the sampler.
    """
    section, dtype = recipe.rollout, getattr(torch, recipe.policy.dtype)
    slots = slots or section.episodes_at_once
    if section.sampler == "local":
        apart = recipe.rl.staleness > 0
        return LocalSampler(policy, slots, section.max_tokens, section.stop, dtype=dtype, apart=apart)
    return VllmSampler(policy, slots, section.max_tokens, section.stop, dtype=dtype)
