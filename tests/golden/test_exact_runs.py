"""The same recipe and seed give the same numbers; so does a run that was interrupted and resumed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ferrata import load_recipe
from ferrata.errors import CheckpointError
from ferrata.recipe import Recipe
from ferrata.runs import RunFolder


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe(
        "office-smoke",
        ["sft.optimizer=muon", "rl.optimizer=muon", "rl.updates=3", "evaluation.tasks=15", "evaluation.tasks_small=15"],
    )


@pytest.fixture(scope="module")
def whole(runs, recipe: Recipe, tmp_path_factory: pytest.TempPathFactory):
    return runs.whole(recipe, tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.slow
def test_two_runs_agree_exactly(runs, recipe: Recipe, whole, tmp_path: Path) -> None:
    assert len(whole.numbers["rl/tokens"]) == 3
    assert sum(tokens for _, tokens in whole.numbers["rl/tokens"]) > 0, (
        "nothing was trained: the comparison would be empty"
    )
    assert runs.whole(recipe, tmp_path / "run") == whole
    groups = {(step, group) for step, group, *_ in whole.episodes if step == 1}
    assert len(groups) > 1, "two tasks of one update are two groups"


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "step"), [("sft", 2), ("sft", 4), ("rl", 1), ("rl", 2), ("rl", 3)])
def test_an_interrupted_run_goes_on_exactly(runs, recipe: Recipe, whole, tmp_path: Path, stage: str, step: int) -> None:
    runs.stopped(recipe, tmp_path / "run", stage, step)
    assert runs.resumed(tmp_path / "run") == whole


@pytest.mark.slow
def test_a_run_without_a_checkpoint_begins_again(runs, recipe: Recipe, whole, tmp_path: Path) -> None:
    runs.stopped(recipe, tmp_path / "run", "rl", 1)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert runs.resumed(tmp_path / "run") == whole


@pytest.mark.slow
def test_another_seed_gives_other_numbers(runs, recipe: Recipe, whole, tmp_path: Path) -> None:
    other = runs.whole(load_recipe("office-smoke", ["seed=1", "rl.updates=1"]), tmp_path / "run")
    assert other.numbers["sft/loss"] != whole.numbers["sft/loss"]


def test_a_run_whose_checkpoints_are_all_damaged_is_left_as_it_is(runs, recipe: Recipe, tmp_path: Path) -> None:
    runs.stopped(recipe, tmp_path / "run", "rl", 1)
    for checkpoint in (tmp_path / "run" / "checkpoints").iterdir():
        (checkpoint / "state.json").write_text("{}")
    before = metrics(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* is whole \(.*: state.json was altered"):
        runs.resumed(tmp_path / "run")
    assert metrics(tmp_path / "run") == before != {}


def test_an_altered_reference_is_not_gone_on_with(runs, recipe: Recipe, tmp_path: Path) -> None:
    """It would change the divergence of all that follows, and nobody would see it."""
    runs.stopped(recipe, tmp_path / "run", "rl", 1)
    file = tmp_path / "run" / "reference" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"RL started from.*model.safetensors was altered"):
        runs.resumed(tmp_path / "run")


def metrics(path: Path) -> dict[str, list[tuple[int, float]]]:
    with RunFolder.open(path) as folder:
        return {name: folder.store.metrics(name) for name in folder.store.metric_names()}
