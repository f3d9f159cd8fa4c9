"""The reinforcement-learning loop: collect, prepare, update, publish; record, evaluate, checkpoint.

From the command (`cli/training.py`) to the gradient it is four calls:

    pipeline.run -> rl.run -> learner.update -> learner._step -> loss.backward()

What an update plays is the business of `rounds`, what it learns from that of `material`, which tasks it may draw that
of `climbing`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from transformers import PreTrainedModel

from ferrata.diagnostics import find_collapse
from ferrata.errors import CheckpointError
from ferrata.files import sync_tree
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
    """Improve the policy for `rl.updates` rounds, then evaluate it on unseen tasks."""
    updates = session.recipe.rl.updates
    learner, climb, material = make_learner(session, position), Climb(session), Material(session)
    session.view.stage("rl", updates)
    with Rounds(session, climb) as rounds:
        loop = _Loop(session, learner, climb, material, rounds)
        for update in range(loop.begin(position), updates + 1):
            played, examples, counts = loop.gather(update)
            learned = learner.update(examples, stream(session.recipe.seed, "rl", "shuffle", update))
            loop.finish(update, played, {**counts, **learned})
    session.publish()
    session.score_for("rl", updates)
    session.evaluate_fully("rl", updates)


@dataclass
class _Loop:
    """What happens around the learner. Where playing, gathering or evaluating fails, what was learnt is saved first."""

    session: Session
    learner: Learner
    climb: Climb
    material: Material
    rounds: Rounds
    kept: int = 0
    """The update of the newest checkpoint."""
    judged: int = 0
    """The update after which the newest small evaluation was made."""
    since: float = 0.0
    """When the update under way had been played."""

    def begin(self, position: Position | None) -> int:
        """Go on from a checkpoint, or from the start. Returns the first update that is left."""
        if position is None:
            return 1
        progress = msgspec.msgpack.decode(progress_of(position), type=_Progress)
        self.kept, self.judged = position.step, progress.judged
        self.session.score_for("rl", position.step)
        self.climb.load(progress.climb, position.step)
        self.material.load(progress.pool)
        self.rounds.restore(position.step + 1, progress.ahead)
        self._judge(position.step)
        return position.step + 1

    def gather(self, update: int) -> tuple[Round, list[Example], dict[str, float]]:
        """What was played for an update, what is learnt from it, and counts of that."""
        section, played = self.session.recipe.rl, None
        try:
            played = self.rounds.take(update)
            if section.staleness and update < section.updates:
                self.rounds.begin(update + 1)
            self.since = time.perf_counter()
            return played, *self.material.gather(update, played.groups, self.learner)
        except Exception:
            self._rescue(update - 1, played)
            raise

    def finish(self, update: int, played: Round, metrics: dict[str, float]) -> None:
        """The policy has learnt: record and publish; evaluate and save where that is due."""
        session, recipe = self.session, self.session.recipe
        session.learned()
        self.climb.hear(played.played, played.turn_cap)
        record(session, update, played, {**metrics, "time/learning": time.perf_counter() - self.since})
        try:
            if not recipe.rl.staleness:
                session.publish()
            self._judge(update)
        except Exception:
            self._rescue(update, self.rounds.settle())
            raise
        due = update == recipe.rl.updates or update % recipe.run.checkpoint_every == 0
        if session.interrupts.requested or due:
            self._keep(update, self.rounds.settle())
            session.stop_if_asked()

    def _judge(self, update: int) -> None:
        """The small evaluation that is due after an update, and what the ladder makes of it, unless that was done."""
        session = self.session
        if not self.judged < update < session.recipe.rl.updates or update % session.recipe.evaluation.every:
            return
        self.rounds.settle()
        session.publish()
        self.climb.judge(update, session.evaluate_small("rl", update, self.climb.unseen()))
        self.judged = update

    def _rescue(self, update: int, ahead: Round | None) -> None:
        """Something has failed: write a checkpoint if there is anything new. That this fails as well is only told."""
        if update > self.kept:
            try:
                self._keep(update, ahead)
            except CheckpointError as error:
                self.session.view.message(f"What was learnt after update {self.kept} could not be saved: {error}")

    def _keep(self, update: int, ahead: Round | None) -> None:
        """Write a checkpoint of what an update has left."""
        progress = _Progress(self.climb.state(), self.material.state(), ahead, self.judged)
        save(self.session, "rl", update, self.learner, msgspec.msgpack.encode(progress))
        self.kept = update


class _Progress(msgspec.Struct):
    """Where RL stands, beyond policy and learner."""

    climb: dict[str, Any]
    pool: list[Any]
    ahead: Round | None
    """The next round, where it was played already."""
    judged: int
    """As in the loop."""


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
        sync_tree(folder)
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
