"""Peers' fault 19: the new weights (a LoRA) never reached the sampler, and nobody noticed for months."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from transformers import AutoModelForCausalLM

from ferrata.errors import SamplerFault
from ferrata.learning.batch import Example
from ferrata.learning.supervised import SupervisedLearner
from ferrata.models.adapters import attach
from ferrata.models.policy import Policy, save_policy
from ferrata.recipe import SftSection
from ferrata.sampling.decoder import Decoder
from ferrata.sampling.local import LocalSampler

READ = [1, 7, 3, 9, 2, 11, 4]


@pytest.fixture
def policy(tiny_policy) -> Policy:
    return Policy("tiny", copy.deepcopy(tiny_policy.model), tiny_policy.tokenizer, tiny_policy.chat)


@pytest.fixture
def lora(policy: Policy) -> Policy:
    attach(policy.model, 3, 6.0, (), 4)
    return policy


def train(policy: Policy) -> None:
    """One optimizer step."""
    learner = SupervisedLearner(policy.model, SftSection(updates=4, learning_rate=0.05, warmup=0.0))
    learner.update([Example.demonstration(READ, [False, *[True] * (len(READ) - 1)])])


def sampled(sampler: LocalSampler) -> tuple[int, float]:
    """The likeliest next token and its log-probability."""
    sampler.open(0, 0, 0.0)
    sampler.submit(0, READ, 1)
    done = sampler.advance()[0]
    sampler.close(0)
    return done.token_ids[0], done.logprobs[0]


def expected(policy: Policy, folder, dtype: torch.dtype) -> tuple[int, float]:
    """The same from the saved policy, loaded by transformers."""
    save_policy(policy, folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
    with torch.inference_mode():
        row = model(input_ids=torch.tensor([READ])).logits[0, -1].float().log_softmax(-1)
    return int(row.argmax()), float(row.max())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
def test_after_a_step_with_lora_the_sampler_computes_with_the_merged_weights(
    lora, tmp_path, dtype: torch.dtype, tolerance: float
) -> None:
    sampler = LocalSampler(lora, 1, 40, dtype=dtype)
    assert isinstance(sampler.forward, Decoder), "adapters are merged, so the packed decoder applies"
    before, checksum = sampled(sampler), sampler.weights.checksum
    train(lora)
    assert sampled(sampler) == before, "nothing was published yet"
    sampler.publish(1)
    after = sampled(sampler)
    assert abs(after[1] - before[1]) > 3 * tolerance
    token, logprob = expected(lora, tmp_path / "policy", dtype)
    assert after == (token, pytest.approx(logprob, abs=tolerance))
    assert sampler.weights.checksum != checksum
    assert isinstance(sampler.forward, Decoder)


def test_a_rounded_copy_follows_full_weights_too(policy, tmp_path) -> None:
    sampler = LocalSampler(policy, 1, 40, dtype=torch.bfloat16)
    before = sampled(sampler)
    train(policy)
    sampler.publish(1)
    token, logprob = expected(policy, tmp_path / "policy", torch.bfloat16)
    assert before != sampled(sampler) == (token, pytest.approx(logprob, abs=0.05))
    assert sampler.model.dtype == sampler._cache.store.dtype == torch.bfloat16
    assert policy.model.dtype == torch.float32


def deaf_to_all(model: torch.nn.Module) -> None:
    """Whoever writes to its weights writes to a copy of them."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.state_dict = lambda: state


def deaf_in_one(model: torch.nn.Module) -> None:
    """One matrix stays as it was."""
    state = model.state_dict()
    state["model.layers.2.mlp.down_proj.weight"] = state["model.layers.2.mlp.down_proj.weight"].clone()
    model.state_dict = lambda: state


@pytest.mark.parametrize("deafen", [deaf_to_all, deaf_in_one])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_copy_that_does_not_take_the_weights_is_found_out(
    lora, deafen: Callable[[torch.nn.Module], None], dtype: torch.dtype
) -> None:
    sampler = LocalSampler(lora, 1, 40, dtype=dtype)
    deafen(sampler.model)
    sampler.publish(1)  # nothing has changed, so nothing is missing
    train(lora)
    with pytest.raises(SamplerFault, match=r"New weights did not reach the copy that samples: \d+ of \d+ tensors"):
        sampler.publish(2)
    assert sampler.version == 1
    with pytest.raises(SamplerFault, match="nothing may be sampled with it"):
        sampler.open(0, 0, 1.0)


def test_without_adapters_in_the_same_precision_the_learners_own_model_samples(policy) -> None:
    for dtype in (None, torch.float32):
        sampler = LocalSampler(policy, 1, 40, dtype=dtype)
        assert sampler.model is policy.model
        assert sampler.weights.checksum == ""
