"""What the comparisons of whole runs share: run one, stop one, go on with one, and take down all that must be equal."""

from __future__ import annotations

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
BEGINNER = [
    'stages=["sft"]',
    "env.tiers=[1,2]",
    'env.families=["read_value","query_value","report","approval"]',
    "sft.updates=40",
    "sft.batch_size=16",
    "sft.demonstrations=400",
    "sft.optimizer=muon",
    "sft.learning_rate=0.004",
    "rollout.max_misfit_share=1",
    "run.audit=false",
]


class StopAt(SilentView):
    """A view that asks to stop after a step of a stage, as Ctrl-C does."""

    def __init__(self, interrupts: Interrupts, stage: str, step: int) -> None:
        self.interrupts, self.wanted, self.now = interrupts, (stage, step), ""

    def stage(self, name: str, total: int) -> None:
        self.now = name

    def progress(self, step: int, metrics: object) -> None:
        if (self.now, step) == self.wanted:
            self.interrupts.requested = True


@dataclass
class Outcome:
    """Everything that two equal runs share."""

    numbers: dict[str, list[tuple[int, float]]]
    episodes: list[tuple[int, int, int, int, list[int]]]
    """Of each stored trajectory: step, group, which weights sampled it, its seed and its tokens."""
    notes: list[tuple[int, str]]
    """What the ladder and the phases of rewards told."""
    weights: bytes

    @classmethod
    def of(cls, folder: RunFolder) -> Outcome:
        store = folder.store
        listed = [(entry.step, entry.group_index, store.trajectory(entry.id)) for entry in store.list_trajectories()]
        return cls(
            _numbers(store),
            [(step, group, t.policy_version, t.seed, t.token_ids) for step, group, t in listed],
            [(note.step, note.text) for kind in ("ladder", "rewards") for note in store.notes(kind)],
            (folder.policy / "model.safetensors").read_bytes(),
        )


def _numbers(store: RunStore) -> dict[str, list[tuple[int, float]]]:
    names = [name for name in store.metric_names() if not name.startswith(CLOCKS)]
    curves = {name: store.metrics(name) for name in names}
    for entry in store.evaluations():
        key = f"evaluation/{entry.stage}/{entry.kind}/{entry.name}"
        curves.setdefault(key, []).append((entry.step, entry.content["success"]["count"]))
    return curves


class Runs:
    """Runs of recipes in folders."""

    def whole(self, recipe: Recipe, path: Path) -> Outcome:
        """From the beginning to the end."""
        with RunFolder.create(recipe, path) as folder:
            pipeline.run(recipe, folder, SilentView(), Interrupts(lambda text: None))
            return Outcome.of(folder)

    def stopped(self, recipe: Recipe, path: Path, stage: str, step: int) -> None:
        """Until somebody asks to stop after a step of a stage."""
        interrupts = Interrupts(lambda text: None)
        with RunFolder.create(recipe, path) as folder, pytest.raises(Interrupted, match="--resume"):
            pipeline.run(recipe, folder, StopAt(interrupts, stage, step), interrupts)

    def stopped_again(self, path: Path, stage: str, step: int) -> None:
        """From where a run stands until somebody asks to stop after a later step."""
        interrupts = Interrupts(lambda text: None)
        with RunFolder.open(path, writing=True) as folder, pytest.raises(Interrupted, match="--resume"):
            pipeline.run(folder.recipe, folder, StopAt(interrupts, stage, step), interrupts, resume=True)

    def resumed(self, path: Path, recipe: Recipe | None = None) -> Outcome:
        """From where a run stands to its end."""
        with RunFolder.open(path, writing=True) as folder:
            pipeline.run(recipe or folder.recipe, folder, SilentView(), Interrupts(lambda text: None), resume=True)
            return Outcome.of(folder)


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs()


@pytest.fixture(scope="session")
def beginner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that solves some office tasks of tier 1: where RL has something to go by from its first update on."""
    recipe = load_recipe("office-smoke", BEGINNER)
    path = tmp_path_factory.mktemp("beginner") / "run"
    with RunFolder.create(recipe, path) as folder:
        pipeline.run(recipe, folder, SilentView(), Interrupts(lambda text: None))
    return path
