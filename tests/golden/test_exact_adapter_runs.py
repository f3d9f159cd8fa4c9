"""Runs with adapters and a rounded copy that samples: the same numbers again, and after an interruption."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ferrata import load_recipe
from ferrata.errors import CheckpointError, Interrupted
from ferrata.models.adapters import has_adapters
from ferrata.models.policy import load_policy
from ferrata.recipe import Recipe
from ferrata.runs import RunFolder
from ferrata.runs.interrupt import Interrupts
from ferrata.runs.view import SilentView
from ferrata.training import pipeline

WEIGHTS = "model.safetensors"
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


class StopAt(SilentView):
    """Asks to stop after a step of a stage, as Ctrl-C does."""

    def __init__(self, interrupts: Interrupts, stage: str, step: int) -> None:
        self.interrupts, self.wanted, self.now = interrupts, (stage, step), ""

    def stage(self, name: str, total: int) -> None:
        self.now = name

    def progress(self, step: int, metrics: object) -> None:
        self.interrupts.requested |= (self.now, step) == self.wanted


def curves(folder: RunFolder) -> dict[str, list[tuple[int, float]]]:
    names = [name for name in folder.store.metric_names() if not name.startswith(("time/", "rollout/tokens_per"))]
    return {name: folder.store.metrics(name) for name in names}


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe("office-smoke", SHAPE)


@pytest.fixture(scope="module")
def whole(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    with RunFolder.create(recipe, tmp_path_factory.mktemp("runs") / "whole") as folder:
        pipeline.run(recipe, folder, SilentView(), Interrupts(lambda text: None))
        yield folder


def stopped(recipe: Recipe, path: Path, stage: str, step: int) -> None:
    interrupts = Interrupts(lambda text: None)
    with RunFolder.create(recipe, path) as folder, pytest.raises(Interrupted):
        pipeline.run(recipe, folder, StopAt(interrupts, stage, step), interrupts)


def resume(recipe: Recipe, path: Path) -> tuple[dict[str, list[tuple[int, float]]], bytes]:
    with RunFolder.open(path) as folder:
        pipeline.run(recipe, folder, SilentView(), Interrupts(lambda text: None), resume=True)
        return curves(folder), (folder.policy / WEIGHTS).read_bytes()


@pytest.mark.parametrize(("stage", "step"), [("sft", 2), ("rl", 1)])
def test_a_run_with_adapters_goes_on_exactly(recipe, whole, tmp_path, stage: str, step: int) -> None:
    stopped(recipe, tmp_path / "run", stage, step)
    assert resume(recipe, tmp_path / "run") == (curves(whole), (whole.policy / WEIGHTS).read_bytes())


def test_adapters_were_trained_in_both_stages_against_the_start_of_rl(whole) -> None:
    numbers = curves(whole)
    assert len(numbers["sft/loss"]) == 4
    assert all(norm > 0 for _, norm in numbers["rl/grad_norm"]), "something was trained"
    (_, first), (_, second) = numbers["rl/kl"]
    assert 0 <= first < second, "the reference stays where RL started"
    assert all(0 < gap < 0.05 for _, gap in numbers["rl/logprob_gap"]), "sampled in bfloat16, scored in float32"


def test_what_a_run_leaves_is_a_plain_policy_that_differs_from_its_base(whole) -> None:
    trained, base = load_policy(whole.path).model, load_policy("base").model
    assert not has_adapters(trained)
    same = {name: torch.equal(tensor, base.state_dict()[name]) for name, tensor in trained.state_dict().items()}
    assert not same["model.layers.0.self_attn.q_proj.weight"]
    assert same["model.embed_tokens.weight"]
    assert same["model.norm.weight"]


def test_a_run_whose_recipe_changed_its_adapters_is_not_resumed(recipe, whole, tmp_path) -> None:
    stopped(recipe, tmp_path / "run", "sft", 2)
    changed = load_recipe("office-smoke", [*SHAPE, "policy.lora_rank=2"])
    with pytest.raises(CheckpointError, match=r"do not fit this recipe's policy"):
        resume(changed, tmp_path / "run")
