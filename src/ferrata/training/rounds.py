"""The rounds of RL: draw tasks, play groups, replace groups that say nothing; one round ahead where the recipe asks.

    Rounds.take      the round of an update: played now, or what was begun before
    Rounds.begin     play the next round in a thread while the learner works
    Rounds.settle    wait for it and keep it, before anything else may use the sampler

A round that is played ahead is sampled by the weights that were published when it began; nothing of it depends on how
long it takes. A checkpoint waits for it and holds it, so a resumed run goes on with the very same episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import msgspec

from ferrata.learning.preparation import has_spread
from ferrata.records import Group, Task
from ferrata.rollout.collection import Collection
from ferrata.training.climbing import Climb
from ferrata.training.measures import measure_groups, measure_work
from ferrata.training.session import Session


class Round(msgspec.Struct):
    """What one round of play brought."""

    groups: list[Group]
    """To learn from."""
    replaced: list[Group]
    """Played as well, but without spread, and replaced by others."""
    metrics: dict[str, float]
    """What all of its episodes say, and what they cost."""
    turn_cap: int
    """Under which it was played; 0 for none beyond the recipe's."""

    @property
    def played(self) -> list[Group]:
        """All groups."""
        return [*self.groups, *self.replaced]


class _GivenUpError(Exception):
    """Nobody waits for this round any more."""


class Rounds:
    """Plays the rounds of one run. A context manager: what is still being played in the end is given up.

    Args:
        session: the run.
        climb: says which tasks are drawn.
    """

    def __init__(self, session: Session, climb: Climb) -> None:
        self._session, self._climb = session, climb
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="round")
        self._ahead: Future[Round] | None = None
        self._given_up = False

    def take(self, update: int) -> Round:
        """The round of an update."""
        ahead, self._ahead = self._ahead, None
        return ahead.result() if ahead else self._prepared(update)()

    def begin(self, update: int) -> None:
        """Begin the round of an update with the policy as it is now."""
        assert self._ahead is None, "one round ahead is enough"
        self._session.publish()
        self._ahead = self._thread.submit(self._prepared(update))

    def settle(self) -> Round | None:
        """Wait until nothing is being played. Returns the round that was played ahead; `take` gives it again."""
        return self._ahead.result() if self._ahead else None

    def restore(self, ahead: Round | None) -> None:
        """Go on with a round that a checkpoint holds."""
        if ahead is not None:
            self._ahead = Future()
            self._ahead.set_result(ahead)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._given_up = True
        self._thread.shutdown(wait=True)

    def _prepared(self, update: int) -> Callable[[], Round]:
        """Everything that this thread must do for a round, and the rest as a call."""
        self._session.score_for("rl", update)
        tasks = self._draw(self._session.recipe.rl.tasks_per_update, "rl", "tasks", update)
        return lambda: self._play(update, tasks, self._climb.turn_cap)

    def _draw(self, count: int, *path: str | int) -> list[Task]:
        return self._climb.draw(count, *path)

    def _play(self, update: int, tasks: Sequence[Task], cap: int) -> Round:
        """Play groups of these tasks, then as many fresh ones as had no spread, as often as the recipe allows."""
        section = self._session.recipe.rl
        collection, replaced = self._collect(tasks, cap, "rl", "sampling", update), list[Group]()
        groups, stats = collection.groups, collection.stats
        for attempt in range(1, section.redraws + 1):
            dull = [index for index, group in enumerate(groups) if not has_spread(group, section)]
            if not dull:
                break
            fresh = self._draw(len(dull), "rl", "tasks", update, "redraw", attempt)
            more = self._collect(fresh, cap, "rl", "sampling", update, "redraw", attempt)
            stats.add(more.stats)
            for index, group in zip(dull, more.groups, strict=True):
                replaced.append(groups[index])
                groups[index] = group
        metrics = {**measure_groups([*groups, *replaced]), **measure_work(stats)}
        if section.redraws:
            metrics["groups/replaced"] = float(len(replaced))
        return Round(groups, replaced, metrics, cap)

    def _collect(self, tasks: Sequence[Task], cap: int, *path: str | int) -> Collection:
        session = self._session
        requests = [(task, session.recipe.rl.group_size) for task in tasks]
        return session.collector.collect(
            requests, session.recipe.seed, path, progress=self._go_on, faults=session.faults, max_turns=cap
        )

    def _go_on(self, over: int, asked: int) -> None:
        """Between two episodes, see whether anybody still wants the round."""
        if self._given_up:
            raise _GivenUpError
