"""Adapters beside frozen weights: where they go, what is trained, what is merged, what is saved."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from ferrata.errors import CheckpointError, PolicyError
from ferrata.learning.optimizer import build_optimizer
from ferrata.models.adapters import (
    attach,
    has_adapters,
    load_adapters,
    plain_weights,
    save_adapters,
    twin,
)
from ferrata.models.policy import Policy, load_policy, save_policy

IDS = torch.tensor([[1, 7, 3, 9, 2, 11]])


def adapted(policy: Policy, rank: int = 3, alpha: float = 6.0, targets: tuple[str, ...] = (), seed: int = 4) -> Policy:
    model = copy.deepcopy(policy.model)
    attach(model, rank, alpha, targets, seed)
    return Policy(policy.name, model, policy.tokenizer, policy.chat)


def shake(model: nn.Module) -> None:
    """Move every adapter, as training would."""
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=noise) * 0.3)


def logits(model: nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=IDS).logits


def test_until_the_first_step_the_model_is_its_base(tiny_policy) -> None:
    policy = adapted(tiny_policy)
    assert has_adapters(policy.model)
    assert not has_adapters(tiny_policy.model)
    assert torch.equal(logits(policy.model), logits(tiny_policy.model))


def test_only_adapters_are_trainable_and_stand_at_all_layers_but_the_output(tiny_policy) -> None:
    model = adapted(tiny_policy).model
    trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trainable
    assert all(".lora_A." in name or ".lora_B." in name for name in trainable)
    linear = [name for name, module in tiny_policy.model.named_modules() if isinstance(module, nn.Linear)]
    assert {name.partition(".lora_")[0] for name in trainable} == set(linear) - {"lm_head"}


def test_targets_are_named_by_the_last_part(tiny_policy) -> None:
    model = adapted(tiny_policy, targets=("q_proj", "down_proj")).model
    trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert {name.partition(".lora_")[0].rpartition(".")[2] for name in trainable} == {"q_proj", "down_proj"}


@pytest.mark.parametrize("target", ["qproj", "lm_head"])
def test_a_target_that_cannot_be_adapted_is_named(tiny_policy, target: str) -> None:
    with pytest.raises(PolicyError, match=f"no linear layer '{target}'"):
        adapted(tiny_policy, targets=(target,))


def test_the_seed_decides_where_adapters_start_and_no_other_stream_moves(tiny_policy) -> None:
    before = torch.get_rng_state()
    first, again, other = (adapted(tiny_policy, seed=seed).model.state_dict() for seed in (4, 4, 5))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_plain_weights_compute_the_same_without_adapters(tiny_policy) -> None:
    policy = adapted(tiny_policy)
    shake(policy.model)
    plain = LlamaForCausalLM(tiny_policy.model.config).eval()
    plain.load_state_dict(dict(plain_weights(policy.model)))
    assert torch.allclose(logits(plain), logits(policy.model), atol=1e-4)
    assert (logits(plain) - logits(tiny_policy.model)).abs().max() > 0.1
    before = tiny_policy.model.state_dict()
    layer = "model.layers.0.self_attn.q_proj"
    part = policy.model.get_submodule(layer)
    expected = before[f"{layer}.weight"] + 2.0 * part.lora_B["default"].weight @ part.lora_A["default"].weight
    assert torch.allclose(plain.get_submodule(layer).weight, expected, atol=1e-6)


def test_plain_weights_of_a_plain_model_are_its_own_tensors(tiny_policy) -> None:
    found = dict(plain_weights(tiny_policy.model))
    assert {name: tensor.data_ptr() for name, tensor in found.items()} == {
        name: tensor.data_ptr() for name, tensor in tiny_policy.model.state_dict().items()
    }


def test_a_saved_policy_is_an_ordinary_folder_with_adapters_merged(tiny_policy, tmp_path: Path) -> None:
    policy = adapted(tiny_policy)
    shake(policy.model)
    save_policy(policy, tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy").model
    assert not has_adapters(loaded)
    assert sum(p.numel() for p in loaded.parameters()) == sum(p.numel() for p in tiny_policy.model.parameters())
    assert torch.allclose(logits(loaded), logits(policy.model), atol=1e-4)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "policy", dtype=torch.float32, local_files_only=True)
    assert torch.equal(logits(plain), logits(loaded))
    assert has_adapters(policy.model), "saving leaves the policy as it was"


def test_a_twin_shares_the_frozen_weights_and_keeps_its_own_adapters(tiny_policy) -> None:
    policy = adapted(tiny_policy)
    other = twin(policy.model)
    shake(policy.model)
    assert torch.equal(logits(other), logits(tiny_policy.model))
    assert not torch.equal(logits(policy.model), logits(other))
    own, others = dict(policy.model.named_parameters()), dict(other.named_parameters())
    assert all((own[name] is others[name]) != own[name].requires_grad for name in own)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_optimizers_move_adapters_alone(tiny_policy, kind: str) -> None:
    model = adapted(tiny_policy).model
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = build_optimizer(model, 0.1, 0.1, kind)
    assert {id(p) for p in optimizer.parameters()} == {id(p) for p in model.parameters() if p.requires_grad}
    for _ in range(2):  # A has no gradient until B has moved
        model(input_ids=IDS).logits.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all(torch.equal(before[name], p) != p.requires_grad for name, p in model.named_parameters())


def test_saved_adapters_go_on_exactly(tiny_policy, tmp_path: Path) -> None:
    policy, other = adapted(tiny_policy), adapted(tiny_policy, seed=9)
    shake(policy.model)
    save_adapters(policy.model, tmp_path / "adapters")
    load_adapters(other.model, tmp_path / "adapters")
    assert torch.equal(logits(other.model), logits(policy.model))


def test_adapters_of_another_base_are_refused(tiny_policy, tmp_path: Path) -> None:
    policy = adapted(tiny_policy)
    save_adapters(policy.model, tmp_path / "adapters")
    with torch.no_grad():
        policy.model.get_input_embeddings().weight[0, 0] += 1.0
    with pytest.raises(CheckpointError, match=r"other weights than those of policy\.model"):
        load_adapters(policy.model, tmp_path / "adapters")


def test_adapters_of_another_rank_are_refused(tiny_policy, tmp_path: Path) -> None:
    save_adapters(adapted(tiny_policy).model, tmp_path / "adapters")
    with pytest.raises(CheckpointError, match=r"do not fit this recipe's policy"):
        load_adapters(adapted(tiny_policy, rank=2).model, tmp_path / "adapters")


def test_torn_adapters_are_refused_in_one_sentence(tiny_policy, tmp_path: Path) -> None:
    (tmp_path / "adapters").write_bytes(b"\0" * 20)
    with pytest.raises(CheckpointError, match="While reading the adapters"):
        load_adapters(adapted(tiny_policy).model, tmp_path / "adapters")


def test_a_folder_of_adapters_is_no_policy(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(PolicyError, match="holds adapters, not a policy"):
        load_policy(tmp_path)
