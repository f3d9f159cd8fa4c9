"""Runs with adapters and a rounded copy that samples: the same numbers again, and after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ferrata import load_recipe
from ferrata.errors import CheckpointError
from ferrata.models.adapters import has_adapters
from ferrata.models.policy import load_policy
from ferrata.recipe import Recipe

SHAPE = [
    "policy.lora_rank=4",
    "policy.lora_alpha=8",
    "policy.dtype=bfloat16",
    "run.audit=false",
    "sft.updates=4",
    "rl.updates=2",
    "rl.learning_rate=0.003",
    "rl.optimizer=muon",
    "evaluation.tasks=3",
    "evaluation.tasks_small=3",
    "evaluation.every=10",
]


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe("office-smoke", SHAPE)


@pytest.fixture(scope="module")
def path(recipe: Recipe, runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs") / "whole"


@pytest.fixture(scope="module")
def whole(recipe: Recipe, runs, path: Path):
    return runs.whole(recipe, path)


@pytest.mark.parametrize(("stage", "step"), [("sft", 2), ("rl", 1)])
def test_a_run_with_adapters_goes_on_exactly(runs, recipe, whole, tmp_path, stage: str, step: int) -> None:
    runs.stopped(recipe, tmp_path / "run", stage, step)
    assert runs.resumed(tmp_path / "run") == whole


def test_adapters_were_trained_in_both_stages_against_the_start_of_rl(whole) -> None:
    numbers = whole.numbers
    assert len(numbers["sft/loss"]) == 4
    assert all(norm > 0 for _, norm in numbers["rl/grad_norm"]), "something was trained"
    (_, first), (_, second) = numbers["rl/kl"]
    assert 0 <= first < second, "the reference stays where RL started"
    assert all(0 < gap < 0.05 for _, gap in numbers["rl/logprob_gap"]), "sampled in bfloat16, scored in float32"


def test_what_a_run_leaves_is_a_plain_policy_that_differs_from_its_base(whole, path) -> None:
    trained, base = load_policy(path).model, load_policy("base").model
    assert not has_adapters(trained)
    same = {name: torch.equal(tensor, base.state_dict()[name]) for name, tensor in trained.state_dict().items()}
    assert not same["model.layers.0.self_attn.q_proj.weight"]
    assert same["model.embed_tokens.weight"]
    assert same["model.norm.weight"]


def test_a_run_whose_recipe_changed_its_adapters_is_not_resumed(runs, recipe, tmp_path) -> None:
    runs.stopped(recipe, tmp_path / "run", "sft", 2)
    changed = load_recipe("office-smoke", [*SHAPE, "policy.lora_rank=2"])
    with pytest.raises(CheckpointError, match=r"do not fit this recipe's policy"):
        runs.resumed(tmp_path / "run", changed)
