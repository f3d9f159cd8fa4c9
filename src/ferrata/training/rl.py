"""The reinforcement-learning loop: collect, prepare, update, publish; record, evaluate, checkpoint.

From the command (`cli/training.py`) to the gradient it is four calls:

    pipeline.run -> rl.run -> learner.update -> learner._step -> loss.backward()

What an update plays is the business of `rounds`, what it learns from that of `material`, which tasks it may draw that
of `climbing`.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import msgspec
from transformers import PreTrainedModel

from ferrata.diagnostics import find_collapse
from ferrata.errors import FerrataError
from ferrata.learning.courses import next_read
from ferrata.learning.learner import Learner
from ferrata.models.adapters import has_adapters, load_adapters, save_adapters, twin
from ferrata.models.policy import load_policy, save_policy
from ferrata.seeds import stream
from ferrata.training.climbing import Climb
from ferrata.training.material import Material
from ferrata.training.rounds import Round, Rounds
from ferrata.training.saving import ADAPTERS, Position, progress_of, restore, save
from ferrata.training.session import Session

REMINDER = 10
"""Updates until the same alarm is told again."""


def run(session: Session, position: Position | None) -> None:
    """Improve the policy for `rl.updates` rounds, then evaluate it on unseen tasks."""
    recipe, section = session.recipe, session.recipe.rl
    learner, climb, material = make_learner(session, position), Climb(session), Material(session)
    session.view.stage("rl", section.updates)
    with Rounds(session, climb) as rounds:
        done = position.step if position else 0
        if position:
            _load(progress_of(position), done + 1, climb, material, rounds)
        for update in range(done + 1, section.updates + 1):
            try:
                played = rounds.take(update)
            except FerrataError:
                if update - 1 > done:
                    save(session, "rl", update - 1, learner, _progress(climb, material, None))
                raise
            climb.hear(played.played, played.turn_cap)
            last = update == section.updates
            if section.staleness and not last:
                rounds.begin(update + 1)
            learned = learn(session, learner, material, update, played)
            if not section.staleness:
                session.publish()
            record(session, update, played, learned)
            if update % recipe.evaluation.every == 0 and not last:
                rounds.settle()
                session.publish()
                climb.judge(update, session.evaluate_small("rl", update, climb.unseen()))
            if session.interrupts.requested or (update % recipe.run.checkpoint_every == 0 and not last):
                save(session, "rl", update, learner, _progress(climb, material, rounds))
                session.stop_if_asked()
    session.publish()
    session.score_for("rl", section.updates)
    session.evaluate_fully("rl", section.updates)
    save(session, "rl", section.updates, learner, _progress(climb, material, None))


def learn(session: Session, learner: Learner, material: Material, update: int, played: Round) -> dict[str, float]:
    """One update of the weights, and what it says."""
    started = time.perf_counter()
    examples, counts = material.gather(update, played.groups, learner)
    learned = learner.update(examples, stream(session.recipe.seed, "rl", "shuffle", update))
    session.learned()
    return {**counts, **learned, "time/learning": time.perf_counter() - started}


def make_learner(session: Session, position: Position | None) -> Learner:
    """The learner, with the policy that RL started from as its frozen reference where KL is asked for."""
    section = session.recipe.rl
    reference = start_of_rl(session, is_now=position is None) if section.kl > 0 else None
    budgets, policy = session.recipe.rollout, session.policy
    read = partial(next_read, chat=policy.chat, most=budgets.max_observation_tokens, context=policy.context)
    learner = Learner(policy.model, section, reference, budgets.max_tokens, read)
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


def record(session: Session, update: int, played: Round, learned: dict[str, float]) -> None:
    """Store and show the numbers of one update, and keep a few groups to read."""
    store, collapse = session.folder.store, find_collapse(played.played)
    metrics = {**played.metrics, **collapse.metrics, **learned}
    for metric, alarm in collapse.alarms.items():
        warn(session, update, metric, alarm)
    store.add_metrics("rl", update, metrics)
    kept = played.groups[: session.recipe.run.store_groups]
    store.add_trajectories("rl", update, "train", [episode for group in kept for episode in group.trajectories])
    session.view.progress(update, metrics)


def warn(session: Session, update: int, metric: str, alarm: str) -> None:
    """Tell a person, and note in the store, that something goes wrong; while it goes on, every `REMINDER` updates."""
    store = session.folder.store
    if any(note.step > update - REMINDER for note in store.notes(metric)):
        return
    store.add_note("rl", update, metric, alarm)
    session.view.message(f"Alarm, update {update}: {alarm}")


class _Progress(msgspec.Struct):
    """Where RL stands, beyond policy and learner."""

    climb: dict[str, Any]
    pool: list[Any]
    ahead: Round | None
    """The next round, where it was played ahead."""


def _progress(climb: Climb, material: Material, rounds: Rounds | None) -> bytes:
    ahead = rounds.settle() if rounds else None
    return msgspec.msgpack.encode(_Progress(climb.state(), material.state(), ahead))


def _load(content: bytes, update: int, climb: Climb, material: Material, rounds: Rounds) -> None:
    progress = msgspec.msgpack.decode(content, type=_Progress)
    climb.load(progress.climb, update - 1)
    material.load(progress.pool)
    rounds.restore(update, progress.ahead)
