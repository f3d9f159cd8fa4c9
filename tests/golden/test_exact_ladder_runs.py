"""A run with ladder, pool, replaced groups, demonstrations and a round played ahead is repeated and resumed exactly."""

from __future__ import annotations

import multiprocessing
import random
from pathlib import Path

import pytest

from ferrata import load_recipe
from ferrata.errors import FerrataError, RolloutFault
from ferrata.recipe import Recipe
from ferrata.records import Task
from ferrata.rollout.collector import Collector
from ferrata.runs import RunFolder
from ferrata.runs.interrupt import Interrupts
from ferrata.runs.view import SilentView
from ferrata.training import pipeline
from ferrata.training.material import Material
from ferrata.training.session import Session

SHAPE = [
    'stages=["rl"]',
    "env.tiers=[1,2]",
    'env.families=["read_value","query_value","report","approval"]',
    "rl.updates=6",
    "rl.optimizer=muon",
    "rl.kl=0",
    "evaluation.every=1",
    "evaluation.tasks=8",
    "evaluation.tasks_small=4",
    "rollout.max_turns=6",
    "rollout.max_tokens_per_turn=16",
    "rollout.max_misfit_share=1",
    "ladder.enabled=true",
    "ladder.schedule=[3]",
    "ladder.turn_caps=[2,6]",
    "pool.enabled=true",
    "rl.redraws=1",
    "rl.instructions=0.2",
    "rl.staleness=1",
    "run.audit=false",
]
KILLS = 30


@pytest.fixture(scope="module")
def recipe(beginner: Path) -> Recipe:
    return load_recipe("office-smoke", [*SHAPE, f"policy.model={beginner}"])


@pytest.fixture(scope="module")
def whole(runs, recipe: Recipe, tmp_path_factory: pytest.TempPathFactory):
    return runs.whole(recipe, tmp_path_factory.mktemp("whole") / "run")


def curve(whole, name: str) -> list[float]:
    return [value for _, value in whole.numbers[name]]


def test_everything_takes_part(whole) -> None:
    assert curve(whole, "ladder/rung") == [0, 0, 1, 1, 1, 1]
    assert set(curve(whole, "ladder/turn_cap")) == {2, 6}
    assert [step for step, _ in whole.notes] == sorted(step for step, _ in whole.notes)
    assert any("schedule" in text for _, text in whole.notes)
    assert max(curve(whole, "pool/reused")) > 0
    assert max(curve(whole, "groups/replaced")) > 0
    assert max(curve(whole, "rl/demonstrations")) > 0
    assert curve(whole, "rl/stale_share")[0] == 0 < max(curve(whole, "rl/stale_share"))
    assert {step: version for step, _, version, *_ in whole.episodes if step} == {1: 0, 2: 0, 3: 1, 4: 2, 5: 3, 6: 6}


def test_two_ladder_runs_agree_exactly(runs, recipe: Recipe, whole, tmp_path: Path) -> None:
    assert runs.whole(recipe, tmp_path / "run") == whole


@pytest.mark.parametrize("step", range(1, 6))
def test_fault_2_a_ladder_run_goes_on_exactly_also_at_the_boundary(
    runs, recipe: Recipe, whole, tmp_path: Path, step: int
) -> None:
    """Update 3 is the first with the second tier: a checkpoint there must know it, and add it once."""
    runs.stopped(recipe, tmp_path / "run", "rl", step)
    assert runs.resumed(tmp_path / "run") == whole


@pytest.fixture(scope="module", params=[0, 1])
def rare(request: pytest.FixtureRequest, recipe: Recipe) -> Recipe:
    """Played one round ahead or not, with no checkpoint before the last update."""
    rare = ["run.checkpoint_every=99", "evaluation.every=4", f"rl.staleness={request.param}", "ladder.turn_caps=[6]"]
    rare.append('rewards.phases=[{name="later", from_update=3, process=0.05}]')
    return load_recipe("office-smoke", [*SHAPE, f"policy.model={recipe.policy.model}", *rare])


@pytest.fixture(scope="module")
def undisturbed(runs, rare: Recipe, tmp_path_factory: pytest.TempPathFactory):
    return runs.whole(rare, tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.mark.parametrize(
    ("breaks", "kept"),
    [("a round", 4), ("a demonstration", 4), ("a small evaluation", 4), ("the last evaluation", 6)],
)
def test_what_fails_loses_nothing_that_was_learnt(
    runs, rare: Recipe, undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: str, kept: int
) -> None:
    """Something breaks down far from a checkpoint; mended, the run goes on from there as if nothing had happened."""
    with monkeypatch.context() as patched, RunFolder.create(rare, tmp_path / "run") as folder:
        break_down(patched, breaks)
        with pytest.raises(RolloutFault, match="down"):
            pipeline.run(rare, folder, SilentView(), Interrupts(lambda text: None))
        assert folder.checkpoints.latest().state["step"] == kept
        assert [step for step, _ in folder.store.metrics("rl/tokens", "rl")] == list(range(1, kept + 1))
    if breaks == "a small evaluation" and not rare.rl.staleness:
        with monkeypatch.context() as patched:
            break_down(patched, "a round")  # After the evaluation was made, and before the next checkpoint.
            with pytest.raises(RolloutFault, match="down"):
                runs.resumed(tmp_path / "run")
    resumed = runs.resumed(tmp_path / "run")
    assert [step for step, _ in resumed.numbers["rl/tokens"]] == [1, 2, 3, 4, 5, 6]
    if not (rare.rl.staleness and breaks == "a round"):
        assert resumed == undisturbed


def break_down(patched: pytest.MonkeyPatch, breaks: str) -> None:
    """Make the fifth round fail, or its demonstrations, or the evaluation after the fourth, or the last."""
    collect, gather, evaluate = Collector.collect, Material._demonstrations, Session._evaluate
    failing = (4, "small", "greedy") if breaks == "a small evaluation" else (6, "full", "sampled")

    def no_round(collector: Collector, requests: object, seed: int, path: tuple[object, ...], *more, **named):
        if path[:3] == ("rl", "sampling", 5):
            raise RolloutFault("The environment is down.")
        return collect(collector, requests, seed, path, *more, **named)

    def no_demonstration(material: Material, update: int, others: int):
        if update == 5:
            raise RolloutFault("The script is down.")
        return gather(material, update, others)

    def no_evaluation(session: Session, stage: str, step: int, kind: str, decoding: str, tasks: object):
        if (step, kind, decoding) == failing:
            raise RolloutFault("The judge is down.")
        return evaluate(session, stage, step, kind, decoding, tasks)

    if breaks == "a round":
        patched.setattr(Collector, "collect", no_round)
    elif breaks == "a demonstration":
        patched.setattr(Material, "_demonstrations", no_demonstration)
    else:
        patched.setattr(Session, "_evaluate", no_evaluation)


def go_on(recipe: Recipe, path: Path) -> None:
    """In another process: make the run, or go on with it."""
    try:
        folder = RunFolder.open(path, writing=True)
    except FerrataError:
        folder = RunFolder.create(recipe, path)
    with folder:
        pipeline.run(recipe, folder, SilentView(), Interrupts(lambda text: None), resume=True)


@pytest.mark.slow
def test_killed_at_thirty_random_moments(runs, recipe: Recipe, whole, tmp_path: Path) -> None:
    context, moments = multiprocessing.get_context("forkserver"), random.Random(0)
    context.set_forkserver_preload(["ferrata.training.pipeline", "ferrata.envs.office"])
    kills = 0
    while kills < KILLS:
        process = context.Process(target=go_on, args=(recipe, tmp_path / "run"))
        process.start()
        process.join(0.3 + moments.expovariate(1.0))
        if process.exitcode is None:
            process.kill()
            kills += 1
            process.join()
        else:
            break
    assert runs.resumed(tmp_path / "run") == whole


def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Every draw of training tasks for RL from here on: the stream's path, then which tasks."""
    found: list[tuple[object, ...]] = []
    draw = Session.draw_tasks

    def noted(session: Session, count: int, *path: str | int, **more: object) -> list[Task]:
        tasks = draw(session, count, *path, **more)
        if path[:2] == ("rl", "tasks"):
            found.append((path, [task.fingerprint for task in tasks]))
        return tasks

    monkeypatch.setattr(Session, "draw_tasks", noted)
    return found


def test_fault_7_a_run_that_is_resumed_again_and_again_draws_every_task_once_and_in_order(
    runs, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at every update, it neither begins its tasks again nor leaves any out."""
    found = drawn(monkeypatch)
    runs.whole(recipe, tmp_path / "whole")
    expected, found[:] = list(found), []
    assert len({path for path, _ in expected}) == len(expected) > 6
    runs.stopped(recipe, tmp_path / "run", "rl", 1)
    for step in range(2, 6):
        runs.stopped_again(tmp_path / "run", "rl", step)
    runs.resumed(tmp_path / "run")
    assert found == expected
