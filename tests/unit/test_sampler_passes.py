"""The packed decoder does what the model does, to the last bit, and steps back where it does not know the model."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from ferrata.models.chat import token_chat
from ferrata.models.policy import Policy
from ferrata.models.tokenizer import CHAT
from ferrata.sampling import decoder, ragged
from ferrata.sampling.decoder import Decoder, decoder_of
from ferrata.sampling.local import LocalSampler
from ferrata.sampling.passes import model_pass
from ferrata.sampling.protocol import Completion

SMALL = {
    "vocab_size": 400,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 700,
    "initializer_range": 0.3,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
MAKERS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, attention_bias=True)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=None)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL, head_dim=16)),
}


def policy_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Policy:
    return Policy("made", model.eval(), tokenizer, token_chat(tokenizer, CHAT))


def play(policy: Policy, plain: bool = False, first: int = 10, slots: int = 6) -> dict[int, list[Completion]]:
    """Two turns of some episodes with openings of different lengths, some of which join late."""
    sampler, stream = LocalSampler(policy, slots, 690), random.Random(0)
    if plain:
        sampler.forward = partial(model_pass, policy.model)
    done: dict[int, list[Completion]] = {key: [] for key in range(slots)}
    for key in range(slots):
        sampler.open(key, key, float(key % 2))
        sampler.submit(key, [stream.randrange(5, 390) for _ in range(first + 3 * key)], 2 + key)
        for completion in sampler.advance():
            done[completion.key].append(completion)
            sampler.submit(completion.key, [7, 8], 3)
    while any(len(turns) < 2 for turns in done.values()):
        for completion in sampler.advance():
            done[completion.key].append(completion)
            if len(done[completion.key]) < 2:
                sampler.submit(completion.key, [7, 8], 3)
    return done


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_decoder_samples_the_same_tokens_with_the_same_probabilities(
    make: Callable[[], PreTrainedModel], tokenizer: PreTrainedTokenizerFast
) -> None:
    torch.manual_seed(1)
    policy = policy_of(make(), tokenizer)
    assert isinstance(LocalSampler(policy, 1, 20).forward, Decoder)
    assert play(policy) == play(policy, plain=True)


def test_a_model_of_another_make_computes_itself(tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(1)
    settings = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
    policy = policy_of(PhiForCausalLM(PhiConfig(**settings)), tokenizer)
    assert decoder_of(policy.model) is None
    assert play(policy) == play(policy, plain=True)


def test_a_model_whose_layers_were_changed_computes_itself(tokenizer: PreTrainedTokenizerFast) -> None:
    """The decoder cannot see what a hook does; the proof does."""
    torch.manual_seed(1)
    policy = policy_of(MAKERS["llama"](), tokenizer)
    policy.model.model.layers[0].mlp.register_forward_hook(lambda module, inputs, output: 2 * output)
    assert decoder_of(policy.model) is not None
    assert not isinstance(LocalSampler(policy, 1, 20).forward, Decoder)


def test_a_model_with_adapters_computes_itself(tokenizer: PreTrainedTokenizerFast) -> None:
    class Adapted(torch.nn.Linear):
        """What an adapter puts in the place of a layer."""

    policy = policy_of(MAKERS["llama"](), tokenizer)
    policy.model.model.layers[1].self_attn.q_proj = Adapted(32, 32)
    assert decoder_of(policy.model) is None


def test_the_decoder_uses_weights_that_were_changed_in_place_or_replaced(tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(1)
    policy = policy_of(MAKERS["llama"](), tokenizer)
    sampler = LocalSampler(policy, 1, 20)
    before = first_token(sampler, 0)
    with torch.no_grad():
        policy.model.get_output_embeddings().weight.mul_(-1.0)
    sampler.publish(1)
    changed = first_token(sampler, 1)
    assert changed != before
    policy.model.set_output_embeddings(torch.nn.Linear(32, 400, bias=False))
    sampler.publish(2)
    with torch.inference_mode():
        expected = int(policy.model(input_ids=torch.tensor([[5, 6, 7]])).logits[0, -1].argmax())
    assert first_token(sampler, 2) == expected


@pytest.mark.parametrize("changed", ["v_proj", "up_proj"])
def test_weights_that_a_fused_optimizer_changed_are_seen_without_publishing(
    changed: str, tokenizer: PreTrainedTokenizerFast
) -> None:
    """A fused step leaves no trace in a tensor's version: the copies have to be made again all the same."""
    torch.manual_seed(1)
    policy = policy_of(MAKERS["mistral"](), tokenizer)
    sampler = LocalSampler(policy, 1, 20)
    assert isinstance(sampler.forward, Decoder)
    assert sampler.forward.layers[0].attended.whole is not None
    before = logprob(sampler, 0)
    (weight,) = [p for name, p in policy.model.named_parameters() if f"layers.0.{_part(changed)}" in name]
    weight.grad = torch.randn_like(weight)
    torch.optim.AdamW([weight], lr=0.3, fused=True).step()
    with torch.inference_mode():
        expected = policy.model(input_ids=torch.tensor([[5, 6, 7]])).logits[0, -1].log_softmax(dim=-1).max()
    assert logprob(sampler, 1) == pytest.approx(expected.item(), abs=1e-4)
    assert abs(expected.item() - before) > 1e-2


def _part(name: str) -> str:
    return f"self_attn.{name}.weight" if name == "v_proj" else f"mlp.{name}.weight"


def logprob(sampler: LocalSampler, key: int) -> float:
    """Log-probability of the likeliest first token."""
    sampler.open(key, 0, 0.0)
    sampler.submit(key, [5, 6, 7], 1)
    (completion,) = sampler.advance()
    sampler.close(key)
    return completion.logprobs[0]


def test_a_large_matrix_gives_the_same_logits_but_for_rounding(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    policy = policy_of(MAKERS["mistral"](), tokenizer)
    monkeypatch.setattr(decoder, "JOINED_BYTES", 0)
    plain = play(policy)
    monkeypatch.setattr(decoder, "MANY_WEIGHTS", 1)
    turned = play(policy)
    assert {k: [c.token_ids for c in v] for k, v in turned.items()} == {
        k: [c.token_ids for c in v] for k, v in plain.items()
    }
    both = [(a, b) for key in plain for a, b in zip(plain[key], turned[key], strict=True)]
    assert all(b.logprobs == pytest.approx(a.logprobs, abs=1e-5) for a, b in both)
    assert any(b.logprobs != a.logprobs for a, b in both), "the other order of the sums was not used"


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.06)])
def test_neighbours_change_a_log_probability_by_rounding_alone(
    dtype: torch.dtype, bound: float, tokenizer: PreTrainedTokenizerFast
) -> None:
    torch.manual_seed(1)
    policy, stream = policy_of(MAKERS["mistral"](), tokenizer), random.Random(0)
    openings = [[stream.randrange(5, 390) for _ in range(stream.randrange(3, 30))] for _ in range(24)]
    together = LocalSampler(policy, 24, 40, dtype=dtype)
    for key, opening in enumerate(openings):
        together.open(key, key, 1.0)
        together.submit(key, opening, 1)
    crowd = {completion.key: completion for completion in together.advance()}
    alone = []
    for key, opening in enumerate(openings):
        single = LocalSampler(policy, 1, 40, dtype=dtype)
        single.open(key, key, 1.0)
        single.submit(key, opening, 1)
        alone += single.advance()
    same = [one for one in alone if one.token_ids == crowd[one.key].token_ids]
    assert len(same) >= 23, "a draw may stand on the edge, but not many do"
    assert max(abs(one.logprobs[0] - crowd[one.key].logprobs[0]) for one in same) < bound


def first_token(sampler: LocalSampler, key: int) -> int:
    sampler.open(key, 0, 0.0)
    sampler.submit(key, [5, 6, 7], 1)
    token = sampler.advance()[0].token_ids[0]
    sampler.close(key)
    return token


def test_long_episodes_are_attended_to_in_blocks(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    policy = policy_of(MAKERS["llama"](), tokenizer)
    whole = play(policy)
    monkeypatch.setattr(ragged, "LONG_TOKENS", 12)
    monkeypatch.setattr(ragged, "BLOCK_SLOTS", 2)
    blocks = play(policy)
    for key, turns in whole.items():
        for turn, other in zip(turns, blocks[key], strict=True):
            assert turn.token_ids == other.token_ids
            assert turn.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_a_block_pays_for_its_own_longest_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged, "BLOCK_SLOTS", 2)
    packing = ragged.Packing(
        slots=np.array([0, 1, 4]),
        positions=np.array([5, 600, 9]),
        sampling=3,
        counts=np.array([], dtype=np.int64),
        live=5,
        device=torch.device("cpu"),
    )
    assert packing.blocks == [(0, 2, 601), (2, 4, 0), (4, 5, 10)]


def test_bf16_probabilities_are_near_those_of_the_learner(tokenizer: PreTrainedTokenizerFast) -> None:
    """The stated bound of the sampler in bf16 on a full pass in bf16: 0.05 nats (fp32: 1e-4)."""
    torch.manual_seed(1)
    policy = policy_of(LlamaForCausalLM(LlamaConfig(**{**SMALL, "initializer_range": 0.1})), tokenizer)
    policy.model.to(torch.bfloat16)
    for key, turns in play(policy).items():
        assert all(torch.tensor(turn.logprobs).isfinite().all() for turn in turns), key
    sampler = LocalSampler(policy, 1, 100)
    sampler.open(0, 3, 1.0)
    sampler.submit(0, list(range(5, 45)), 20)
    while not (found := sampler.advance()):
        pass
    with torch.inference_mode():
        logits = policy.model(input_ids=torch.tensor([[*range(5, 45), *found[0].token_ids]])).logits[0].float()
    expected = logits.log_softmax(-1)[39:-1][torch.arange(20), torch.tensor(found[0].token_ids)]
    assert found[0].logprobs == pytest.approx(expected.tolist(), abs=0.05)
