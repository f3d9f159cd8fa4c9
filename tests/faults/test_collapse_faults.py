"""Peers' fault 25: the policy collapses into one repeated character, and nobody notices for hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrata import load_recipe
from ferrata.runs import RunFolder
from ferrata.runs.interrupt import Interrupts
from ferrata.runs.view import SilentView
from ferrata.training import pipeline
from ferrata.training.rl import REMINDER

SHAPE = [
    "env.tiers=[1,2]",
    'env.families=["read_value","query_value","report","approval"]',
    "sft.updates=120",
    "sft.batch_size=16",
    "sft.demonstrations=1000",
    "sft.optimizer=muon",
    "sft.learning_rate=0.004",
    "rl.optimizer=muon",
    "rl.tasks_per_update=6",
    "rl.minibatches=1",
    "evaluation.every=100",
    "evaluation.tasks=2",
    "evaluation.tasks_small=2",
    "rollout.max_misfit_share=1",
    "run.audit=false",
]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that is well: it solves some of its tasks, and writes nothing twice over."""
    path = tmp_path_factory.mktemp("policy") / "run"
    with RunFolder.create(load_recipe("office-smoke", [*SHAPE, 'stages=["sft"]']), path) as folder:
        pipeline.run(folder.recipe, folder, SilentView(), Interrupts(lambda text: None))
    return path


class Heard(SilentView):
    """Keeps what a person is told."""

    def __init__(self) -> None:
        self.alarms: list[str] = []

    def message(self, text: str) -> None:
        if text.startswith("Alarm"):
            self.alarms.append(text)


def trained(policy: Path, path: Path, *more: str) -> tuple[list[str], list[tuple[int, float]], list[int], list[float]]:
    """What was told; share of looping turns by update; at which updates that was noted; success."""
    heard = Heard()
    recipe = load_recipe("office-smoke", [*SHAPE, 'stages=["rl"]', f"policy.model={policy}", *more])
    with RunFolder.create(recipe, path) as folder:
        pipeline.run(recipe, folder, heard, Interrupts(lambda text: None))
        store = folder.store
        noted = [note.step for note in store.notes("collapse/looping_turns")]
        success = [value for _, value in store.metrics("rollout/success")]
        return heard.alarms, store.metrics("collapse/looping_turns"), noted, success


@pytest.mark.slow
def test_fault_25_a_collapse_is_told_at_the_first_update_that_shows_it(policy: Path, tmp_path: Path) -> None:
    """Steps a hundred times too long ruin a policy within a few updates, as they do in larger models within hours."""
    alarms, looping, noted, success = trained(
        policy, tmp_path / "run", "rl.learning_rate=0.1", f"rl.updates={REMINDER + 3}"
    )
    first = next(update for update, share in looping if share > 0.2)
    assert success[0] > 0.1, "it was well at first"
    assert success[-1] == 0.0
    assert 1 < first <= 4
    assert noted == [first, first + REMINDER][: len(noted)], "at once, and not at every update"
    assert alarms[0].startswith(f"Alarm, update {first}: ")
    assert "over and over, for instance" in alarms[0]
    assert "rl.learning_rate" in alarms[0]


@pytest.mark.slow
def test_a_policy_that_is_well_raises_no_alarm(policy: Path, tmp_path: Path) -> None:
    alarms, looping, noted, _ = trained(policy, tmp_path / "run", "rl.learning_rate=0.001", "rl.updates=6")
    assert (alarms, noted) == ([], [])
    assert max(share for _, share in looping) < 0.05
