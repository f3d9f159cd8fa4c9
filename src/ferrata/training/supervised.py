"""SFT: imitate scripted demonstrations, whose procedure is deliberately imperfect."""

from __future__ import annotations

import time

from ferrata.learning.supervised import SupervisedLearner
from ferrata.seeds import stream
from ferrata.training.demonstrations import Demonstration, Measured, demonstration
from ferrata.training.saving import Position, restore, save
from ferrata.training.session import Session

PATIENCE = 10.0
"""Seconds after which a person is told how fast demonstrations are played."""


def run(session: Session, position: Position | None) -> None:
    """Train on demonstrations for `sft.updates` steps, then evaluate on unseen tasks."""
    section = session.recipe.sft
    learner = SupervisedLearner(session.policy.model, section)
    if position:
        restore(learner, position)
    done = position.step if position else 0
    if done < section.updates:
        _imitate(session, learner, done)
    elif session.last_sampled("sft"):
        return
    session.publish()
    session.evaluate_fully("sft", section.updates)
    session.stop_if_asked()


def _imitate(session: Session, learner: SupervisedLearner, done: int) -> None:
    """The steps that are not done yet."""
    section, seed = session.recipe.sft, session.recipe.seed
    shown = draw_demonstrations(session)
    session.view.stage("sft", section.updates)
    for step in range(done + 1, section.updates + 1):
        batch = stream(seed, "sft", "batch", step).sample(shown.played, min(section.batch_size, len(shown.played)))
        metrics = learner.update([one.example(shown.context) for one in batch])
        metrics["sft/too_long"] = float(sum(not one.fits(shown.limits) for one in batch))
        session.folder.store.add_metrics("sft", step, metrics)
        session.view.progress(step, metrics)
        last = step == section.updates
        if last:
            session.learned()
        if session.interrupts.requested or last or step % (10 * session.recipe.run.checkpoint_every) == 0:
            save(session, "sft", step, learner)
            session.stop_if_asked()


def draw_demonstrations(session: Session) -> Measured:
    """Scripted episodes on training tasks; it is said once how many of them no episode of this recipe could hold."""
    recipe, env, policy = session.recipe, session.demonstrated(), session.policy
    errors = stream(recipe.seed, "sft", "errors")
    tasks = session.draw_tasks(recipe.sft.demonstrations, "sft", "tasks", env=env)
    played: list[Demonstration] = []
    began, told = time.monotonic(), False
    for task in tasks:
        played.append(demonstration(recipe, env, policy.chat, task, errors))
        if not told and time.monotonic() - began > PATIENCE:
            told = True
            session.view.message(
                f"SFT: playing {len(tasks):,} demonstrations, {len(played):,} of them in the first {PATIENCE:g} s."
            )
    shown = Measured(played, recipe, policy)
    if shown.misfits:
        session.view.message(
            f"SFT: {shown.misfits:,} of {len(tasks):,} demonstrations do not fit into the budgets of an episode. They "
            "are learnt as far as the policy can read, but where it acts it is cut before their end."
        )
    return shown
