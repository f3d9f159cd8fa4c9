"""The reinforcement-learning loop: collect, prepare, update, publish; record, evaluate, checkpoint.

From the command (`cli/training.py`) to the gradient it is four calls:

    pipeline.run -> rl.run -> learner.update -> learner._step -> loss.backward()
"""

from __future__ import annotations

import time

from transformers import PreTrainedModel

from ferrata.learning.learner import Learner
from ferrata.learning.preparation import prepare_grpo
from ferrata.models.adapters import has_adapters, load_adapters, save_adapters, twin
from ferrata.models.policy import load_policy, save_policy
from ferrata.records import Task
from ferrata.rollout.collection import Collection
from ferrata.seeds import stream
from ferrata.training.measures import measure_groups, measure_work
from ferrata.training.saving import ADAPTERS, Position, restore, save
from ferrata.training.session import Session


def run(session: Session, position: Position | None) -> None:
    """Improve the policy for `rl.updates` rounds, then evaluate it on unseen tasks."""
    recipe, section = session.recipe, session.recipe.rl
    learner = make_learner(session, position)
    session.view.stage("rl", section.updates)
    for update in range(position.step + 1 if position else 1, section.updates + 1):
        session.score_for("rl", update)
        collection = session.collector.collect(
            draw_groups(session, update), recipe.seed, ("rl", "sampling", update), faults=session.faults
        )
        examples, spread = prepare_grpo(collection.groups, section)
        started = time.perf_counter()
        learned = learner.update(examples, stream(recipe.seed, "rl", "shuffle", update))
        learned["time/learning"] = time.perf_counter() - started
        session.publish()
        record(session, update, collection, {**spread, **learned})
        last = update == section.updates
        if update % recipe.evaluation.every == 0 and not last:
            session.evaluate_small("rl", update)
        if session.interrupts.requested or (update % recipe.run.checkpoint_every == 0 and not last):
            save(session, "rl", update, learner)
            session.stop_if_asked()
    session.score_for("rl", section.updates)
    session.evaluate_fully("rl", section.updates)
    save(session, "rl", section.updates, learner)


def draw_groups(session: Session, update: int) -> list[tuple[Task, int]]:
    """Fresh training tasks, each to be tried by a group of episodes."""
    section = session.recipe.rl
    return [(task, section.group_size) for task in session.draw_tasks(section.tasks_per_update, "rl", "tasks", update)]


def make_learner(session: Session, position: Position | None) -> Learner:
    """The learner, with the policy that RL started from as its frozen reference where KL is asked for."""
    section = session.recipe.rl
    reference = start_of_rl(session, is_now=position is None) if section.kl > 0 else None
    learner = Learner(session.policy.model, section, reference)
    if position:
        restore(learner, position)
    return learner


def start_of_rl(session: Session, is_now: bool) -> PreTrainedModel:
    """The policy that RL started from, or starts from now; where it has adapters, on the same frozen weights."""
    policy, folder = session.policy, session.folder.path / "reference"
    if not has_adapters(policy.model):
        if is_now:
            save_policy(policy, folder)
        return load_policy(folder).model
    if is_now:
        folder.mkdir(exist_ok=True)
        save_adapters(policy.model, folder / ADAPTERS)
    reference = twin(policy.model)
    load_adapters(reference, folder / ADAPTERS)
    return reference


def record(session: Session, update: int, collection: Collection, learned: dict[str, float]) -> None:
    """Store and show the numbers of one update, and keep a few groups to read."""
    metrics = {**measure_groups(collection.groups), **measure_work(collection.stats), **learned}
    store = session.folder.store
    store.add_metrics("rl", update, metrics)
    kept = collection.groups[: session.recipe.run.store_groups]
    store.add_trajectories("rl", update, "train", [episode for group in kept for episode in group.trajectories])
    session.view.progress(update, metrics)
