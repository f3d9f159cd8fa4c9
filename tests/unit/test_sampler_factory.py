"""Which sampler a recipe gets, and what is refused with words."""

from __future__ import annotations

import pytest
import torch

from ferrata.errors import PolicyError
from ferrata.recipe import PolicySection, Recipe, RolloutSection
from ferrata.sampling.factory import make_sampler
from ferrata.sampling.local import LocalSampler


def recipe(**rollout: object) -> Recipe:
    return Recipe(name="made", rollout=RolloutSection(max_tokens=100, episodes_at_once=3, **rollout))


def test_by_default_ferratas_own_sampler_samples_with_the_learners_weights(tiny_policy) -> None:
    sampler = make_sampler(tiny_policy, recipe())
    assert isinstance(sampler, LocalSampler)
    assert sampler.model is tiny_policy.model
    assert (sampler.free, sampler.max_length) == (3, 100)
    assert make_sampler(tiny_policy, recipe(), slots=2).free == 2


def test_the_recipe_says_what_sampling_computes_in(tiny_policy) -> None:
    asked = recipe().model_copy(update={"policy": PolicySection(dtype="bfloat16")})
    sampler = make_sampler(tiny_policy, asked)
    assert isinstance(sampler, LocalSampler)
    assert sampler.model.dtype == torch.bfloat16
    assert tiny_policy.model.dtype == torch.float32


def test_a_missing_vllm_is_named(tiny_policy, monkeypatch) -> None:
    monkeypatch.setattr("ferrata.sampling.vllm.engine.find_spec", lambda name: None)
    with pytest.raises(PolicyError, match=r"vLLM is not installed here\. docs/vllm\.md says how"):
        make_sampler(tiny_policy, recipe(sampler="vllm"))
