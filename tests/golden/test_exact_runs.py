"""The same recipe and seed give the same numbers; so does a run that was interrupted and resumed."""

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


def train(recipe: Recipe, path: Path) -> dict[str, list[tuple[int, float]]]:
    with RunFolder.create(recipe, path) as folder:
        pipeline.run(recipe, folder, SilentView(), Interrupts(lambda text: None))
        return numbers(folder.store)


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe("office-smoke", ["rl.updates=3", "evaluation.tasks=15", "evaluation.tasks_small=15"])


@pytest.fixture(scope="module")
def whole(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, float]]]:
    return train(recipe, tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.slow
def test_two_runs_agree_exactly(recipe: Recipe, whole: dict[str, list[tuple[int, float]]], tmp_path: Path) -> None:
    assert len(whole["rl/tokens"]) == 3
    assert sum(tokens for _, tokens in whole["rl/tokens"]) > 0, "nothing was trained: the comparison would be empty"
    assert train(recipe, tmp_path / "run") == whole


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "step"), [("sft", 2), ("rl", 1), ("rl", 2)])
def test_an_interrupted_run_goes_on_exactly(
    recipe: Recipe, whole: dict[str, list[tuple[int, float]]], tmp_path: Path, stage: str, step: int
) -> None:
    interrupts = Interrupts(lambda text: None)
    with RunFolder.create(recipe, tmp_path / "run") as folder, pytest.raises(Interrupted, match="--resume"):
        pipeline.run(recipe, folder, StopAt(interrupts, stage, step), interrupts)
    with RunFolder.open(tmp_path / "run", writing=True) as folder:
        pipeline.run(folder.recipe, folder, SilentView(), Interrupts(lambda text: None), resume=True)
        assert numbers(folder.store) == whole
        assert (folder.policy / "model.safetensors").is_file()


@pytest.mark.slow
def test_another_seed_gives_other_numbers(
    recipe: Recipe, whole: dict[str, list[tuple[int, float]]], tmp_path: Path
) -> None:
    other = train(load_recipe("office-smoke", ["seed=1", "rl.updates=1"]), tmp_path / "run")
    assert other["sft/loss"] != whole["sft/loss"]
