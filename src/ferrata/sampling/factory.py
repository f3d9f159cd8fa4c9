"""The sampler that a recipe asks for, and whether there can be one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ferrata.models.chat import ToolCard
from ferrata.models.policy import Policy
from ferrata.recipe import Recipe
from ferrata.sampling.local import LocalSampler
from ferrata.sampling.protocol import ActionsOnly, Sampler
from ferrata.sampling.vllm.engine import refuse_without_vllm
from ferrata.sampling.vllm.sampler import VllmSampler, refuse_episode


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


def check_sampler(policy: Policy, recipe: Recipe, tools: Sequence[ToolCard]) -> None:
    """Find out whether the policy can be sampled as the recipe says, without sampling. vLLM's engine is not started.

    Args:
        policy: as for `make_sampler`.
        recipe: its `evaluation.constrained` applies as well.
        tools: those of the environment.

    Raises what `make_sampler`, and then `open`, would raise.
    """
    only = ActionsOnly(tuple(tools)) if recipe.evaluation.constrained else None
    if recipe.rollout.sampler == "vllm":
        refuse_without_vllm()
        refuse_episode(recipe.rollout.temperature, only)
        return
    sampler = make_sampler(policy, recipe)
    sampler.open(0, 0, recipe.rollout.temperature, only)
    sampler.close(0)
    sampler.shutdown()
