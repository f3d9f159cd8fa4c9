"""Weights that are no numbers are named where they come in: at loading, and when they are handed to a sampler."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from ferrata.cli.main import app
from ferrata.errors import PolicyError, SamplerFault
from ferrata.models.policy import Policy, load_policy, save_policy
from ferrata.sampling.local import LocalSampler
from ferrata.sampling.vllm.weights import send

BAD = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def policy(tiny_policy: Policy) -> Policy:
    return replace(tiny_policy, model=copy.deepcopy(tiny_policy.model))


def spoil(policy: Policy, value: float) -> None:
    with torch.no_grad():
        policy.model.get_parameter(BAD)[0, 0] = value


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_policy_with_such_weights_is_not_loaded(policy: Policy, tmp_path: Path, value: float) -> None:
    spoil(policy, value)
    save_policy(policy, tmp_path / "policy")
    with pytest.raises(PolicyError, match=rf"not usable: its weights hold NaN or infinity, first in {BAD}"):
        load_policy(tmp_path / "policy")
    result = CliRunner().invoke(app, ["eval", str(tmp_path / "policy"), "--env", "office", "--tasks", "1"])
    assert result.exit_code == 2
    assert BAD in result.output


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_are_not_published_and_good_ones_are_again(policy: Policy, dtype: torch.dtype) -> None:
    sampler, good = LocalSampler(policy, 1, 40, dtype=dtype), copy.deepcopy(policy.model.state_dict())
    spoil(policy, float("nan"))
    with pytest.raises(SamplerFault, match=f"NaN or infinity, first in {BAD}"):
        sampler.publish(1)
    with pytest.raises(SamplerFault, match="nothing may be sampled"):
        sampler.open(0, 0, 1.0)
    policy.model.load_state_dict(good)
    sampler.publish(2)
    sampler.open(0, 0, 1.0)


def test_a_number_that_only_rounding_makes_infinite_is_found(policy: Policy) -> None:
    spoil(policy, torch.finfo(torch.float32).max)
    with pytest.raises(SamplerFault, match=BAD):
        LocalSampler(policy, 1, 40, dtype=torch.bfloat16)


def test_finite_weights_that_compute_no_finite_number_are_refused(policy: Policy) -> None:
    with torch.no_grad():
        policy.model.get_parameter(BAD).fill_(3e38)
    with pytest.raises(SamplerFault, match="the policy computes NaN or infinity"):
        LocalSampler(policy, 1, 40)


def test_vllm_is_not_sent_them(policy: Policy) -> None:
    spoil(policy, float("nan"))
    with pytest.raises(SamplerFault, match=BAD):
        send(object(), policy.model, torch.float32)
