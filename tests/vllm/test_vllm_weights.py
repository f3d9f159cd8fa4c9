"""Weights that change in place, and weights that never arrive (fault 19)."""

from __future__ import annotations

import pytest
import torch

from ferrata.errors import SamplerFault
from ferrata.sampling.vllm import weights


def test_publish_brings_new_weights_and_forgets_what_old_ones_read(
    vllm, base, openings, turn, shake, check_logprobs
) -> None:
    long = openings[0] * 3  # several blocks, which stay in the prefix cache
    before, checksum = turn(vllm, long), vllm.checksum
    shake(base.model)
    vllm.publish(4)
    after = turn(vllm, long)
    assert after != before
    assert vllm.version == 4
    assert vllm.checksum != checksum
    check_logprobs(base.model, long, *after)


def test_the_smallest_change_of_one_weight_changes_the_checksum(vllm, base) -> None:
    checksum = vllm.checksum
    vllm.publish(1)
    assert vllm.checksum == checksum
    with torch.no_grad():
        weight = base.model.model.layers[2].mlp.down_proj.weight
        weight[3, 5] = torch.nextafter(weight[3, 5], torch.tensor(9.0))
    vllm.publish(2)
    assert vllm.checksum != checksum


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        ("q_proj", "qkv_proj"),
        ("gate_proj", "gate_up_proj"),
        ("down_proj", "down_proj"),
        ("input_layernorm", "input_layernorm"),
        # One tensor under two names: vLLM packs the head's copy again only when the head's own name comes.
        ("lm_head", "lm_head.weight (packed)"),
    ],
)
def test_a_tensor_that_does_not_arrive_is_found(vllm, base, lost, named, shake, monkeypatch) -> None:
    shake(base.model)
    call = vllm._engine.collective_rpc

    def lossy(method, **arguments):
        if method == "reload_weights":
            kept = ((name, new) for name, new in arguments["kwargs"]["weights_iterator"] if lost not in name)
            arguments = {"kwargs": {"weights_iterator": kept}}
        return call(method, **arguments)

    monkeypatch.setattr(vllm._engine, "collective_rpc", lossy)
    with pytest.raises(SamplerFault, match="did not reach vLLM") as caught:
        vllm.publish(9)
    assert named in str(caught.value)
    assert vllm.version != 9
    with pytest.raises(SamplerFault, match="nothing may be sampled"):
        vllm.open(0, 0, 1.0)


def test_one_wrong_value_is_found(vllm, base, monkeypatch) -> None:
    call = vllm._engine.collective_rpc

    def corrupt(name, tensor):
        tensor = tensor.clone()
        if name == "model.layers.3.self_attn.k_proj.weight":
            tensor[7, 7] *= 1.0 + 2.0**-20
        return name, tensor

    def corrupting(method, **arguments):
        if method == "reload_weights":
            changed = (corrupt(name, tensor) for name, tensor in arguments["kwargs"]["weights_iterator"])
            arguments = {"kwargs": {"weights_iterator": changed}}
        return call(method, **arguments)

    monkeypatch.setattr(vllm._engine, "collective_rpc", corrupting)
    with pytest.raises(SamplerFault, match=r"1 of \d+ tensors .* model\.layers\.3\.self_attn\.qkv_proj"):
        vllm.publish(9)


def test_an_update_that_never_runs_is_found(vllm, base, shake, monkeypatch) -> None:
    shake(base.model)
    call = vllm._engine.collective_rpc
    monkeypatch.setattr(
        vllm._engine,
        "collective_rpc",
        lambda method, **rest: [] if method == "reload_weights" else call(method, **rest),
    )
    with pytest.raises(SamplerFault, match="did not reach vLLM"):
        vllm.publish(9)


def test_an_engine_that_does_not_forget_is_found(vllm, monkeypatch) -> None:
    monkeypatch.setattr(vllm._engine, "reset_prefix_cache", lambda: False)
    with pytest.raises(SamplerFault, match="did not forget"):
        vllm.publish(9)


def test_a_weight_without_a_counterpart_is_named(base) -> None:
    foreign = torch.nn.ModuleDict({"x": torch.nn.Linear(2, 2)})
    with pytest.raises(SamplerFault, match=r"x\.weight"):
        weights.arranged(foreign, base.model.state_dict(), torch.float32)
