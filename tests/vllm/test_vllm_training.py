"""Whole runs that sample with vLLM: `rollout.sampler = "vllm"`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrata import load_recipe
from ferrata.errors import UsageError
from ferrata.runs import RunFolder
from ferrata.runs.interrupt import Interrupts
from ferrata.runs.view import SilentView
from ferrata.sampling.vllm.sampler import VllmSampler
from ferrata.training import pipeline

SHAPE = [
    "rollout.sampler=vllm",
    "sft.updates=0",
    "rl.updates=2",
    "rl.learning_rate=0.003",
    "rl.algorithm=reinforce++",  # it learns from every episode: groups of a policy without SFT seldom differ
    "rl.tasks_per_update=6",
    "evaluation.tasks=2",
    "evaluation.tasks_small=2",
    "evaluation.every=10",
    "run.audit=false",
]


@pytest.mark.parametrize("more", [[], ["policy.lora_rank=4", "policy.dtype=bfloat16"]], ids=["weights", "adapters"])
def test_two_updates_sampled_by_vllm(tmp_path: Path, monkeypatch, more: list[str]) -> None:
    checksums: list[str] = []
    publish = VllmSampler.publish

    def spy(sampler: VllmSampler, version: int) -> None:
        publish(sampler, version)
        checksums.append(sampler.checksum)

    monkeypatch.setattr(VllmSampler, "publish", spy)
    recipe = load_recipe("office-smoke", [*SHAPE, *more])
    with RunFolder.create(recipe, tmp_path / "run") as folder:
        pipeline.run(recipe, folder, SilentView(), Interrupts(lambda text: None))
        gaps = [gap for _, gap in folder.store.metrics("rl/logprob_gap")]
        norms = [norm for _, norm in folder.store.metrics("rl/grad_norm")]
        versions = {folder.store.trajectory(entry.id).policy_version for entry in folder.store.list_trajectories()}
    assert len(norms) == len(gaps) == 2
    assert all(norm > 0 for norm in norms)
    assert all(gap < (0.02 if more else 1e-5) for gap in gaps), "the second update sampled with the new weights"
    assert len(set(checksums)) == 2
    assert versions == {0, 1, 2}
    assert (folder.policy / "model.safetensors").is_file()


def test_evaluation_under_a_constraint_is_refused_before_training(tmp_path: Path) -> None:
    recipe = load_recipe("office-smoke", [*SHAPE, "evaluation.constrained=true"])
    with RunFolder.create(recipe, tmp_path / "run") as folder, pytest.raises(UsageError, match="not with vLLM"):
        pipeline.run(recipe, folder, SilentView(), Interrupts(lambda text: None))
