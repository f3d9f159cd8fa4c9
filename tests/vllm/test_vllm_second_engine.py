"""An engine after another in one process, for a model of another kind."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from ferrata.errors import SamplerFault
from ferrata.models.policy import Policy
from ferrata.sampling.vllm.sampler import VllmSampler


@pytest.fixture
def biased(base) -> Policy:
    """Biases, and a head of its own."""
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=750,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        initializer_range=0.2,
        eos_token_id=748,
        bos_token_id=None,
    )
    return Policy("biased", Qwen2ForCausalLM(config).eval(), base.tokenizer, base.chat)


def test_biases_and_a_head_of_its_own_arrive(biased, turn, shake, check_logprobs) -> None:
    shake(biased.model)
    read = list(range(20, 50))
    with VllmSampler(biased, 2, 128) as sampler:
        check_logprobs(biased.model, read, *turn(sampler, read))
        shake(biased.model)
        sampler.publish(1)
        check_logprobs(biased.model, read, *turn(sampler, read))
    with pytest.raises(SamplerFault, match="nothing may be sampled"):
        sampler.open(0, 0, 1.0)


def test_bfloat16_compares_weights_as_rounded(biased, turn) -> None:
    weight = biased.model.lm_head.weight
    weight.data = weight.data.bfloat16().float()
    with VllmSampler(biased, 2, 128, dtype=torch.bfloat16) as sampler:
        checksum = sampler.checksum
        with torch.no_grad():
            weight.mul_(1.0 + 2.0**-20)
        sampler.publish(1)
        assert sampler.checksum == checksum  # too small a change for bfloat16
        with torch.no_grad():
            weight.mul_(1.0 + 2.0**-5)
        sampler.publish(2)
        assert sampler.checksum != checksum
        assert len(turn(sampler, list(range(20, 50)))[0]) > 0
