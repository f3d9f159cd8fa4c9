"""The same recipe and seed give the same numbers; so does a run that was interrupted and resumed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from ferrata import load_recipe
from ferrata.errors import Interrupted
from ferrata.recipe import Recipe
from ferrata.runs import RunFolder
from ferrata.runs.interrupt import Interrupts
from ferrata.runs.store import RunStore
from ferrata.runs.view import SilentView
from ferrata.training import pipeline

CLOCKS = ("time/", "rollout/tokens_per_second")
"""Metrics that measure the machine and not the run."""


class StopAt(SilentView):
    """A view that asks to stop after a step of a stage, as Ctrl-C does."""

    def __init__(self, interrupts: Interrupts, stage: str, step: int) -> None:
        self.interrupts, self.wanted, self.now = interrupts, (stage, step), ""

    def stage(self, name: str, total: int) -> None:
        self.now = name

    def progress(self, step: int, metrics: object) -> None:
        if (self.now, step) == self.wanted:
            self.interrupts.requested = True


def numbers(store: RunStore) -> dict[str, list[tuple[int, float]]]:
    names = [name for name in store.metric_names() if not name.startswith(CLOCKS)]
    curves = {name: store.metrics(name) for name in names}
    for entry in store.evaluations():
        key = f"evaluation/{entry.stage}/{entry.kind}/{entry.name}"
        curves.setdefault(key, []).append((entry.step, entry.content["success"]["count"]))
    return curves


def episodes(store: RunStore) -> list[tuple[int, int, int, int, list[int]]]:
    """What is stored of each trajectory, and which weights sampled it."""
    listed = [(entry.step, entry.group_index, store.trajectory(entry.id)) for entry in store.list_trajectories()]
    return [(step, group, t.policy_version, t.seed, t.token_ids) for step, group, t in listed]


@dataclass
class Outcome:
    """Everything that two equal runs share."""

    numbers: dict[str, list[tuple[int, float]]]
    episodes: list[tuple[int, int, int, int, list[int]]]
    weights: bytes

    @classmethod
    def of(cls, folder: RunFolder) -> Outcome:
        weights = (folder.policy / "model.safetensors").read_bytes()
        return cls(numbers(folder.store), episodes(folder.store), weights)


def train(recipe: Recipe, path: Path) -> Outcome:
    with RunFolder.create(recipe, path) as folder:
        pipeline.run(recipe, folder, SilentView(), Interrupts(lambda text: None))
        return Outcome.of(folder)


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe(
        "office-smoke",
        ["sft.optimizer=muon", "rl.optimizer=muon", "rl.updates=3", "evaluation.tasks=15", "evaluation.tasks_small=15"],
    )


@pytest.fixture(scope="module")
def whole(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return train(recipe, tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.slow
def test_two_runs_agree_exactly(recipe: Recipe, whole: Outcome, tmp_path: Path) -> None:
    assert len(whole.numbers["rl/tokens"]) == 3
    assert sum(tokens for _, tokens in whole.numbers["rl/tokens"]) > 0, (
        "nothing was trained: the comparison would be empty"
    )
    assert train(recipe, tmp_path / "run") == whole
    groups = {(step, group) for step, group, *_ in whole.episodes if step == 1}
    assert len(groups) > 1, "two tasks of one update are two groups"


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "step"), [("sft", 2), ("sft", 4), ("rl", 1), ("rl", 2), ("rl", 3)])
def test_an_interrupted_run_goes_on_exactly(
    recipe: Recipe, whole: Outcome, tmp_path: Path, stage: str, step: int
) -> None:
    interrupts = Interrupts(lambda text: None)
    with RunFolder.create(recipe, tmp_path / "run") as folder, pytest.raises(Interrupted, match="--resume"):
        pipeline.run(recipe, folder, StopAt(interrupts, stage, step), interrupts)
    with RunFolder.open(tmp_path / "run", writing=True) as folder:
        pipeline.run(folder.recipe, folder, SilentView(), Interrupts(lambda text: None), resume=True)
        assert Outcome.of(folder) == whole


@pytest.mark.slow
def test_a_run_without_a_checkpoint_begins_again(recipe: Recipe, whole: Outcome, tmp_path: Path) -> None:
    interrupts = Interrupts(lambda text: None)
    with RunFolder.create(recipe, tmp_path / "run") as folder, pytest.raises(Interrupted):
        pipeline.run(recipe, folder, StopAt(interrupts, "rl", 1), interrupts)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with RunFolder.open(tmp_path / "run", writing=True) as folder:
        pipeline.run(folder.recipe, folder, SilentView(), Interrupts(lambda text: None), resume=True)
        assert Outcome.of(folder) == whole


@pytest.mark.slow
def test_another_seed_gives_other_numbers(recipe: Recipe, whole: Outcome, tmp_path: Path) -> None:
    other = train(load_recipe("office-smoke", ["seed=1", "rl.updates=1"]), tmp_path / "run")
    assert other.numbers["sft/loss"] != whole.numbers["sft/loss"]
