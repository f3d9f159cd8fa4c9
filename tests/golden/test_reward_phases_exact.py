"""A run whose rewards change on the way says so once, scores accordingly, and is resumed exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrata import load_recipe
from ferrata.errors import Interrupted, TaskError
from ferrata.recipe import Recipe
from ferrata.rewards import RewardSpec
from ferrata.runs import RunFolder
from ferrata.runs.interrupt import Interrupts
from ferrata.runs.store import RunStore
from ferrata.runs.view import SilentView
from ferrata.training import pipeline

PHASES = '[{name="process", from_update=2, process=0.11}, {name="efficiency", from_update=3, efficiency=-0.5}]'
SMALL = ["rl.updates=3", "evaluation.tasks=2", "evaluation.tasks_small=2", "evaluation.every=9", "stages=['rl']"]


class StopAt(SilentView):
    """A view that asks to stop after an update, as Ctrl-C does; keeps what it was told."""

    def __init__(self, interrupts: Interrupts, update: int) -> None:
        self.interrupts, self.update, self.messages = interrupts, update, list[str]()

    def progress(self, step: int, metrics: object) -> None:
        if step == self.update:
            self.interrupts.requested = True

    def message(self, text: str) -> None:
        self.messages.append(text)


def recipe() -> Recipe:
    return load_recipe("office-smoke", [*SMALL, f"rewards.phases={PHASES}"])


def scored(store: RunStore) -> list[tuple[int, str, float | None]]:
    """Of every stored training episode: update, version and reward."""
    stored = store.list_trajectories(split="train")
    return [(one.step, store.trajectory(one.id).reward_version, one.reward) for one in stored]


def notes(store: RunStore) -> list[tuple[int, str]]:
    return [(note.step, note.text) for note in store.notes("rewards")]


def train(path: Path, stop: int = 0) -> tuple[list[tuple[int, str, float | None]], list[tuple[int, str]], list[str]]:
    interrupts = Interrupts(lambda text: None)
    view = StopAt(interrupts, stop)
    with RunFolder.create(recipe(), path) as folder:
        if stop:
            with pytest.raises(Interrupted):
                pipeline.run(folder.recipe, folder, view, interrupts)
        else:
            pipeline.run(folder.recipe, folder, view, interrupts)
    if stop:
        with RunFolder.open(path, writing=True) as folder:
            pipeline.run(folder.recipe, folder, view, Interrupts(lambda text: None), resume=True)
    with RunFolder.open(path) as folder:
        versions = [entry.content["versions"]["rewards"] for entry in folder.store.evaluations(kind="full")]
        assert versions[-1] == RewardSpec(recipe().rewards).at(3).version
        return scored(folder.store), notes(folder.store), view.messages


@pytest.mark.slow
def test_phases_are_scored_noted_and_resumed_exactly(tmp_path: Path) -> None:
    spec = RewardSpec(recipe().rewards)
    episodes, noted, messages = train(tmp_path / "whole")
    assert {(step, version) for step, version, _ in episodes} == {
        (update, spec.at(update).version) for update in (1, 2, 3)
    }
    assert [step for step, _ in noted] == [2, 3]
    assert noted[0][1] == (
        f"Reward phase 'process' has begun: from here on episodes are scored by weights {spec.at(2).version}."
    )
    assert [text for _, text in noted] == [text for text in messages if text.startswith("Reward phase")]
    # Stopped after the first phase has begun and before the second does.
    again, noted_again, _ = train(tmp_path / "stopped", stop=2)
    assert again == episodes
    assert noted_again == noted


@pytest.mark.slow
def test_a_phase_whose_process_reward_outweighs_the_outcome_is_refused_at_once(tmp_path: Path) -> None:
    greedy = load_recipe("office-smoke", [*SMALL, 'rewards.phases=[{name="late", from_update=4, process=0.9}]'])
    with RunFolder.create(greedy, tmp_path / "run") as folder:
        with pytest.raises(TaskError, match=r"Process reward outweighs the outcome .* in phase 'late'"):
            pipeline.run(greedy, folder, SilentView(), Interrupts(lambda text: None))
        assert folder.store.stages() == []
