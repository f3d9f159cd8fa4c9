"""What one update learns from: the trajectories of its round, older ones of the pool, and demonstrations.

Trajectories of older weights are marked, so that the learner scores them afresh and weighs them by how probable they
have become. Demonstrations keep the policy from forgetting how to act; nothing about them is a reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from ferrata.learning.batch import Example
from ferrata.learning.learner import Learner
from ferrata.learning.preparation import assess, example
from ferrata.records import Group
from ferrata.replay.pool import PoolEntry, ReplayPool
from ferrata.seeds import stream
from ferrata.training.demonstrations import demonstration
from ferrata.training.session import Session


class Material:
    """Gathers the examples of each update of one run; keeps the pool between them."""

    def __init__(self, session: Session) -> None:
        self._session, section = session, session.recipe.pool
        self._pool: ReplayPool | None = None
        if section.enabled:
            self._pool = ReplayPool(section.capacity, section.fresh_rounds, section.per_hash, section.sensible_turns)

    def gather(self, update: int, groups: Sequence[Group], learner: Learner) -> tuple[list[Example], dict[str, float]]:
        """The examples of an update, those of its own round first, and counts of everything.

        Where a demonstration fails, the pool is as it was.
        """
        session, pool = self._session, self._pool.copy() if self._pool is not None else None
        credited, metrics = assess(groups, session.recipe.rl, learner.score if learner.scores else None)
        examples = [
            example(trajectory, credit, stale=trajectory.policy_version != session.version)
            for trajectory, credit in credited
        ]
        if pool is not None:
            # Advantages from before the value head has learnt are not for the policy, now or later.
            kept = [] if learner.warming else credited
            admission = pool.add(update, [(one, tuple(credit.advantages_T.tolist())) for one, credit in kept])
            older = self._older(pool, update, len(examples))
            examples += older
            metrics |= admission.metrics() | {"pool/size": float(len(pool)), "pool/reused": float(len(older))}
        if session.recipe.rl.instructions:
            shown = self._demonstrations(update, len(examples))
            examples += shown
            metrics["rl/demonstrations"] = float(len(shown))
        self._pool = pool
        return examples, metrics

    def state(self) -> list[Any]:
        """The pool, JSON-ready; empty without one."""
        return self._pool.state() if self._pool is not None else []

    def load(self, state: list[Any]) -> None:
        """Go on with the pool that `state` gave."""
        if self._pool is not None:
            self._pool.load(state)

    def _older(self, pool: ReplayPool, update: int, fresh: int) -> list[Example]:
        """Trajectories of earlier rounds, drawn at random where there are more than their share."""
        entries = [entry for entry in pool.entries if entry.round < update]
        most = _beside(fresh, self._session.recipe.pool.share)
        if len(entries) > most:
            chosen = stream(self._session.recipe.seed, "rl", "pool", update).sample(range(len(entries)), most)
            entries = [entries[index] for index in sorted(chosen)]
        return [_old_example(entry) for entry in entries]

    def _demonstrations(self, update: int, others: int) -> list[Example]:
        """Fresh demonstrations on training tasks."""
        session, recipe = self._session, self._session.recipe
        env = session.demonstrated()
        count = _beside(others, recipe.rl.instructions)
        tasks = session.draw_tasks(count, "rl", "instructions", update, env=env) if count else []
        errors: Random = stream(recipe.seed, "rl", "errors", update)
        return [
            demonstration(recipe, env, session.policy.chat, task, errors).example(session.policy.context)
            for task in tasks
        ]


def _beside(others: int, share: float) -> int:
    """How many make up a share of the whole, beside so many others."""
    return int(share / (1.0 - share) * others)


def _old_example(entry: PoolEntry) -> Example:
    """An entry as an example. The value head learns nothing from it: its returns are those of another policy."""
    return Example.of(entry.trajectory, entry.advantages, stale=True, for_values=False)
