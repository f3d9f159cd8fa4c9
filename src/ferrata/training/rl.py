"""The reinforcement-learning loop: collect, prepare, update, publish; record, evaluate, checkpoint.

From the command (`cli/training.py`) to the gradient it is four calls:

    pipeline.run -> rl.run -> learner.update -> learner._step -> loss.backward()

What an update plays is the business of `rounds`, what it learns from that of `material`, which tasks it may draw that
of `climbing`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from transformers import PreTrainedModel

from ferrata.diagnostics import find_collapse
from ferrata.errors import CheckpointError
from ferrata.learning.batch import Example
from ferrata.learning.courses import next_read
from ferrata.learning.learner import Learner
from ferrata.models.adapters import has_adapters, load_adapters, save_adapters, twin
from ferrata.models.policy import load_policy, save_policy
from ferrata.runs import broken, seal
from ferrata.seeds import stream
from ferrata.training.climbing import Climb
from ferrata.training.material import Material
from ferrata.training.rounds import Round, Rounds
from ferrata.training.saving import ADAPTERS, Position, progress_of, restore, save
from ferrata.training.session import Session

REMINDER = 10
"""Updates until the same alarm is told again."""


def run(session: Session, position: Position | None) -> None:
    """Improve the policy for `rl.updates` rounds, then evaluate it on unseen tasks.

    What fails outside the learner has changed nothing that a checkpoint holds: then one is written, and no update lost.
    """
    recipe, section = session.recipe, session.recipe.rl
    learner, climb, material = make_learner(session, position), Climb(session), Material(session)

    def keep(update: int, ahead: Round | None) -> None:
        progress = _Progress(climb.state(), material.state(), ahead)
        save(session, "rl", update, learner, msgspec.msgpack.encode(progress))

    session.view.stage("rl", section.updates)
    with Rounds(session, climb) as rounds:
        done = position.step if position else 0
        if position:
            _load(progress_of(position), done + 1, climb, material, rounds)
            _judge(session, climb, rounds, done)
        for update in range(done + 1, section.updates + 1):
            last, played = update == section.updates, None
            try:
                played = rounds.take(update)
                if section.staleness and not last:
                    rounds.begin(update + 1)
                began = time.perf_counter()
                examples, counts = material.gather(update, played.groups, learner)
            except Exception:
                if update - 1 > done:
                    keep(update - 1, played)
                raise
            learned = learn(session, learner, update, examples)
            climb.hear(played.played, played.turn_cap)
            record(session, update, played, {**counts, **learned, "time/learning": time.perf_counter() - began})
            try:
                if not section.staleness:
                    session.publish()
                _judge(session, climb, rounds, update)
            except Exception:
                keep(update, rounds.settle())
                raise
            if session.interrupts.requested or last or update % recipe.run.checkpoint_every == 0:
                keep(update, rounds.settle())
                session.stop_if_asked()
    session.publish()
    session.score_for("rl", section.updates)
    session.evaluate_fully("rl", section.updates)


def learn(session: Session, learner: Learner, update: int, examples: Sequence[Example]) -> dict[str, float]:
    """One update of the weights, and what it says."""
    learned = learner.update(examples, stream(session.recipe.seed, "rl", "shuffle", update))
    session.learned()
    return learned


def _judge(session: Session, climb: Climb, rounds: Rounds, update: int) -> None:
    """The small evaluation that is due after an update, and what the ladder makes of it; one that was made stays."""
    if not 0 < update < session.recipe.rl.updates or update % session.recipe.evaluation.every:
        return
    if any(row.step == update for row in session.folder.store.evaluations("small", "rl")):
        return
    rounds.settle()
    session.publish()
    climb.judge(update, session.evaluate_small("rl", update, climb.unseen()))


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
    """The policy that RL started from, or starts from now; where it has adapters, on the same frozen weights.

    Raises:
        CheckpointError: it was written before, and is not as it was.
    """
    policy, folder = session.policy, session.folder.path / "reference"
    adapted = has_adapters(policy.model)
    if is_now:
        if adapted:
            folder.mkdir(exist_ok=True)
            save_adapters(policy.model, folder / ADAPTERS)
        else:
            save_policy(policy, folder)
        seal(folder)
    elif fault := broken(folder):
        raise CheckpointError(
            f"The policy that RL started from, in {folder}, is not as it was ({fault}): the run cannot go on with the "
            "divergence that it began with. Put back a copy of it."
        )
    if not adapted:
        return load_policy(folder).model
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


def _load(content: bytes, update: int, climb: Climb, material: Material, rounds: Rounds) -> None:
    progress = msgspec.msgpack.decode(content, type=_Progress)
    climb.load(progress.climb, update - 1)
    material.load(progress.pool)
    rounds.restore(update, progress.ahead)
